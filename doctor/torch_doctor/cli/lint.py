"""``torch-doctor lint``: pitfalls in code, before the run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from torch_doctor.cli.options import FailOn, Format, Ignore, Output, Select, Verbose

Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="[PATH]...", help="Files and folders; the current folder without one.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Not files and folders that match this pattern.")]
Fix = Annotated[bool, typer.Option("--fix", help="Apply the safe fixes, then report what is left.")]
Unsafe = Annotated[bool, typer.Option("--unsafe-fixes", help="With --fix or --diff: the unsafe ones, too.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; without it, one a CPU where there are many files.")]
Diff = Annotated[bool, typer.Option("--diff", help="Print what --fix would change; exit with 1 if anything.")]


def lint(
    paths: Paths = None,
    format: Format = "table",
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    exclude: Exclude = None,
    fail_on: FailOn = "error",
    fix: Fix = False,
    unsafe_fixes: Unsafe = False,
    diff: Diff = False,
    jobs: Jobs = None,
    verbose: Verbose = False,
) -> None:
    """Pitfalls in training code: parsed, never executed."""
    from torch_doctor import config, linting, registry
    from torch_doctor.cli import emit
    from torch_doctor.model import Report

    start = time.monotonic()
    checks = registry.select(registry.load("lint"), select or (), ignore or ())
    options: dict[str, Any] = {
        "exclude": exclude or (),
        "per_file_ignores": config.per_file_ignores(config.load(Path.cwd())),
    }
    wanted = paths or [Path()]
    if fix or diff:
        _mend(wanted, checks, write=not diff, unsafe=unsafe_fixes, **options)
    found = linting.lint(wanted, checks, jobs=jobs or len(os.sched_getaffinity(0)), **options)
    facts = {"lint": {"files": found.files}}
    report = Report("lint", found.results, facts, found.notifications, time.monotonic() - start)
    emit.finish(report, format=format, output=output, fail_on=fail_on, verbose=verbose)


def _mend(paths: list[Path], checks: Any, *, write: bool, **options: Any) -> None:
    """Write the fixes, or print them and end."""
    from torch_doctor import fixing
    from torch_doctor.model import counted

    found = fixing.changes(paths, checks, **options)
    for change in found:
        if write:
            fixing.write(change)
        else:
            typer.echo(change.diff(), nl=False)
    total = counted(sum(c.fixed for c in found), "finding")
    verb = "fixed" if write else "would fix"
    if found or not write:
        typer.echo(f"{verb} {total} in {counted(len(found), 'file')}", err=True)
    if not write:
        raise typer.Exit(1 if found else 0)

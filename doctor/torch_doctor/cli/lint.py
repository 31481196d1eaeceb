"""``torch-doctor lint``: pitfalls in code, before the run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from torch_doctor.cli.options import FailOn, Format, Ignore, Output, Select, Verbose

Paths = Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help="Files and folders; the current one without.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Not files and folders that match this pattern.")]
Fix = Annotated[bool, typer.Option("--fix", help="Apply the safe fixes.")]
Unsafe = Annotated[bool, typer.Option("--unsafe-fixes", help="With --fix or --diff, the unsafe ones too.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show what --fix would change; exit with 1 if anything.")]


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
    verbose: Verbose = False,
) -> None:
    """Pitfalls in training code: parsed, never executed."""
    from torch_doctor import linting, registry
    from torch_doctor.cli import emit
    from torch_doctor.model import Report

    start = time.monotonic()
    checks = registry.select(registry.load("lint"), select or (), ignore or ())
    found = linting.lint(paths or [Path()], checks, exclude=exclude or ())
    report = Report("lint", found.results, {"lint": {"files": found.files}}, found.notifications, time.monotonic() - start)
    emit.finish(report, format=format, output=output, fail_on=fail_on, verbose=verbose)

"""``torch-doctor check``: is this machine fit to train, and fit for this script?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from torch_doctor.cli.options import FailOn, Format, Ignore, Output, Select, Timeout, Verbose

Script = Annotated[Path | None, typer.Argument(metavar="[SCRIPT]", help="Training script: parsed, never executed.")]


def check(
    script: Script = None,
    format: Format = "table",
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "error",
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Preflight: is this machine fit to train? With a script, fit for that script?"""
    from torch_doctor import registry, runner, snapshot
    from torch_doctor.cli import emit
    from torch_doctor.facts.request import Request
    from torch_doctor.model import Report

    start = time.monotonic()
    checks = registry.select(registry.load("check"), select or (), ignore or ())
    facts = snapshot.take(snapshot.needed(checks), Request(script=script, timeout=timeout))
    results = runner.run(checks, facts)
    report = Report("check", results, snapshot.plain(facts), (), time.monotonic() - start)
    emit.finish(report, format=format, output=output, fail_on=fail_on, verbose=verbose)

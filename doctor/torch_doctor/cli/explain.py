"""``torch-doctor explain``: the root cause of a failed run, from its log."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from torch_doctor.cli.options import FailOn, Format, Ignore, Output, Select, Verbose

Log = Annotated[Path | None, typer.Argument(metavar="[LOG|-]", help="The log; - is standard input.", allow_dash=True)]
Session = Annotated[str, typer.Option(help="Explain the end of this session of torch-doctor run.")]
FactsFile = Annotated[
    Path | None, typer.Option("--facts", help="A `check --format json` of the machine that the log is of.")
]
Live = Annotated[bool, typer.Option("--live", help="The log is of this machine: look at it, too.")]
Bundle = Annotated[Path | None, typer.Option(help="Write log lines, facts and verdict to this .tar.gz, redacted.")]


def explain(
    log: Log = None,
    session: Session = "",
    facts: FactsFile = None,
    live: Live = False,
    bundle: Bundle = None,
    format: Format = "table",
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "error",
    verbose: Verbose = False,
) -> None:
    """The root cause of a failed run: its log, a traceback, or a finished session."""
    from torch_doctor import postmortem
    from torch_doctor.cli import emit
    from torch_doctor.facts.request import Request

    start = time.monotonic()
    if log is None and not session and not sys.stdin.isatty():
        log = Path("-")
    request = Request(log=log, session=session, facts=facts, live=live)
    report = postmortem.explain(request, select or (), ignore or (), start, bundle)
    emit.finish(report, format=format, output=output, fail_on=fail_on, verbose=verbose)

"""``torch-doctor check``: is this machine fit to train, and fit for this script?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torch_doctor.cli.options import FailOn, Format, Ignore, Output, Select, Timeout, Verbose

Script = Annotated[Path | None, typer.Argument(metavar="[SCRIPT]", help="Training script: parsed, never executed.")]
Need = Annotated[
    list[str] | None,
    typer.Option(help="What the run needs: gpus=8, gpu-memory=70g, shm=16g, memory=64g, disk=200g, cpus=16, ..."),
]
Gpus = Annotated[str | None, typer.Option(help="GPUs that the run wants: a number, or all.")]
SampleBytes = Annotated[
    str | None, typer.Option(help="Size of one sample of the training data, where the script does not say it: 600k.")
]
Deep = Annotated[bool, typer.Option("--deep", help="Slow checks too: a real torch.compile.")]
Python = Annotated[str | None, typer.Option(help="The interpreter that has your torch.")]
Data = Annotated[Path | None, typer.Option(help="Folder or file of the training data.", exists=True)]


def check(
    script: Script = None,
    need: Need = None,
    gpus: Gpus = None,
    sample_bytes: SampleBytes = None,
    data: Data = None,
    python: Python = None,
    deep: Deep = False,
    format: Format = "table",
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "error",
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Preflight: is this machine fit to train? With a script, fit for that script?"""
    from torch_doctor import preflight, snapshot
    from torch_doctor.cli import emit

    needs, notes = snapshot.require(script, need=need or (), gpus=gpus, sample_bytes=sample_bytes)
    request = preflight.request(script, needs, timeout=timeout, deep=deep, python=python, data=data)
    report = preflight.judge(request, select or (), ignore or (), notes)
    emit.finish(report, format=format, output=output, fail_on=fail_on, verbose=verbose)

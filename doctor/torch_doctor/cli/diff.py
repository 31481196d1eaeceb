"""``torch-doctor diff``: what changed between two reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Words = Annotated[Literal["table", "json"], typer.Option("--format", help="How it is written.")]
Old = Annotated[Path, typer.Argument(metavar="A", help="The report to compare with.")]
New = Annotated[Path, typer.Argument(metavar="B", help="The report that may differ.")]


def diff(old: Old, new: New, format: Words = "table") -> None:
    """What changed between two `check --format json` files; ends with 1 if something did."""
    from torch_doctor import comparison
    from torch_doctor.cli import emit

    found = comparison.compare(comparison.load(old), comparison.load(new))
    emit.write(comparison.render(found, format))
    raise typer.Exit(1 if found.differs else 0)

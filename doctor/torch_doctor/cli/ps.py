"""``torch-doctor ps``: every session and how it stands."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def ps(
    format: Annotated[Literal["table", "json"], typer.Option("--format", help="How the list is written.")] = "table",
) -> None:
    """Every session: state, age, exit status, GPU memory, command and last line."""
    from torch_doctor.cli import emit
    from torch_doctor.sessions import listing

    rows = listing.rows()
    width = emit.style(None, "error", False).width
    emit.write(listing.as_json(rows) if format == "json" else listing.as_table(rows, width))

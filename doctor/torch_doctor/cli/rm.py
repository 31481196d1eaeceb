"""``torch-doctor rm``: forget sessions that have ended."""

from __future__ import annotations

from typing import Annotated

import typer


def rm(
    names: Annotated[list[str] | None, typer.Argument(help="Sessions; may be left out where there is one.")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Every session that has ended.")] = False,
) -> None:
    """Remove sessions that have ended, with their logs."""
    from torch_doctor.sessions import removing

    for name in removing.remove(names or [], ended):
        typer.echo(name)

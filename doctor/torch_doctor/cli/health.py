"""``torch-doctor health``: fast; for HEALTHCHECK."""

from __future__ import annotations

import typer


def health() -> None:
    """One line, and 1 where a GPU was lost or a session died. Restarts nothing."""
    from torch_doctor.sessions import vitality

    healthy, line = vitality.look()
    typer.echo(line)
    raise typer.Exit(0 if healthy else 1)

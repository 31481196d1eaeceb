"""``torch-doctor wait``: until a session has ended."""

from __future__ import annotations

from typing import Annotated

import typer


def wait(
    name: Annotated[str | None, typer.Argument(help="The session; may be left out where only one runs.")] = None,
) -> None:
    """Wait until a session has ended; ends with the status of its command, 128+n for a signal."""
    from torch_doctor.sessions import choice, client, showing

    raise typer.Exit(showing.end(client.wait(choice.one(name, running=True))))

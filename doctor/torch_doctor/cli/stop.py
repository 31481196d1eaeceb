"""``torch-doctor stop``: end a session and everything it started."""

from __future__ import annotations

from typing import Annotated

import typer


def stop(
    name: Annotated[str | None, typer.Argument(help="The session; may be left out where only one runs.")] = None,
    grace: Annotated[
        float | None, typer.Option(min=0, help="Seconds between SIGTERM and SIGKILL; by default as run was told.")
    ] = None,
) -> None:
    """SIGTERM to the whole process group, then SIGKILL; nothing of the run is left."""
    from torch_doctor.facts.sessions import STOPPED_BY_COMMAND
    from torch_doctor.sessions import choice, client, showing

    known = client.stop(choice.one(name, running=True), grace, STOPPED_BY_COMMAND)
    showing.end(known)

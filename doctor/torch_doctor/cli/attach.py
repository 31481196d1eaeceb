"""``torch-doctor attach``: show a running session."""

from __future__ import annotations

from typing import Annotated

import typer


def attach(
    name: Annotated[str | None, typer.Argument(help="The session; may be left out where only one runs.")] = None,
    user_config: Annotated[
        bool, typer.Option("--user-config", help="Read ~/.tmux.conf or ~/.screenrc, too.")
    ] = False,
) -> None:
    """Show a session in tmux or screen (detach: Ctrl-b d); of one that has ended, the end of its log."""
    from torch_doctor.sessions import choice, showing

    raise typer.Exit(showing.attach(choice.one(name, running=True), user_config))

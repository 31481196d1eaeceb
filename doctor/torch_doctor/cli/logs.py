"""``torch-doctor logs``: what a session wrote."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[str | None, typer.Argument(help="The session; may be left out where there is one.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the session ends.")]
Lines = Annotated[int | None, typer.Option("--lines", "-n", min=0, help="Only the last N lines.")]
Plain = Annotated[bool, typer.Option("--plain", help="Progress bars as they ended, no colours.")]


def logs(name: Name = None, follow: Follow = False, lines: Lines = None, plain: Plain = False) -> None:
    """What a session wrote, byte for byte; --plain makes it readable."""
    from torch_doctor.sessions import choice, reading

    reading.show(choice.one(name), follow=follow, lines=lines, plain=plain)

"""``torch-doctor run``: preflight, then a command in a session that outlives the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

#: what follows the command belongs to the command, with or without --
CONTEXT_SETTINGS = {"allow_interspersed_args": False}

Command = Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command, run as given, by no shell.")]
Name = Annotated[str | None, typer.Option(help="Name of the session; by default that of the script.")]
Backend = Annotated[Literal["auto", "tmux", "screen", "nohup"], typer.Option(help="What shows the session.")]
Check = Annotated[
    Literal["strict", "warn", "off"], typer.Option(help="Preflight: refuse on an error, warn, or none.")
]
Restart = Annotated[str, typer.Option(help="on-failure:N starts a failed command again, N times.")]
Grace = Annotated[float, typer.Option(min=0, help="Seconds between SIGTERM and SIGKILL.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Show nothing; print the name and return.")]
Env = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Set this for the command.")]
Cwd = Annotated[Path | None, typer.Option(help="Working folder of the command.")]
LogSize = Annotated[str, typer.Option(help="Rotate the log at this size (100m); 0 never.")]
Postmortem = Annotated[bool, typer.Option(help="Explain a failure when the command ends.")]
UserConfig = Annotated[bool, typer.Option("--user-config", help="Read ~/.tmux.conf or ~/.screenrc, too.")]


def run(
    command: Command,
    name: Name = None,
    backend: Backend = "auto",
    check: Check = "warn",
    restart: Restart = "no",
    grace: Grace = 30.0,
    detach: Detach = False,
    env: Env = None,
    cwd: Cwd = None,
    log_size: LogSize = "0",
    postmortem: Postmortem = True,
    user_config: UserConfig = False,
) -> None:
    """Preflight, then CMD in a session that outlives the terminal, the SSH connection and tmux."""
    from torch_doctor.sessions import showing, starting

    wanted = starting.Wanted(
        command=tuple(command),
        name=name,
        backend=backend,
        check=check,
        restarts=starting.restarts(restart),
        grace=grace,
        environment=tuple(env or ()),
        cwd=cwd,
        log_bytes=starting.size(log_size),
        postmortem=postmortem,
    )
    place = starting.begin(wanted)
    raise typer.Exit(showing.after_start(place, detach, user_config))

"""What ``run`` tells the supervisor, through a file. No environment values: those are inherited, never stored."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from torch_doctor.sessions import store

FILE = "spec.json"


@dataclass(frozen=True)
class Spec:
    """One session to start.

    Args:
        name: validated.
        folder: the session's folder, absolute.
        command: argument list.
        cwd: absolute.
        backend: tmux, screen or nohup.
        grace: seconds between SIGTERM and SIGKILL.
        restarts: how often a failed command is started again.
        rows, columns: the terminal's size until a view says another.
        log_limit_bytes, log_keep: rotation; 0 never.
        sockets: paths to try for the socket, best first.
        spill: where output goes that the log cannot take at the end.
        postmortem: command that diagnoses a failure, and its time limit in seconds.
        lock: descriptor that holds the session's lock.
        ready: descriptor that is told how the start went.
    """

    name: str
    folder: str
    command: tuple[str, ...]
    cwd: str
    backend: str
    grace: float = 30.0
    restarts: int = 0
    rows: int = 40
    columns: int = 120
    log_limit_bytes: int = 0
    log_keep: int = 5
    sockets: tuple[str, ...] = ()
    spill: str = ""
    postmortem: tuple[str, ...] = ()
    postmortem_timeout: float = 60.0
    lock: int = -1
    ready: int = -1

    def save(self, path: Path) -> None:
        """Write it where load() finds it."""
        store.write_private(path, json.dumps(dataclasses.asdict(self)))


def load(path: Path) -> Spec:
    """The specification that save() wrote."""
    values = json.loads(path.read_text(encoding="utf-8"))
    for key in ("command", "sockets", "postmortem"):
        values[key] = tuple(values[key])
    return Spec(**values)

"""``run`` without a terminal, or as a container's main command: streams the output, passes signals on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from torch_doctor.facts.sessions import STOPPED_BY_CONTAINER, STOPPED_BY_SIGNAL
from torch_doctor.sessions import client, proc
from torch_doctor.sessions.state import State
from torch_doctor.sessions.viewer import View

OTHERS_SECONDS = 2.0
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def stream(place: Path, output: int, offset: int | None = None) -> State:
    """Copy the session's output to a descriptor until it ends; its final state."""
    end = None
    with contextlib.suppress(OSError):
        end = View(place, output, offset=offset).run()
    return end or client.wait(place)


def let_others_end(seconds: float = OTHERS_SECONDS) -> None:
    """Give attach, stop and wait under ``docker exec`` a moment: when this process ends, the container dies."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(_listens(s) for s in proc.all_processes().values()):
        time.sleep(0.02)


def _listens(process: proc.Stat) -> bool:
    # what docker exec starts has no parent in the container
    if process.parent != 0 or process.pid == 1 or process.state in "ZX":
        return False
    return any(mark in proc.command_line(process.pid) for mark in (b"torch-doctor\0", b"torch_doctor\0"))


@contextlib.contextmanager
def passing_signals(place: Path, main: bool) -> Iterator[None]:
    """SIGTERM and SIGINT end the run with its grace time; SIGUSR1, SIGUSR2 and SIGQUIT reach the command.

    Args:
        place: the session's folder.
        main: this process is what a container lives by: SIGTERM means docker stop, and as PID 1 it has zombies
            to reap.
    """

    def on_stop(number: int, frame: FrameType | None) -> None:
        client.request_stop(place, None, STOPPED_BY_CONTAINER if main else STOPPED_BY_SIGNAL, number)

    def on_signal(number: int, frame: FrameType | None) -> None:
        client.forward(place, number)

    def on_child(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    handlers = {signal.SIGTERM: on_stop, signal.SIGINT: on_stop, **dict.fromkeys(_FORWARDED, on_signal)}
    if main:
        handlers[signal.SIGHUP] = lambda *_: None
    if os.getpid() == 1:
        handlers[signal.SIGCHLD] = on_child
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)

"""What commands ask of a session's supervisor, and what they do where there is none any more."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import time
from pathlib import Path

from torch_doctor.errors import CannotRun, DoctorError
from torch_doctor.sessions import launch, lock, proc, protocol, state, store, verdict
from torch_doctor.sessions.state import State

#: beyond the grace time: what the command left behind is ended, too, and the end is recorded
STOP_SLACK_SECONDS = 30.0


def request_stop(place: Path, grace: float | None, by: str, number: int = signal.SIGTERM) -> bool:
    """Ask the supervisor to end the run. False where there is none to ask."""
    return _tell(place, protocol.request(op="stop", grace=grace, by=by, signal=int(number)))


def forward(place: Path, number: int) -> bool:
    """Have the supervisor send a signal to the command. False where there is none to ask."""
    return _tell(place, protocol.request(op="signal", signal=int(number)))


def _tell(place: Path, frame: bytes) -> bool:
    with contextlib.suppress(OSError, DoctorError):
        with protocol.connect(store.read(place).socket, timeout=5.0) as connection:
            connection.sendall(frame)
        return True
    return False


def wait(place: Path) -> State:
    """Wait until the session has ended; its final state, or ``lost``.

    Raises:
        DoctorError: where the state cannot be read.
    """
    with contextlib.suppress(OSError):
        end = _wait_by_socket(store.read(place).socket)
        if end is not None:
            return end
    with contextlib.suppress(OSError):
        lock.wait_released(place)
    return launch.current(place)


def _wait_by_socket(path: str) -> State | None:
    frames = protocol.Frames()
    with protocol.connect(path) as connection:
        connection.sendall(protocol.request(op="wait"))
        while data := connection.recv(1 << 16):
            for kind, payload in frames.feed(data):
                if kind == protocol.END:
                    return state.from_json(json.loads(payload))
    return None


def stop(place: Path, grace: float | None, by: str) -> State:
    """End a session and everything it started; its final state.

    Raises:
        CannotRun: where processes of it cannot be ended from here.
    """
    known = launch.current(place)
    if known.status == state.LOST:
        return _end_lost(place, known, known.grace if grace is None else grace)
    if not known.live:
        return known
    limit = known.grace if grace is None else grace
    frames, deadline = protocol.Frames(), time.monotonic() + limit + STOP_SLACK_SECONDS
    with contextlib.suppress(OSError), protocol.connect(known.socket, timeout=5.0) as connection:
        connection.sendall(protocol.request(op="stop", grace=grace, by=by))
        while (left := deadline - time.monotonic()) > 0 and select.select([connection], [], [], left)[0]:
            data = connection.recv(1 << 16)
            if not data:
                break
            for kind, payload in frames.feed(data):
                if kind == protocol.END:
                    return state.from_json(json.loads(payload))
    known = launch.current(place)
    if known.status == state.LOST:
        return _end_lost(place, known, limit)
    if known.live:
        raise CannotRun(known.name, "did not end: its supervisor does not answer here", _elsewhere(known))
    return known


def _elsewhere(known: State) -> str:
    owner = known.supervisor
    return f"it was started on {owner.hostname}" if owner and proc.elsewhere(owner) else ""


def _end_lost(place: Path, known: State, grace: float) -> State:
    """End what a supervisor that died left running."""
    deadline = time.monotonic() + grace
    number: int = signal.SIGTERM
    while left := proc.of_session(known.name, str(place), proc.all_processes()):
        proc.send(left, number)
        number = signal.SIGKILL if time.monotonic() >= deadline else 0
        if time.monotonic() > deadline + STOP_SLACK_SECONDS:
            raise CannotRun(known.name, f"processes cannot be ended: {', '.join(map(str, left))}")
        time.sleep(0.05)
    return known


def ended_status(known: State) -> int:
    """The exit status for a command that waited for this session."""
    status = known.exit_status
    return state.LOST_STATUS if status is None or known.status == state.LOST else status


def ended_lines(known: State) -> list[str]:
    """What a person is told at the end: how it ended, and the cause that explain found."""
    if known.status == state.LOST:
        return [
            f"{known.name}: lost: its supervisor died (container killed, machine restarted), the end is not known"
        ]
    lines = [verdict.summary(known.name, known.status, known.exit)]
    if known.postmortem:
        lines.append(f"cause: {known.postmortem}")
        lines += [f"fix: {known.remedy}"] if known.remedy else []
        lines.append(f"details: torch-doctor explain --session {known.name}")
    return lines

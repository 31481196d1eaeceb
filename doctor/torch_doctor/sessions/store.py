"""The state folder: one folder per session. Standard library only: the supervisor imports this.

    STATE/sessions/NAME/
        state.json       how it stands and how it ended (state.State)
        log              every byte that the command wrote, unchanged
        preflight.json   the report of ``check`` before the launch (--format json)
        postmortem.json  the report of ``explain`` after a failure (--format json)
        error.json       torchrun's account of the first worker that failed (TORCHELASTIC_ERROR_FILE)
        lock             held (flock) by the supervisor while it lives
        previous/N/      the same files of earlier runs of this name

``folder(name)`` and ``facts(name)`` are what other parts of the doctor need.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from torch_doctor.errors import DoctorError
from torch_doctor.facts.sessions import SessionFacts
from torch_doctor.sessions import places, state
from torch_doctor.sessions.state import State

LOG, STATE, PREFLIGHT, POSTMORTEM = "log", "state.json", "preflight.json", "postmortem.json"
LOCK, PREVIOUS = "lock", "previous"
#: bytes kept aside so that the end of a run can be recorded on a full disk
RESERVE, RESERVE_BYTES = ".reserve", 32 << 10


def session_folders() -> Iterator[Path]:
    """Folders of every session, in no order."""
    return (f for f in _folders() if (f / STATE).is_file())


def unstarted_folders() -> Iterator[Path]:
    """Folders of names that were taken and have no state yet."""
    return (f for f in _folders() if not (f / STATE).exists() and (f / LOCK).is_file())


def _folders() -> Iterator[Path]:
    for root in places.roots():
        with contextlib.suppress(OSError):
            yield from (f for f in (root / "sessions").iterdir() if f.name[0] != ".")


def folder(name: str) -> Path:
    """The folder of a session.

    Raises:
        DoctorError: where there is no session of that name.
    """
    for root in places.roots():
        found = root / "sessions" / name
        with contextlib.suppress(OSError, ValueError):
            if "/" not in name and name not in ("", ".", "..") and (found / STATE).is_file():
                return found
    raise DoctorError(name, "there is no session of this name", "torch-doctor ps")


def facts(name: str) -> SessionFacts:
    """What ``explain`` needs to know of a session.

    Raises:
        DoctorError: where there is no session of that name, or its state cannot be read.
    """
    place = folder(name)
    return facts_of(place, read(place))


def facts_of(place: Path, known: State) -> SessionFacts:
    """The facts of a session whose state is known."""
    last = known.attempts[-1] if known.attempts else None
    how = known.exit
    given = {f.name for f in dataclasses.fields(SessionFacts)}
    shared = {k: v for k, v in dataclasses.asdict(how).items() if k in given} if how else {}
    return SessionFacts(
        **{
            **shared,
            "name": known.name,
            "folder": str(place),
            "log": str(place / LOG),
            "log_offset": last.log_offset if last else 0,
            "command": known.command,
            "cwd": known.cwd,
            "status": known.status,
            "exit_status": known.exit_status,
            "attempts": len(known.attempts),
            "log_lost_bytes": sum(g.lost_bytes for g in known.log_gaps),
        }
    )


def read(place: Path) -> State:
    """The newest state that was written of a session; its status as the supervisor wrote it.

    Raises:
        DoctorError: where it cannot be read.
    """
    found = [s for s in (_read(p) for p in (place / STATE, _fallback(place))) if isinstance(s, State)]
    if found:
        return max(found, key=lambda s: s.revision)
    reason = _read(place / STATE)
    raise DoctorError(str(place / STATE), f"cannot be read: {reason}", f"torch-doctor rm {place.name}")


def _read(path: Path | None) -> State | str:
    if path is None:
        return "no such file"
    try:
        return state.from_json(json.loads(path.read_bytes()))
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def write(place: Path, known: State) -> str:
    """Write the state so that a reader sees the old one or the whole new one, wherever the writer is killed.

    On a full disk the reserve is given up for it; where nothing can be written here, the runtime folder
    takes it, and read() finds it there.

    Returns:
        "" or what the file system said, if the state had to go elsewhere.
    """
    data = json.dumps(state.to_json(known), indent=1).encode()
    try:
        _write_atomic(place / STATE, data)
        return ""
    except OSError as error:
        first = error
    if first.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            (place / RESERVE).unlink(missing_ok=True)
            _write_atomic(place / STATE, data)
            return ""
    with contextlib.suppress(OSError, DoctorError):
        _write_atomic(fallback_to(place), data)
    return first.strerror or str(first)


def reserve(place: Path) -> None:
    """Keep some room for the last state; nothing where there is none to keep."""
    with contextlib.suppress(OSError):
        descriptor = os.open(place / RESERVE, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read.

    Raises:
        OSError: where it cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as stream:
        stream.write(text)


def _write_atomic(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")  # one writer only: the holder of the lock
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(place: Path) -> None:
    # the rename is durable once its folder is; some network file systems refuse to sync a folder
    with contextlib.suppress(OSError):
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def fallback_to(place: Path) -> Path:
    """Where a state goes that its own folder does not take."""
    return places.runtime_folder(place.parent.parent) / f"{place.name}.state.json"


def _fallback(place: Path) -> Path | None:
    with contextlib.suppress(OSError, DoctorError):
        return fallback_to(place)
    return None

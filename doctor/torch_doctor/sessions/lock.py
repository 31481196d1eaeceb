"""One lock per session name, held by the supervisor while it lives. Standard library only.

flock, because the kernel gives it up when the holder dies, however it dies, and because it holds between
containers that share a volume, where PIDs mean nothing.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from torch_doctor.sessions import places, store

#: a reader holds the lock for microseconds; a running session holds it for good
READER_SECONDS = 0.5
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Taken(enum.Enum):
    """Whether a lock was taken: in the session's folder, beside the sockets, or not."""

    NOT = 0
    HERE = 1
    LOCALLY = 2


Flock = Callable[[int, int], None]


def acquire(place: Path, patience: float = READER_SECONDS, flock: Flock = fcntl.flock) -> int | None:
    """Take the lock of a session's folder, making the folder.

    Args:
        patience: seconds to wait for a reader that holds it for a moment.

    Returns:
        A descriptor that holds it, or None where another run holds it. The lock goes with the descriptor: a
        child that inherits it holds it, too.

    Raises:
        OSError: where the folder cannot be made or written.
    """
    deadline = time.monotonic() + patience
    while True:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # rm took the folder away in between
            descriptor = os.open(place / store.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            taken = _take(descriptor, place, fcntl.LOCK_EX, flock)
            if taken is Taken.LOCALLY or (taken is Taken.HERE and _same_file(descriptor, place / store.LOCK)):
                return descriptor
            os.close(descriptor)
            if taken is Taken.NOT and time.monotonic() >= deadline:
                return None
        time.sleep(0.005)


def is_held(place: Path, flock: Flock = fcntl.flock) -> bool | None:
    """True while some process holds the lock, here or in another container; None where nobody can tell."""
    try:
        descriptor = os.open(place / store.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return _take(descriptor, place, fcntl.LOCK_SH, flock) is Taken.NOT
    except OSError:
        return None
    finally:
        os.close(descriptor)


def wait_released(place: Path) -> None:
    """Block until no process holds the lock.

    Raises:
        OSError: where the file system has no locks, or the folder went away.
    """
    descriptor = os.open(place / store.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _take(descriptor: int, place: Path, kind: int, flock: Flock) -> Taken:
    try:
        flock(descriptor, kind | fcntl.LOCK_NB)
        return Taken.HERE
    except BlockingIOError:
        return Taken.NOT
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return _take_locally(descriptor, place, kind)


def _take_locally(descriptor: int, place: Path, kind: int) -> Taken:
    # a file system without locks (some network and FUSE mounts): a lock beside the sockets holds on this machine
    path = places.runtime_folder(place.parent.parent) / f"{place.name}.lock"
    local = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(local, kind | fcntl.LOCK_NB)
        if kind == fcntl.LOCK_EX:
            os.dup2(local, descriptor, inheritable=False)
        return Taken.LOCALLY
    except BlockingIOError:
        return Taken.NOT
    finally:
        os.close(local)


def _same_file(descriptor: int, path: Path) -> bool:
    held = os.fstat(descriptor)
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)

"""Where sessions are kept, and where sockets go. Standard library only: the supervisor imports this."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch_doctor.errors import CannotRun

STATE_VARIABLE = "TORCH_DOCTOR_STATE_DIR"
#: bytes of sockaddr_un.sun_path on Linux, with the closing NUL
SOCKET_PATH_BYTES = 108


def preferred_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The state folder that the user or the image asks for, whether it can be written or not."""
    if environment.get(STATE_VARIABLE):
        return Path(environment[STATE_VARIABLE]).absolute()
    if environment.get("XDG_STATE_HOME", "").startswith("/"):
        return Path(environment["XDG_STATE_HOME"]) / "torch-doctor"
    home = environment.get("HOME", "")
    # a uid without a home has HOME=/ or none: the root folder is no place for state
    return Path(home) / ".local/state/torch-doctor" if home not in ("", "/") else runtime_base(environment) / "state"


def roots(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Every folder that may hold sessions, the preferred one first. Reading looks in all of them."""
    first = preferred_root(environment)
    yield first
    for base in _bases(environment):
        candidate = base / f"torch-doctor-{os.getuid()}" / _digest(first) / "state"
        if candidate.is_dir():
            yield candidate


def writable_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The preferred state folder where it can be written, else one of this user under /tmp; made if need be.

    Raises:
        CannotRun: where nothing at all can be written.
    """
    first = preferred_root(environment)
    if _usable(first / "sessions"):
        return first
    second = runtime_folder(first, environment) / "state"
    if _usable(second / "sessions"):
        return second
    raise CannotRun(str(first), "cannot be written, and nor can /tmp", f"set {STATE_VARIABLE} to a writable folder")


def runtime_base(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder of mode 0700 that this user owns, for sockets: short, local, and the same from every shell.

    Raises:
        CannotRun: where neither /tmp, TMPDIR, /dev/shm nor XDG_RUNTIME_DIR can be written.
    """
    for base in _bases(environment):
        folder = base / f"torch-doctor-{os.getuid()}"
        if _own(folder):
            return folder
    raise CannotRun("/tmp", "no folder for sockets can be written", "docker run --tmpfs /tmp:exec ...")


def runtime_folder(root: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder under runtime_base() that belongs to the state folder ``root``."""
    folder = runtime_base(environment) / _digest(root)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _digest(root: Path) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:8]


def _bases(environment: Mapping[str, str]) -> list[Path]:
    # /tmp first: it is the same for every shell, while TMPDIR and XDG_RUNTIME_DIR differ between logins
    named = ["/tmp", environment.get("TMPDIR", ""), "/dev/shm", environment.get("XDG_RUNTIME_DIR", "")]
    return [Path(n) for n in dict.fromkeys(named) if n.startswith("/")]


def _own(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        # in a shared /tmp somebody else may have made it first, or put a link there
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return False
        if found.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)

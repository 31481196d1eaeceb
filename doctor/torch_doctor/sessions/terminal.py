"""The run's pseudo-terminal, and which TERM to give. Standard library only."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: what a run gets while no window is attached: wide enough for progress bars
DEFAULT_ROWS, DEFAULT_COLUMNS = 40, 120
#: tried in this order when TERM is unset or unknown here; all are in ncurses-base
FALLBACK_TERMS = ("xterm-256color", "xterm", "screen-256color", "screen", "linux", "vt100")
#: what the inside of a view understands
VIEW_TERMS: Mapping[str, Sequence[str]] = {
    "tmux": ("tmux-256color", "screen-256color", "xterm-256color"),
    "screen": ("screen-256color", "screen", "xterm-256color"),
}
_UNSUITABLE = frozenset({"", "dumb", "unknown", "network", "dialup"})
_OFLAG = 1


def open_pty(rows: int, columns: int) -> tuple[int, int]:
    """A new pseudo-terminal (master, slave) that leaves the output as it was written.

    ONLCR is off, so that the log holds the command's bytes and no added carriage returns; views add them.
    OPOST stays on: that is how a view sees that the command went into raw mode, and it is the faster path
    of the kernel's line discipline.
    """
    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[_OFLAG] = termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    set_size(master, rows, columns)
    os.set_blocking(master, False)
    return master, slave


def is_raw(descriptor: int) -> bool:
    """True where the command switched output processing off, as full-screen programs do."""
    try:
        return not termios.tcgetattr(descriptor)[_OFLAG] & termios.OPOST
    except termios.error:
        return False


def control(slave: int) -> None:
    """Make this terminal the controlling one of the calling session leader.

    Raises:
        OSError: where the caller leads no session, or has a terminal already.
    """
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def modes(slave: int) -> list[Any]:
    """The terminal's modes, for set_modes()."""
    return termios.tcgetattr(slave)


def set_modes(slave: int, attributes: list[Any]) -> None:
    """Give the terminal its modes back, whatever an earlier command made of them."""
    termios.tcsetattr(slave, termios.TCSANOW, attributes)


def set_size(descriptor: int, rows: int, columns: int) -> None:
    """Set the window's size; the foreground process group gets SIGWINCH."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def size_of(descriptor: int) -> tuple[int, int] | None:
    """Rows and columns of a terminal; None where it is none, or has no size."""
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return None
    return (rows, columns) if rows > 0 and columns > 0 else None


def usable_term(environment: Mapping[str, str]) -> str:
    """TERM where this machine knows it, else one that it knows and that comes close."""
    given = environment.get("TERM", "")
    if given not in _UNSUITABLE and has_terminfo(given, environment):
        return given
    order = FALLBACK_TERMS if "256" in given or given in _UNSUITABLE else (*FALLBACK_TERMS[1:], FALLBACK_TERMS[0])
    return first_known(order, environment) or "xterm"


def inner_term(backend: str, environment: Mapping[str, str]) -> str:
    """TERM for the command itself: what the view's window understands."""
    wanted = VIEW_TERMS.get(backend)
    if wanted is not None:
        return first_known(wanted, environment) or "screen"
    given = environment.get("TERM", "")
    return given if given and has_terminfo(given, environment) else "dumb"


def first_known(names: Iterable[str], environment: Mapping[str, str]) -> str:
    """The first terminal type that has a terminfo entry, or ""."""
    return next((n for n in names if has_terminfo(n, environment)), "")


def has_terminfo(name: str, environment: Mapping[str, str]) -> bool:
    """True where a compiled terminfo entry of that name can be found, looked for as terminfo(5) says."""
    if not name or "/" in name or name.startswith("."):
        return False
    return any(
        (f / s / name).is_file() for f in _terminfo_folders(environment) for s in (name[0], f"{ord(name[0]):x}")
    )


def _terminfo_folders(environment: Mapping[str, str]) -> list[Path]:
    named = [environment.get("TERMINFO", ""), environment.get("HOME", "") + "/.terminfo"]
    named += [d or "/usr/share/terminfo" for d in environment.get("TERMINFO_DIRS", "").split(":")]
    named += ["/etc/terminfo", "/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo"]
    return [Path(n) for n in named if n.startswith("/")]

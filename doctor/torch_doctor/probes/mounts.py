"""Reads the mount table: which mount a path is on, without touching the path itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from torch_doctor.facts.filesystem import NETWORK_KINDS

MOUNTINFO = Path("/proc/self/mountinfo")

#: what hangs when its server is gone: network file systems, anything in user space, automounts
_CAN_HANG = NETWORK_KINDS | {"autofs", "fuse", "fuseblk"}

#: as many as the kernel follows
MAX_LINKS = 40

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. ``root`` is the folder of the file system that is mounted at ``point``."""

    root: str
    point: str
    options: frozenset[str]
    kind: str
    source: str
    super_options: frozenset[str]


def read(path: Path = MOUNTINFO) -> tuple[Mount, ...]:
    """The mounts that this process sees, oldest first; empty where there is no /proc."""
    try:
        return parse(path.read_text(errors="surrogateescape"))
    except OSError:
        return ()


def parse(text: str) -> tuple[Mount, ...]:
    """Mounts from the text of mountinfo (https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html)."""
    return tuple(mount for line in text.splitlines() if (mount := _parse_line(line)))


def _parse_line(line: str) -> Mount | None:
    # the number of optional fields varies: a lone hyphen ends them
    left, separator, right = line.partition(" - ")
    first, last = left.split(" "), right.split(" ")
    if not separator or len(first) < 6 or len(last) < 2:
        return None
    super_options = frozenset(last[2].split(",")) if len(last) > 2 else frozenset[str]()
    return Mount(
        _plain(first[3]), _plain(first[4]), frozenset(first[5].split(",")), last[0], _plain(last[1]), super_options
    )


def _plain(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that ``path`` (absolute, links resolved) is on: the longest mount point, the latest of equals."""
    best: Mount | None = None
    for mount in mounts:
        inside = PurePosixPath(path).is_relative_to(mount.point)
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def can_hang(path: str, table: tuple[Mount, ...]) -> bool:
    """Whether looking at ``path`` can wait for a server. Links are followed, but none that such a mount holds."""
    current, pending, links = Path("/"), list(Path(path).parts[1:]), 0
    while pending:
        part = pending.pop(0)
        current = current.parent if part == ".." else current / part
        if _kind(str(current), table) in _CAN_HANG:
            return True
        target = _link(current)
        if target is not None and links < MAX_LINKS:
            links += 1
            current = current.parent
            pending = [part for part in target.parts if part != "/"] + pending
            current = Path("/") if target.is_absolute() else current
    return _kind(str(current), table) in _CAN_HANG


def _link(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:
        return None


def _kind(path: str, table: tuple[Mount, ...]) -> str:
    mount = of(path, table)
    return mount.kind if mount else ""

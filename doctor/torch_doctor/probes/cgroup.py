"""Finds the control groups that bind this process: version 1, version 2, hybrid; on a host and in a container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from torch_doctor.probes import mounts

#: version 1 writes "no limit" as the largest multiple of the page size
UNLIMITED_V1 = 1 << 60


@dataclass(frozen=True)
class Tree:
    """The groups of one controller, this process's own first, then its parents as far as they can be seen.

    ``version`` is 0 where the controller is not mounted; ``folders`` is then empty.
    """

    version: int
    folders: tuple[Path, ...] = ()


def tree(controller: str, root: Path = Path("/")) -> Tree:
    """The groups of ``controller`` ("memory", "cpu", "pids", "cpuset") that this process is in.

    Args:
        controller: name as in /proc/self/cgroup.
        root: where /proc and /sys stand; another one in tests.
    """
    membership = _membership(text(root / "proc/self/cgroup"))
    table = mounts.read(root / "proc/self/mountinfo")
    for mount in table:
        if mount.kind == "cgroup" and controller in mount.super_options:
            return Tree(1, _folders(mount, membership.get(controller, "/"), root))
    for mount in table:
        if mount.kind == "cgroup2":
            folders = _folders(mount, membership.get("", "/"), root)
            # on a hybrid host version 2 is mounted, too, without the controllers that version 1 has
            if controller in text(Path(root, mount.point.lstrip("/"), "cgroup.controllers")).split():
                return Tree(2, folders)
    return Tree(0)


def _membership(content: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in content.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _folders(mount: mounts.Mount, path: str, root: Path) -> tuple[Path, ...]:
    """From this process's group up to the mount point; a path that is not below the mount is the mount itself."""
    top = Path(root, mount.point.lstrip("/"))
    inside = PurePosixPath(path)
    # a container has its own group mounted as the root, while /proc/self/cgroup may show the host's path
    relative = inside.relative_to(mount.root) if inside.is_relative_to(mount.root) else PurePosixPath()
    if ".." in relative.parts:
        relative = PurePosixPath()
    parts = relative.parts[1:] if relative.is_absolute() else relative.parts
    chain = [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return tuple(folder for folder in chain if folder.is_dir())


def smallest(folders: Sequence[Path], name: str) -> tuple[int | None, Path | None]:
    """The lowest number that file ``name`` holds over the groups, and the group; None where none sets a limit."""
    best: tuple[int | None, Path | None] = (None, None)
    for folder in folders:
        value = number(folder / name)
        if value is not None and value < UNLIMITED_V1 and (best[0] is None or value < best[0]):
            best = (value, folder)
    return best


def number(path: Path) -> int | None:
    """The file's number; None for ``max``, ``-1``, or a file that is not there."""
    value = text(path).strip()
    return int(value) if value.isdigit() else None


def pairs(path: Path) -> dict[str, int]:
    """A file of ``key number`` lines (memory.stat, cpu.stat, memory.events)."""
    found: dict[str, int] = {}
    for line in text(path).splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[key] = int(value)
    return found


def text(path: Path) -> str:
    """The file's text, empty where it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""

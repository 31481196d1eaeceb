"""What the kernel counts about memory in this process's cgroup, v1 and v2. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
#: v1 writes its "no limit" as the largest multiple of the page size that fits (PAGE_COUNTER_MAX)
NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True)
class MemoryCounters:
    """Counters of a cgroup since it was made; None where the kernel does not tell. Sizes in bytes.

    Sources: memory.events, memory.max, memory.peak (v2); memory.oom_control, memory.failcnt,
    memory.limit_in_bytes, memory.max_usage_in_bytes (v1).
    """

    oom_kills: int | None = None
    limit_hits: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None


def memory(mount: Path = MOUNT, membership: str | None = None) -> MemoryCounters:
    """The counters now.

    Args:
        mount: where the cgroup file systems are mounted.
        membership: the text of /proc/self/cgroup; read where it is None.
    """
    text = _text(Path("/proc/self/cgroup")) if membership is None else membership
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return _first(_v1, mount / "memory", path)
        if number == "0" and not controllers and not (mount / "memory").is_dir():
            return _first(_v2, mount, path)
    return MemoryCounters()


def _first(reader: Callable[[Path], MemoryCounters], mount: Path, path: str) -> MemoryCounters:
    # without a cgroup namespace a container sees its own group mounted at the root, under the host's path
    for folder in (mount / path.lstrip("/"), mount):
        found = reader(folder)
        if found != MemoryCounters():
            return found
    return MemoryCounters()


def _v2(folder: Path) -> MemoryCounters:
    events = _pairs(folder / "memory.events")
    return MemoryCounters(
        events.get("oom_kill"), events.get("max"), _number(folder / "memory.max"), _number(folder / "memory.peak")
    )


def _v1(folder: Path) -> MemoryCounters:
    limit = _number(folder / "memory.limit_in_bytes")
    return MemoryCounters(
        _pairs(folder / "memory.oom_control").get("oom_kill"),
        _number(folder / "memory.failcnt"),
        limit if limit is not None and limit < NO_LIMIT_BYTES else None,
        _number(folder / "memory.max_usage_in_bytes"),
    )


def _pairs(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()  # v2 writes "max" for no limit
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def since(before: int | None, after: int | None) -> int | None:
    """How much a counter grew; None where it is not told."""
    return None if before is None or after is None else max(0, after - before)

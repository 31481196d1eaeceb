"""Looks at /proc/meminfo, the memory control group and the limits of this process."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from torch_doctor.facts.memory import SPAWNED_WORKER_BYTES, WORKER_BYTES, MemoryFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import cgroup, container

# file names by cgroup version: limit, usage, key of inactive page cache in memory.stat
_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def probe(request: Request, root: Path = Path("/")) -> MemoryFacts | ProbeFailure:
    """Memory of the machine and of this process's group, and what the requirements ask of it."""
    info = meminfo(cgroup.text(root / "proc/meminfo"))
    if "MemTotal" not in info:
        return ProbeFailure("/proc/meminfo cannot be read")
    needs = request.requirements
    return MemoryFacts(
        total_bytes=info["MemTotal"],
        available_bytes=info.get("MemAvailable", info.get("MemFree", 0)),
        swap_total_bytes=info.get("SwapTotal", 0),
        swap_free_bytes=info.get("SwapFree", 0),
        **_group(root),
        overcommit_mode=cgroup.number(root / "proc/sys/vm/overcommit_memory"),
        address_space_bytes=_soft_limit(resource.RLIMIT_AS),
        needed_bytes=needs.memory_bytes,
        processes=needs.local_processes,
        workers=needs.workers,
        worker_bytes=_worker_bytes(needs),
        shm_bytes=needs.local_processes * sum(loader.shm_bytes or 0 for loader in needs.loaders),
        manager=container.manager(root=root),
    )


def meminfo(content: str) -> dict[str, int]:
    """/proc/meminfo in bytes (it counts in kB of 1024)."""
    found: dict[str, int] = {}
    for line in content.splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdigit() and words[1] == "kB":
            found[key] = int(words[0]) * 1024
    return found


def _group(root: Path) -> dict[str, Any]:
    groups = cgroup.tree("memory", root)
    if not groups.folders:
        return {}
    limit_name, usage_name, cache_key = _NAMES[groups.version]
    limit, folder = cgroup.smallest(groups.folders, limit_name)
    # kills are counted where the limit is; without one, in this process's own group
    counted = folder or groups.folders[0]
    return {
        "limit_bytes": limit,
        "limit_source": str(folder / limit_name) if folder else "",
        "usage_bytes": cgroup.number(counted / usage_name),
        "reclaimable_bytes": cgroup.pairs(counted / "memory.stat").get(cache_key, 0),
        "oom_kills": _kills(groups.version, (groups.folders[0], counted)),
        "limit_hits": _hits(groups.version, counted),
    }


def _kills(version: int, folders: tuple[Path, ...]) -> int:
    # version 2 counts descendants in, version 1 does not: the larger of the two groups is right for both
    name = "memory.events" if version == 2 else "memory.oom_control"
    return max(cgroup.pairs(folder / name).get("oom_kill", 0) for folder in folders)


def _hits(version: int, folder: Path) -> int:
    if version == 2:
        return cgroup.pairs(folder / "memory.events").get("max", 0)
    return cgroup.number(folder / "memory.failcnt") or 0


def _soft_limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _worker_bytes(needs: Requirements) -> int:
    methods = {needs.start_method, *(loader.start_method for loader in needs.loaders)}
    return SPAWNED_WORKER_BYTES if methods & {"spawn", "forkserver"} else WORKER_BYTES


PROBES = {MemoryFacts: probe}

"""Looks at affinity, topology, the CPU control group and the thread settings of the environment."""

from __future__ import annotations

import os
from pathlib import Path

from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.facts.request import Request
from torch_doctor.probes import cgroup, container

SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def probe(request: Request, root: Path = Path("/")) -> CpuFacts:
    """CPUs that this process may use, and the threads that torch would start on them."""
    cpus = os.sched_getaffinity(0)
    quota, source, counts = _quota(root)
    needs = request.requirements
    return CpuFacts(
        online=os.cpu_count() or len(cpus),
        affinity=len(cpus),
        physical_cores=physical_cores(cpus, root),
        quota=quota,
        quota_source=source,
        periods=counts.get("nr_periods", 0),
        throttled_periods=counts.get("nr_throttled", 0),
        threads={name: os.environ[name] for name in SETTINGS if name in os.environ},
        workers=needs.workers,
        processes=needs.local_processes,
        compiles=needs.compiles,
        compile_threads=os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", ""),
        needed=needs.cpus,
        manager=container.manager(root=root),
    )


def physical_cores(cpus: set[int], root: Path = Path("/")) -> int:
    """Cores behind logical ``cpus``: hyper-threads that share a core count once."""
    folder = root / "sys/devices/system/cpu"
    siblings = {cgroup.text(folder / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    return max(1, len(siblings))


def _quota(root: Path) -> tuple[float | None, str, dict[str, int]]:
    groups = cgroup.tree("cpu", root)
    best: tuple[float | None, Path | None, str] = (None, None, "")
    for folder in groups.folders:
        name, value = _quota_of(folder, groups.version)
        if value is not None and (best[0] is None or value < best[0]):
            best = (value, folder, name)
    quota, limited, name = best
    if limited is None:
        return None, "", {}
    return quota, str(limited / name), cgroup.pairs(limited / "cpu.stat")


def _quota_of(folder: Path, version: int) -> tuple[str, float | None]:
    if version == 2:
        quota, _, period = cgroup.text(folder / "cpu.max").partition(" ")
        return "cpu.max", _ratio(quota, period)
    quota = cgroup.text(folder / "cpu.cfs_quota_us")
    return "cpu.cfs_quota_us", _ratio(quota, cgroup.text(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    # "max" and "-1" are no quota
    if not quota.strip().isdecimal() or not period.strip().isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


PROBES = {CpuFacts: probe}

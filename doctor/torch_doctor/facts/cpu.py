"""How many CPUs this process may use, and how many threads it would start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: decide_compile_threads() in torch/_inductor/config.py, torch 2.0 to 2.15
MAX_COMPILE_WORKERS = 32


@dataclass(frozen=True)
class CpuFacts:
    """CPUs and threads.

    Args:
        online: logical CPUs that the machine has online.
        affinity: logical CPUs that this process may run on (``nproc``); a cpuset narrows it.
        physical_cores: cores behind those CPUs; torch starts one intra-op thread for each.
        quota: CPUs' worth of time that the control groups allow, ``1.5``; None without a quota.
        quota_source: file that holds it.
        periods: scheduling periods counted since the group was made.
        throttled_periods: those in which it was stopped at the quota.
        threads: thread settings of the environment, as written: OMP_NUM_THREADS, MKL_NUM_THREADS, ...
        workers: DataLoader workers of the script.
        processes: ranks of the run on this machine.
        compiles: whether the script calls torch.compile; None where that cannot be known.
        compile_threads: TORCHINDUCTOR_COMPILE_THREADS as written; empty where it is not set.
        needed: CPUs asked for with ``--need cpus=``.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    online: int
    affinity: int
    physical_cores: int
    quota: float | None = None
    quota_source: str = ""
    periods: int = 0
    throttled_periods: int = 0
    threads: Mapping[str, str] = field(default_factory=dict)
    workers: int = 0
    processes: int = 1
    compiles: bool | None = None
    compile_threads: str = ""
    needed: int | None = None
    manager: str = ""

    @property
    def usable(self) -> float:
        """CPUs' worth of time that this process can get."""
        return float(self.affinity) if self.quota is None else min(self.quota, float(self.affinity))

    @property
    def thread_limit(self) -> int:
        """Threads that those CPUs can run at once, at least 1."""
        return max(1, math.ceil(self.usable))

    @property
    def stated_threads(self) -> int | None:
        """What the environment sets: OMP_NUM_THREADS, else MKL_NUM_THREADS; None where neither is a number."""
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            # OMP_NUM_THREADS may list one number per nesting level: the first is the outermost
            value = self.threads.get(name, "").split(",")[0].strip()
            if value.isdecimal() and int(value) > 0:
                return int(value)
        return None

    @property
    def compile_workers(self) -> int:
        """Processes that torch.compile starts by default: one for each CPU that it sees, 32 at most."""
        return min(MAX_COMPILE_WORKERS, self.affinity)

    @property
    def torch_threads(self) -> int:
        """Intra-op threads that torch starts in one process."""
        return self.stated_threads or self.physical_cores

"""How much memory this process may use, and what it has been denied."""

from __future__ import annotations

from dataclasses import dataclass

#: a process that has imported torch: 0.2 to 0.4 GiB for a CPU build, 0.5 to 1 GiB with CUDA started
TORCH_PROCESS_BYTES = 1 << 30
#: what one DataLoader worker adds of its own: the pages that reference counts make private
WORKER_BYTES = 128 << 20
#: with spawn or forkserver a worker imports torch again and shares no page
SPAWNED_WORKER_BYTES = 384 << 20


@dataclass(frozen=True)
class MemoryFacts:
    """Host memory and the control group's limit, all in bytes.

    Args:
        total_bytes: MemTotal.
        available_bytes: MemAvailable: free, or freed at once when asked for.
        swap_total_bytes: 0 where there is no swap.
        limit_bytes: the lowest limit from this process's group up; None where nothing limits it.
        limit_source: file that holds that limit.
        usage_bytes: what the limited group uses, page cache included.
        reclaimable_bytes: inactive page cache of that group, dropped before anything is killed.
        oom_kills: processes of this group that the kernel has killed for memory.
        limit_hits: times that usage ran into the limit; page cache counts, so this alone is no fault.
        overcommit_mode: vm.overcommit_memory; 2 refuses to promise more than there is.
        address_space_bytes: RLIMIT_AS; None without a limit.
        needed_bytes: what was asked for with ``--need memory=``; None where nothing was.
        processes: ranks of the run on this machine.
        workers: DataLoader workers of each.
        worker_bytes: what one of those workers takes.
        shm_bytes: batches in shared memory, of all ranks, which count against the group's limit.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int = 0
    swap_free_bytes: int = 0
    limit_bytes: int | None = None
    limit_source: str = ""
    usage_bytes: int | None = None
    reclaimable_bytes: int = 0
    oom_kills: int = 0
    limit_hits: int = 0
    overcommit_mode: int | None = None
    address_space_bytes: int | None = None
    needed_bytes: int | None = None
    processes: int = 1
    workers: int = 0
    worker_bytes: int = WORKER_BYTES
    shm_bytes: int = 0
    manager: str = ""

    @property
    def ceiling_bytes(self) -> int:
        """The most this process can ever have: the limit, or the machine's memory."""
        return self.total_bytes if self.limit_bytes is None else min(self.limit_bytes, self.total_bytes)

    @property
    def is_limited(self) -> bool:
        """True where a group's limit, and not the machine, is the ceiling."""
        return self.limit_bytes is not None and self.limit_bytes < self.total_bytes

    @property
    def free_bytes(self) -> int:
        """What can be had now, on the machine and within the limit."""
        if self.limit_bytes is None or self.usage_bytes is None:
            return self.available_bytes
        within = self.limit_bytes - self.usage_bytes + self.reclaimable_bytes
        return max(0, min(within, self.available_bytes))

    @property
    def forecast_bytes(self) -> int:
        """torch, the loader's workers and their batches: the least that this run takes."""
        return self.processes * (TORCH_PROCESS_BYTES + self.workers * self.worker_bytes) + self.shm_bytes

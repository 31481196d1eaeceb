"""Host memory: the limit against the run's need, kills already counted, what is left."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.memory import TORCH_PROCESS_BYTES, MemoryFacts
from torch_doctor.model import Finding, Remediation, Severity, counted, mib
from torch_doctor.registry import check

#: below this a data loader's next batch is what brings the kernel's killer
VERY_LOW_BYTES = 512 << 20

GIB = 1 << 30


def raise_limit(memory: MemoryFacts, needed_bytes: int) -> Remediation:
    """The command that gives ``needed_bytes``, rounded up to whole GiB, in the words of what set the limit."""
    gib = max(1, -(-needed_bytes // GIB))
    if not memory.is_limited:
        return Remediation(
            f"Use a machine with at least {gib} GiB of memory, or ask for less: fewer workers, a smaller batch"
        )
    if memory.manager == "kubernetes":
        return Remediation(
            f"Raise the container's limit in the pod's manifest: resources.limits.memory: {gib}Gi",
            (f"kubectl set resources deployment NAME --limits=memory={gib}Gi --requests=memory={gib}Gi",),
        )
    if memory.manager == "slurm":
        return Remediation("Ask for more memory when the job is submitted", (f"sbatch --mem={gib}G ...",))
    if memory.manager == "docker":
        return Remediation(
            f"Recreate the container with a higher limit, or raise it in place; in compose: mem_limit: {gib}g",
            (f"docker run --memory={gib}g ...", f"docker update --memory={gib}g --memory-swap={gib}g CONTAINER"),
        )
    return Remediation(
        "Run in a group with a higher limit", (f"systemd-run --scope -p MemoryMax={gib}G python train.py",)
    )


def _ceiling(memory: MemoryFacts) -> str:
    kind = "the memory limit is" if memory.is_limited else "this machine has"
    return f"{kind} {mib(memory.ceiling_bytes)}" + ("" if memory.is_limited else " of memory")


@check("MEM001", "memory-limit-too-small", tags={"container"})
def memory_limit_too_small(memory: MemoryFacts) -> Iterator[Finding]:
    """The memory limit, or the machine's memory, is below what the run needs.

    What it checks:
        The lowest memory limit of the control groups that this process is in (version 1 and 2, up the tree) and
        the machine's memory, against --need memory=SIZE. Without that: 1 GiB, about what one process needs that
        has imported torch and started CUDA; with a script, also its loader's workers and their batches in
        /dev/shm, which count against the limit.
    Why it matters:
        At the limit the kernel kills the process or one of its workers with SIGKILL: no traceback, status 137.
    Example:
        docker run --memory=512m IMAGE python train.py
    Fix:
        docker run --memory=8g ..., mem_limit: 8g in compose, resources.limits.memory: 8Gi in Kubernetes, or
        sbatch --mem=8G; or fewer workers.
    References:
        https://docs.docker.com/engine/containers/resource_constraints/#memory
        https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    ceiling = memory.ceiling_bytes
    evidence = {
        "limit_bytes": memory.limit_bytes,
        "limit_source": memory.limit_source,
        "total_bytes": memory.total_bytes,
        "processes": memory.processes,
        "workers": memory.workers,
    }
    floor = memory.needed_bytes or TORCH_PROCESS_BYTES
    if ceiling < floor:
        what = "this run needs" if memory.needed_bytes else "one process with torch and CUDA needs about"
        yield Finding(
            Severity.ERROR,
            f"{_ceiling(memory)}; {what} {mib(floor)}",
            raise_limit(memory, max(floor, memory.forecast_bytes)),
            evidence={**evidence, "needed_bytes": floor},
        )
    elif not memory.needed_bytes and ceiling < memory.forecast_bytes:
        parts = f"torch and {counted(memory.workers, 'DataLoader worker')} take about"
        if memory.processes > 1:
            parts = f"{memory.processes} ranks with {counted(memory.workers, 'DataLoader worker')} each take about"
        yield Finding(
            Severity.WARNING,
            f"{_ceiling(memory)}; {parts} {mib(memory.forecast_bytes)}",
            raise_limit(memory, memory.forecast_bytes),
            evidence={**evidence, "needed_bytes": memory.forecast_bytes},
        )


@check("MEM002", "oom-kills-counted", tags={"container"})
def oom_kills_counted(memory: MemoryFacts) -> Iterator[Finding]:
    """The kernel has already killed processes of this container, or job, for memory.

    What it checks:
        oom_kill in memory.events (control groups version 2) or memory.oom_control (version 1).
    Why it matters:
        A killed DataLoader worker shows as "DataLoader worker (pid N) is killed by signal: Killed", a killed
        main process as status 137. The counter proves that it was memory, and not somebody's kill -9.
    Example:
        docker run --memory=2g IMAGE python train.py    # with 16 workers
    Fix:
        A higher limit, fewer workers, or data that workers share (NumPy, Arrow or torch tensors, not lists).
    References:
        https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    if not memory.oom_kills:
        return
    needed = max(memory.needed_bytes or 0, memory.forecast_bytes, 2 * (memory.limit_bytes or 0))
    where = f" at the limit of {mib(memory.ceiling_bytes)}" if memory.is_limited else ""
    yield Finding(
        Severity.WARNING,
        f"the kernel has killed {_processes(memory.oom_kills)} here for memory{where}",
        raise_limit(memory, needed),
        evidence={
            "oom_kills": memory.oom_kills,
            "limit_hits": memory.limit_hits,
            "limit_bytes": memory.limit_bytes,
            "limit_source": memory.limit_source,
        },
    )


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


@check("MEM003", "memory-nearly-used-up")
def memory_nearly_used_up(memory: MemoryFacts) -> Iterator[Finding]:
    """There is enough memory, but others have most of it now.

    What it checks:
        MemAvailable of the machine, and what is left within the control group's limit, page cache that can be
        dropped counted as free; against --need memory=SIZE, or 512 MiB.
    Why it matters:
        The run is killed, or swaps, as soon as it allocates what the limit seems to allow.
    Example:
        A forgotten run or a notebook kernel that still holds its data set.
    Fix:
        End what holds the memory, or wait for it.
    References:
        https://man7.org/linux/man-pages/man5/proc_meminfo.5.html
    """
    needed = memory.needed_bytes or VERY_LOW_BYTES
    # where the ceiling itself is too low, MEM001 says so
    if memory.free_bytes >= needed or memory.ceiling_bytes < max(needed, TORCH_PROCESS_BYTES):
        return
    yield Finding(
        Severity.WARNING,
        f"{mib(memory.free_bytes)} of {mib(memory.ceiling_bytes)} of memory is free; this run needs {mib(needed)}",
        Remediation("See what holds the memory, and end what is not needed", ("ps aux --sort=-rss | head",)),
        evidence={
            "free_bytes": memory.free_bytes,
            "available_bytes": memory.available_bytes,
            "usage_bytes": memory.usage_bytes,
            "needed_bytes": needed,
        },
    )


@check("MEM004", "memory-swapped-out")
def memory_swapped_out(memory: MemoryFacts) -> Iterator[Finding]:
    """The machine swaps: memory that is in use has gone to disk.

    What it checks:
        Swap in use above 1 GiB while less than a tenth of the machine's memory is available.
    Why it matters:
        A training step waits for the disk; loaders and all-reduces time out, and nothing says why.
    Example:
        Two runs on one machine, each with a data set in memory.
    Fix:
        End what holds the memory; give the run less to hold.
    References:
        https://man7.org/linux/man-pages/man5/proc_meminfo.5.html
    """
    used = memory.swap_total_bytes - memory.swap_free_bytes
    if used < GIB or memory.available_bytes * 10 >= memory.total_bytes:
        return
    yield Finding(
        Severity.WARNING,
        f"{mib(used)} is swapped out and {mib(memory.available_bytes)} of {mib(memory.total_bytes)} is available",
        Remediation("See what holds the memory, and end what is not needed", ("ps aux --sort=-rss | head",)),
        evidence={"swap_used_bytes": used, "available_bytes": memory.available_bytes},
    )


@check("MEM005", "address-space-limited")
def address_space_limited(memory: MemoryFacts) -> Iterator[Finding]:
    """Reservations of address space are limited, which CUDA and large memory maps cannot live with.

    What it checks:
        RLIMIT_AS (ulimit -v), and vm.overcommit_memory = 2.
    Why it matters:
        CUDA reserves address space for all GPU and host memory without using it; a fork of a large process
        reserves it twice. Both fail with "Cannot allocate memory" or error 2 while most memory is free.
    Example:
        ulimit -v 16000000; python train.py
    Fix:
        ulimit -v unlimited, or sysctl vm.overcommit_memory=0 on the host. Limit memory with a control group.
    References:
        https://docs.kernel.org/mm/overcommit-accounting.html
    """
    if memory.address_space_bytes is not None:
        yield Finding(
            Severity.WARNING,
            f"the address space of this process is limited to {mib(memory.address_space_bytes)} (ulimit -v)",
            Remediation("Lift the limit in the shell that starts the run", ("ulimit -v unlimited",)),
            evidence={"address_space_bytes": memory.address_space_bytes},
        )
    if memory.overcommit_mode == 2:
        yield Finding(
            Severity.WARNING,
            "the kernel promises no more memory than there is (vm.overcommit_memory is 2)",
            Remediation("On the host, as root", ("sysctl -w vm.overcommit_memory=0",)),
            evidence={"overcommit_mode": 2},
        )

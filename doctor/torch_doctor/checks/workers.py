"""DataLoader workers: do they hand tensors over, and do the limits leave room for them?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.facts.requirements import DEFAULT_PREFETCH, Requirements
from torch_doctor.facts.shm import ShmFacts
from torch_doctor.facts.workers import (
    FILES_CAUSE,
    PROCESSES_CAUSE,
    SHM_CAUSE,
    TEMP_CAUSE,
    LimitFacts,
    WorkerFacts,
)
from torch_doctor.model import Finding, Remediation, Severity, counted
from torch_doctor.registry import check

#: what a run without a script is judged by
USUAL_WORKERS = 4
#: files that a process with torch, a logger and a data set has open before a batch is in flight
BASE_FILES = 128
#: tensors in one batch: inputs, labels, and what a mask or a length adds
TENSORS_PER_BATCH = 4
#: files that the parent keeps per worker: two ends of queues, a sentinel, events
FILES_PER_WORKER = 8
#: Linux's own default: https://docs.kernel.org/filesystems/proc.html, fs/file.c (INR_OPEN_CUR)
USUAL_FILES = 1024
#: threads of one worker: its main thread, the queue's feeder, one of a library
TASKS_PER_WORKER = 3
#: threads of the trainer besides torch's own: pin_memory, autograd, the queue's feeders, a logger, a shell
BASE_TASKS = 24
#: below this the next thing that starts threads (a compile, a second loader) fails
USUAL_TASKS = 256


@check("WRK001", "workers-fail", tags={"dataloader"})
def workers_fail(workers: WorkerFacts, limits: LimitFacts, shm: ShmFacts, needs: Requirements) -> Iterator[Finding]:
    """A DataLoader with one worker does not hand tensors over.

    What it checks:
        A real DataLoader of a few rows in a child process, with a time limit, its tensors compared with what was
        put in: under this Python's default start method and the script's own; with a script, --deep or
        --select WRK under fork, forkserver and spawn.
    Why it matters:
        What fails here fails in every training run with num_workers > 0, with any data.
    Example:
        python -c "import torch; list(torch.utils.data.DataLoader(range(8), num_workers=1))"
    Fix:
        By the exception: another start method, or the limit that it names.
    References:
        https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
        https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
    """
    working = [name for name, result in workers.methods.items() if result.ok]
    failed: dict[str, list[str]] = {}
    for method, result in workers.methods.items():
        if not result.ok:
            failed.setdefault(result.error, []).append(method)
    for error, methods in failed.items():
        result = workers.methods[methods[0]]
        asked = bool(set(methods) & (workers.wanted or {workers.default}))
        level, remedy = (Severity.ERROR if asked else Severity.WARNING), _remedy(result.cause, working)
        if elsewhere := _named_by(result.cause, limits, shm, needs):
            # the check of the limit itself is the finding; this is what comes of it
            level, remedy = Severity.NOTE, Remediation(f"Mend the cause first: {elsewhere}")
        evidence = {
            "start_methods": methods,
            "error": error,
            "cause": result.cause,
            "seconds": result.seconds,
            "traceback_tail": list(result.traceback_tail),
            "working_start_methods": working,
        }
        yield Finding(level, f"DataLoader workers fail under {', '.join(methods)}: {error}", remedy, evidence)


def _named_by(cause: str, limits: LimitFacts, shm: ShmFacts, needs: Requirements) -> str:
    """The check that names the fault that a failure came of; empty where none does."""
    if cause == TEMP_CAUSE:
        return "a temporary folder that can be written (FS)"
    if cause == FILES_CAUSE and _files_short(limits, needs):
        return "WRK002"
    if cause == PROCESSES_CAUSE and _task_room(limits) is not None:
        return "WRK004"
    if cause == SHM_CAUSE and shm.error:
        return "SHM004"
    return "SHM001" if cause == SHM_CAUSE and shm.size_bytes < shm.needed_bytes else ""


def _remedy(cause: str, working: list[str]) -> Remediation:
    if cause == FILES_CAUSE:
        return Remediation("Raise the limit on open files", ("ulimit -n $(ulimit -Hn)",))
    if cause == SHM_CAUSE:
        return Remediation("See what is wrong with /dev/shm", ("torch-doctor check --select SHM", "df -h /dev/shm"))
    if working:
        text = f"Use {working[0]}, which works here, until the cause is found"
        return Remediation(text, (f"DataLoader(..., multiprocessing_context={working[0]!r})",))
    text = "Train with num_workers=0 until the cause is found; the traceback is in the JSON report"
    return Remediation(text, ("torch-doctor check --select WRK --format json",))


@check("WRK002", "open-files-limit-too-low", tags={"dataloader", "container"})
def open_files_limit_too_low(limits: LimitFacts, needs: Requirements) -> Iterator[Finding]:
    """The limit on open files leaves no room for the tensors in flight.

    What it checks:
        RLIMIT_NOFILE against the files that this run's loaders hold: with the file_descriptor sharing strategy,
        which is the default on Linux, one for each tensor in flight, and a few per worker.
    Why it matters:
        "Too many open files" or "received 0 items of ancdata", after minutes or days, when the loader runs ahead
        or the script keeps batches in a list.
    Example:
        docker run --ulimit nofile=64 IMAGE python train.py
    Fix:
        docker run --ulimit nofile=16384:16384 ..., ulimits in compose, LimitNOFILE of the container runtime on a
        Kubernetes node; or torch.multiprocessing.set_sharing_strategy("file_system").
    References:
        https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor
    """
    soft, needed = limits.files_soft, files_needed(needs)
    if soft is None or (soft >= needed and soft >= USUAL_FILES):
        return
    short = _files_short(limits, needs)
    yield Finding(
        Severity.ERROR if short else Severity.WARNING,
        f"{soft} files may be open at once; this run may hold {needed}"
        if short
        else f"{soft} files may be open at once, below the usual {USUAL_FILES}",
        _raise_files(limits, max(needed, USUAL_FILES)),
        {"soft_limit": soft, "hard_limit": limits.files_hard, "needed": needed},
    )


def files_needed(needs: Requirements) -> int:
    """Files that the trainer may hold at once: each tensor of each batch in flight is one."""
    loaders = [(n.workers or 0, n.prefetch_factor or DEFAULT_PREFETCH) for n in needs.loaders]
    if not needs.workers_known and not any(workers for workers, _ in loaders):
        loaders = [(USUAL_WORKERS, DEFAULT_PREFETCH)]
    elif needs.stated_workers is not None and not loaders:
        loaders = [(needs.stated_workers, DEFAULT_PREFETCH)]
    return BASE_FILES + sum(w * (FILES_PER_WORKER + p * TENSORS_PER_BATCH) for w, p in loaders)


def _files_short(limits: LimitFacts, needs: Requirements) -> bool:
    return limits.files_soft is not None and limits.files_soft < files_needed(needs)


def _raise_files(limits: LimitFacts, wanted: int) -> Remediation:
    strategy = 'or share by name: torch.multiprocessing.set_sharing_strategy("file_system")'
    if limits.files_hard is None or limits.files_hard >= wanted:
        return Remediation(f"Raise it in the shell that starts the run, {strategy}", ("ulimit -n $(ulimit -Hn)",))
    if limits.manager == "docker":
        # no more than is needed: a daemon that runs in a container may have a hard limit of its own
        enough = 16384 if wanted <= 16384 else 65536
        text = f"Recreate the container with more (compose: ulimits: nofile: {enough}), {strategy}"
        return Remediation(text, (f"docker run --ulimit nofile={enough}:{enough} ...",))
    if limits.manager == "kubernetes":
        return Remediation(f"Raise LimitNOFILE of the container runtime on the node, {strategy}")
    line = "* hard nofile 65536"
    text = f"Raise the hard limit and log in again, {strategy}"
    return Remediation(text, (f"echo '{line}' | sudo tee /etc/security/limits.d/torch.conf", "ulimit -n 65536"))


@check("WRK003", "more-workers-than-cpus", tags={"dataloader", "container"})
def more_workers_than_cpus(cpu: CpuFacts, needs: Requirements) -> Iterator[Finding]:
    """The script starts more DataLoader workers than this process has CPUs.

    What it checks:
        num_workers of each loader, on each process of this machine, against the CPU quota and affinity.
    Why it matters:
        Workers that wait for each other's CPU take memory and shared memory and load nothing faster; under a
        quota they are all stopped together, and the GPU waits.
    Example:
        docker run --cpus=2 IMAGE python train.py      # num_workers=8
    Fix:
        num_workers of about the number of CPUs per process, or docker run --cpus=8 ...
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
    """
    wanted = needs.workers * needs.local_processes
    if wanted <= max(1, math.ceil(cpu.usable)):
        return
    usable = f"{cpu.usable:.1f}".removesuffix(".0")
    fitting = max(1, int(cpu.usable) // needs.local_processes)
    processes = f" on each of {needs.local_processes} processes" if needs.local_processes > 1 else ""
    more = {
        "docker": (f"docker run --cpus={wanted} ...",) if cpu.quota is not None else (),
        "kubernetes": (f"kubectl set resources deployment NAME --limits=cpu={wanted}",),
        "slurm": (f"sbatch --cpus-per-task={wanted} ...",),
    }
    yield Finding(
        Severity.WARNING,
        f"{counted(needs.workers, 'worker')}{processes}; {usable} CPUs for this process",
        Remediation(f"Set num_workers={fitting}, or give it more CPUs", more.get(cpu.manager, ())),
        {
            "workers": needs.workers,
            "local_processes": needs.local_processes,
            "usable_cpus": cpu.usable,
            "quota_cpus": cpu.quota,
        },
    )


@check("WRK004", "process-limit-too-low", tags={"dataloader", "container"})
def process_limit_too_low(limits: LimitFacts, needs: Requirements) -> Iterator[Finding]:
    """The limit on processes leaves no room for the workers and torch's threads.

    What it checks:
        What the control group's pids limit and RLIMIT_NPROC still allow, against torch's threads and those of
        this run's workers. Both count threads.
    Why it matters:
        "can't start new thread", "Resource temporarily unavailable" or an abort within OpenMP, at the first batch
        or in the middle of a compile.
    Example:
        docker run --pids-limit 64 IMAGE python train.py
    Fix:
        docker run --pids-limit 4096 ..., pids_limit: 4096 in compose, podPidsLimit of the kubelet.
    References:
        https://docs.kernel.org/admin-guide/cgroup-v2.html#pid
    """
    room = _task_room(limits)
    if room is None:
        return
    left, limit, what, group = room
    needed = tasks_needed(limits, needs)
    if left >= needed and left >= USUAL_TASKS:
        return
    short = left < needed
    yield Finding(
        Severity.ERROR if short else Severity.WARNING,
        f"{what} of {limit} leaves room for {left} threads; this run starts about {needed}"
        if short
        else f"{what} of {limit} leaves room for {left} threads: torch starts {limits.cpu_threads} per process, "
        "and a compile or another loader more",
        _raise_tasks(limits, group),
        {"limit": limit, "left": left, "needed": needed, "source": limits.pids_source if group else "RLIMIT_NPROC"},
    )


def tasks_needed(limits: LimitFacts, needs: Requirements) -> int:
    """Threads of the trainer and its workers, on each process of this machine."""
    workers = [n.workers if n.workers is not None else USUAL_WORKERS for n in needs.loaders]
    total = sum(workers) if workers else (USUAL_WORKERS if needs.stated_workers is None else needs.stated_workers)
    each = BASE_TASKS + limits.cpu_threads + total * TASKS_PER_WORKER
    return each * needs.local_processes


def _task_room(limits: LimitFacts) -> tuple[int, int, str, bool] | None:
    """What is left, the limit, its name, and whether it is the group's; the tighter of the two."""
    found: list[tuple[int, int, str, bool]] = []
    if limits.pids_limit is not None:
        left = max(0, limits.pids_limit - (limits.pids_current or 0))
        found.append((left, limits.pids_limit, "the pids limit", True))
    if limits.processes_soft is not None and not limits.is_root:  # root is not bound by it
        left = max(0, limits.processes_soft - (limits.user_threads or 0))
        found.append((left, limits.processes_soft, "the process limit (ulimit -u)", False))
    return min(found, default=None)


def _raise_tasks(limits: LimitFacts, group: bool) -> Remediation:
    if not group:
        return Remediation("Raise it in the shell that starts the run", ("ulimit -u $(ulimit -Hu)",))
    if limits.manager == "docker":
        text = "Recreate the container with more (compose: pids_limit: 4096)"
        return Remediation(text, ("docker run --pids-limit 4096 ...", "docker update --pids-limit 4096 CONTAINER"))
    if limits.manager == "kubernetes":
        return Remediation("Raise podPidsLimit in the node's kubelet configuration to 4096 or more")
    return Remediation(
        "Raise TasksMax of the unit", ("sudo systemctl set-property user-$(id -u).slice TasksMax=4096",)
    )

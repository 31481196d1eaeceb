"""CPU quota, affinity and thread counts."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.model import Finding, Remediation, Severity, counted
from torch_doctor.registry import check

#: a group this young has told nothing yet: periods are 100 ms
THROTTLE_PERIODS = 100
THROTTLE_SHARE = 0.25


def _number(cpus: float) -> str:
    return f"{cpus:.2f}".rstrip("0").rstrip(".")


def set_threads(cpu: CpuFacts, threads: int) -> Remediation:
    """The setting that makes every library start ``threads`` threads."""
    return set_variable(cpu, f"OMP_NUM_THREADS={threads}")


def set_variable(cpu: CpuFacts, setting: str) -> Remediation:
    """``NAME=value`` where the environment is made."""
    if cpu.manager == "kubernetes":
        text = "Set it in the container's env, or raise resources.limits.cpu"
        return Remediation(text, (f"kubectl set env deployment NAME {setting}",))
    if cpu.manager == "docker":
        text = "Start the container with as many threads as CPUs, or give it more CPUs with --cpus"
        return Remediation(text, (f"docker run -e {setting} ...",))
    return Remediation("Start as many threads as there are CPUs", (f"export {setting}",))


@check("CPU001", "threads-exceed-quota", tags={"container"})
def threads_exceed_quota(cpu: CpuFacts) -> Iterator[Finding]:
    """torch starts more threads than this process has CPUs.

    What it checks:
        The threads that torch starts (OMP_NUM_THREADS, MKL_NUM_THREADS, else one for each physical core that the
        process sees) against the CPU quota of its control groups and its affinity. torch does not read the quota.
    Why it matters:
        Threads that wait for each other at the end of every operation are stopped at the quota: a step can take
        several times as long as with one thread less.
    Example:
        docker run --cpus=4 IMAGE python train.py       # on a machine with 64 cores
    Fix:
        docker run -e OMP_NUM_THREADS=4 ...
    References:
        https://docs.kernel.org/scheduler/sched-bwc.html
        https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html
    """
    threads, limit = cpu.torch_threads, cpu.thread_limit
    if threads <= limit:
        return
    why = f"a quota of {_number(cpu.quota)} CPUs" if cpu.quota == cpu.usable else counted(cpu.affinity, "CPU")
    yield Finding(
        Severity.WARNING,
        f"torch starts {counted(threads, 'thread')} on {why.replace('of 1 CPUs', 'of 1 CPU')}",
        set_threads(cpu, limit),
        evidence={
            "threads": threads,
            "quota_cpus": cpu.quota,
            "quota_source": cpu.quota_source,
            "affinity_cpus": cpu.affinity,
            "physical_cores": cpu.physical_cores,
            **{name.lower(): value for name, value in cpu.threads.items()},
        },
    )


@check("CPU002", "cpu-throttled", tags={"container"})
def cpu_throttled(cpu: CpuFacts) -> Iterator[Finding]:
    """The container has often been stopped at its CPU quota.

    What it checks:
        nr_throttled against nr_periods in cpu.stat of the group that has the quota, from 100 periods (10 s) on.
    Why it matters:
        While it is stopped nothing runs: loaders fall behind and the GPU waits.
    Example:
        docker run --cpus=2 IMAGE python train.py       # with 8 workers
    Fix:
        docker run --cpus=8 ..., or fewer workers and threads.
    References:
        https://docs.kernel.org/scheduler/sched-bwc.html#statistics
    """
    if cpu.periods < THROTTLE_PERIODS or cpu.throttled_periods < THROTTLE_SHARE * cpu.periods or cpu.quota is None:
        return
    share = round(100 * cpu.throttled_periods / cpu.periods)
    more = min(max(2, round(2 * cpu.quota)), cpu.online)
    yield Finding(
        Severity.WARNING,
        f"stopped at the quota of {_number(cpu.quota)} CPUs in {share} % of {cpu.periods} periods",
        Remediation(
            f"Give the container more CPUs (compose: cpus: {more}; Kubernetes: resources.limits.cpu: {more}), "
            "or start fewer workers and threads",
            (f"docker update --cpus={more} CONTAINER",) if cpu.manager == "docker" else (),
        ),
        evidence={
            "periods": cpu.periods,
            "throttled_periods": cpu.throttled_periods,
            "quota_cpus": cpu.quota,
            "quota_source": cpu.quota_source,
        },
    )


@check("CPU003", "too-few-cpus")
def too_few_cpus(cpu: CpuFacts) -> Iterator[Finding]:
    """There are fewer CPUs than were asked for.

    What it checks:
        The CPU quota and affinity against --need cpus=N.
    Why it matters:
        The run was sized for more.
    Example:
        torch-doctor check --need cpus=16       # in a container with --cpus=4
    Fix:
        docker run --cpus=16 ..., cpus: 16 in compose, resources.limits.cpu: 16 in Kubernetes, or
        sbatch --cpus-per-task=16.
    References:
        https://docs.docker.com/engine/containers/resource_constraints/#cpu
    """
    if cpu.needed is None or cpu.usable >= cpu.needed:
        return
    commands = {
        "docker": (f"docker run --cpus={cpu.needed} ...",),
        "kubernetes": (f"kubectl set resources deployment NAME --limits=cpu={cpu.needed}",),
        "slurm": (f"sbatch --cpus-per-task={cpu.needed} ...",),
    }
    yield Finding(
        Severity.ERROR,
        f"{counted(cpu.needed, 'CPU')} asked for; this process can use {_number(cpu.usable)}",
        Remediation(
            f"Use a machine with {cpu.needed} CPUs, or ask for less"
            if cpu.online < cpu.needed
            else "Raise the quota, or widen the affinity",
            () if cpu.online < cpu.needed else commands.get(cpu.manager, ()),
        ),
        evidence={"needed_cpus": cpu.needed, "quota_cpus": cpu.quota, "affinity_cpus": cpu.affinity},
    )


@check("CPU004", "thread-setting-invalid")
def thread_setting_invalid(cpu: CpuFacts) -> Iterator[Finding]:
    """A thread count in the environment is not a number above 0, so that libraries ignore it.

    What it checks:
        OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS and NUMEXPR_NUM_THREADS.
    Why it matters:
        The OpenMP library warns "Invalid value for environment variable OMP_NUM_THREADS" once and starts a thread
        on every CPU; others say nothing.
    Example:
        docker run -e OMP_NUM_THREADS=auto IMAGE python train.py
    Fix:
        docker run -e OMP_NUM_THREADS=4 ..., or leave it out.
    References:
        https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fNUM_005fTHREADS.html
    """
    for name, value in sorted(cpu.threads.items()):
        # OpenMP takes a list, one number per nesting level
        numbers = value.split(",") if name == "OMP_NUM_THREADS" else [value]
        if not value.strip() or all(n.strip().isdecimal() and int(n) > 0 for n in numbers):
            continue
        yield Finding(
            Severity.WARNING,
            f"{name}={value} is not a number of threads",
            set_threads(cpu, cpu.thread_limit),
            evidence={name.lower(): value},
        )


@check("CPU005", "ranks-times-threads-exceed-cpus")
def ranks_times_threads_exceed_cpus(cpu: CpuFacts) -> Iterator[Finding]:
    """All ranks together start more than twice as many threads as there are CPUs.

    What it checks:
        Ranks on this machine x OMP_NUM_THREADS (or MKL_NUM_THREADS), where both are known, against its CPUs.
        Without a setting nothing is judged: torchrun sets OMP_NUM_THREADS=1 for its ranks by itself.
    Why it matters:
        Ranks that wait for each other's CPU time make every all-reduce wait for the slowest.
    Example:
        OMP_NUM_THREADS=32 torchrun --nproc-per-node=8 train.py     # on 64 CPUs
    Fix:
        OMP_NUM_THREADS = CPUs / ranks.
    References:
        https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    ranks, threads = cpu.processes, cpu.stated_threads
    if ranks < 2 or threads is None or ranks * threads <= 2 * cpu.usable:
        return
    yield Finding(
        Severity.WARNING,
        f"{ranks} ranks x {counted(threads, 'thread')} on {_number(cpu.usable)} CPUs",
        set_threads(cpu, max(1, cpu.thread_limit // ranks)),
        evidence={"processes": ranks, "threads": threads, "usable_cpus": cpu.usable},
    )


@check("CPU008", "workers-times-threads-exceed-cpus", tags={"dataloader"})
def workers_times_threads_exceed_cpus(cpu: CpuFacts) -> Iterator[Finding]:
    """Libraries in the DataLoader workers may start far more threads together than there are CPUs.

    What it checks:
        Workers of all ranks x OMP_NUM_THREADS (or MKL_NUM_THREADS), where it is set to more than 1, against four
        times the CPUs. torch itself takes one thread in a worker; NumPy, OpenCV and SciPy take what is set.
    Why it matters:
        Workers spend their time switching between threads; more of them make loading slower.
    Example:
        OMP_NUM_THREADS=16 python train.py      # num_workers=16, on 16 CPUs
    Fix:
        OMP_NUM_THREADS = CPUs / (workers + 1); or cv2.setNumThreads(0) in worker_init_fn.
    References:
        https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
    """
    workers, threads = cpu.workers * cpu.processes, cpu.stated_threads or 1
    if threads < 2 or workers * threads <= 4 * cpu.usable:
        return
    yield Finding(
        Severity.NOTE,
        f"{counted(workers, 'worker')} x {threads} threads on {_number(cpu.usable)} CPUs, for NumPy and OpenCV",
        set_threads(cpu, max(1, cpu.thread_limit // (workers + cpu.processes))),
        evidence={"workers": workers, "threads": threads, "usable_cpus": cpu.usable},
    )


@check("CPU007", "compile-workers-exceed-quota", tags={"container", "compile"})
def compile_workers_exceed_quota(cpu: CpuFacts) -> Iterator[Finding]:
    """torch.compile starts far more compilers than the container has CPUs.

    What it checks:
        For a script that compiles: one worker for each CPU that the process sees, 32 at most, against the quota.
        TORCHINDUCTOR_COMPILE_THREADS, where it is set, is taken as meant.
    Why it matters:
        The first step takes minutes; under a memory limit the kernel kills a compiler, and torch reports a
        subprocess that ended, not why.
    Example:
        docker run --cpus=2 IMAGE python train.py       # on a machine with 64 CPUs
    Fix:
        docker run -e TORCHINDUCTOR_COMPILE_THREADS=2 ...
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    if not cpu.compiles or cpu.compile_threads or cpu.compile_workers <= 2 * cpu.thread_limit:
        return
    yield Finding(
        Severity.WARNING,
        f"torch.compile starts {cpu.compile_workers} workers on {_number(cpu.usable)} CPUs",
        set_variable(cpu, f"TORCHINDUCTOR_COMPILE_THREADS={cpu.thread_limit}"),
        evidence={"compile_workers": cpu.compile_workers, "usable_cpus": cpu.usable},
    )


@check("CPU006", "affinity-is-one-cpu")
def affinity_is_one_cpu(cpu: CpuFacts) -> Iterator[Finding]:
    """This process, and every worker it starts, may run on one CPU of many.

    What it checks:
        The CPU affinity: 1 of at least 4 CPUs.
    Why it matters:
        Children inherit it: all DataLoader workers share the one CPU, at full load and no speed. A batch job
        without --cpus-per-task, taskset, or a library that pins at import does that.
    Example:
        srun python train.py        # one CPU per task is Slurm's default
    Fix:
        srun --cpus-per-task=8 ..., docker run --cpuset-cpus=0-7 ..., or no taskset.
    References:
        https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html
    """
    if cpu.affinity != 1 or cpu.online < 4:
        return
    commands = {
        "slurm": ("srun --cpus-per-task=8 ...",),
        "docker": (f"docker run --cpuset-cpus=0-{min(cpu.online, 8) - 1} ...",),
        "": (f"taskset -c -p 0-{cpu.online - 1} $$",),
    }
    yield Finding(
        Severity.WARNING,
        f"this process may run on 1 of {cpu.online} CPUs",
        Remediation("Widen the affinity", commands.get(cpu.manager, ())),
        evidence={"affinity_cpus": cpu.affinity, "online_cpus": cpu.online},
    )

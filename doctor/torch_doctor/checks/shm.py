"""Shared memory: /dev/shm against what the DataLoader workers need."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from torch_doctor.facts.requirements import Requirements
from torch_doctor.facts.shm import ACTIVE, DEFAULT_MAP_COUNT, INACTIVE, OFF, Leftover, ShmFacts
from torch_doctor.model import Finding, Remediation, Severity, counted, mib
from torch_doctor.registry import check

_GIB = 1 << 30
_LEAST_GIB = 8  # costs nothing until it is used
_MOST_NAMES = 40

#: why the fallback cannot work -> what to say of it
_CANNOT = {
    "no_memfd": "the kernel or a seccomp profile refuses memfd_create",
    "no_folder": "neither /dev/shm nor any other folder can hold its names",
    "static": "this Python is statically linked and loads no library at its start",
    "musl": "this Python is built for musl, whose loader does not read /etc/ld.so.preload",
}


def more_shm(shm: ShmFacts) -> Remediation:
    """How to get a larger /dev/shm, by what started this process."""
    stated = shm.needed_for.startswith("--need")  # who states a need has counted the headroom in
    gib = size_to_ask_for(shm.needed_bytes, 1.0 if stated else 1.25)
    if shm.manager == "kubernetes":
        text = "Mount an emptyDir of medium Memory on /dev/shm, and let the memory limit of the pod cover it"
        volume = f'{{"name": "shm", "emptyDir": {{"medium": "Memory", "sizeLimit": "{gib}Gi"}}}}'
        mount = '{"name": "shm", "mountPath": "/dev/shm"}'
        return Remediation(text, (f"volumes: [{volume}]", f"volumeMounts: [{mount}]"))
    if shm.manager == "docker":
        if shm.host_ipc:
            text = "This container uses the host's /dev/shm (--ipc=host): enlarge it there, or leave --ipc=host out"
            return Remediation(text, (f"mount -o remount,size={gib}g /dev/shm", f"docker run --shm-size={gib}g ..."))
        text = (
            "Recreate the container with more shared memory; it costs nothing until it is used "
            f"(compose: shm_size: {gib}g on the service)"
        )
        return Remediation(text, (f"docker run --shm-size={gib}g ...",))
    return Remediation("Enlarge /dev/shm", (f"sudo mount -o remount,size={gib}g /dev/shm",))


def size_to_ask_for(needed_bytes: int, headroom: float = 1.25) -> int:
    """GiB to ask for: the need and a quarter, as a power of two, and at least 8."""
    gib = _LEAST_GIB
    while gib * _GIB < needed_bytes * headroom:
        gib *= 2
    return gib


def _need(shm: ShmFacts) -> str:
    if not shm.needed_for:
        return f"DataLoader workers need {mib(shm.needed_bytes)}"
    return f"this run needs {mib(shm.needed_bytes)} ({shm.needed_for})"


@check("SHM001", "shm-too-small", tags={"container", "dataloader"})
def shm_too_small(shm: ShmFacts, needs: Requirements) -> Iterator[Finding]:
    """/dev/shm is smaller than what the DataLoader workers put into it.

    What it checks:
        The size of /dev/shm against the need of this script's loaders (bytes of a batch x prefetch x workers), or
        1 GiB where that is not known. In an image with the shared-memory fallback, a /dev/shm that is too small is
        a note as long as memory is enough.
    Why it matters:
        Workers hand batches over in /dev/shm. When it is full they die: a bus error, or "unable to allocate
        shared memory(shm) ... No space left on device (28)", often hours into a run.
    Example:
        docker run IMAGE python train.py        # Docker gives 64 MiB
    Fix:
        docker run --shm-size=8g ..., shm_size: 8g in compose, or an emptyDir with medium: Memory on /dev/shm in
        Kubernetes.
    References:
        https://docs.docker.com/reference/cli/docker/container/run/
        https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies
    """
    if shm.size_bytes >= shm.needed_bytes:
        return
    evidence = {
        "size_bytes": shm.size_bytes,
        "needed_bytes": shm.needed_bytes,
        "needed_for": shm.needed_for,
        "fallback": shm.fallback,
    }
    message = f"/dev/shm is {mib(shm.size_bytes)}; {_need(shm)}"
    severity = Severity.ERROR
    if shm.fallback_covers:
        severity = Severity.NOTE
        bound = f"up to {mib(shm.memory_limit_bytes)} of memory" if shm.memory_limit_bytes else "within memory"
        message += f"; the shared-memory fallback serves them, {bound}"
    elif shm.fallback == ACTIVE:
        message += (
            f", more than the {mib(shm.memory_limit_bytes or 0)} of memory that bound the shared-memory fallback"
        )
    elif _no_loader(needs) and not shm.needed_for:
        severity = Severity.WARNING
        message = f"/dev/shm is {mib(shm.size_bytes)}; the script shows no DataLoader, but workers would need more"
    remedy = more_shm(shm)
    if shm.fallback == OFF:
        remedy = Remediation(f"{remedy.text}; or let the fallback serve: unset TORCH_DOCTOR_SHM", remedy.commands)
    yield Finding(severity, message, remedy, evidence)


def _no_loader(needs: Requirements) -> bool:
    return bool(needs.script) and not needs.loaders and not needs.stated_workers


@check("SHM002", "shm-nearly-full", tags={"container", "dataloader"})
def shm_nearly_full(shm: ShmFacts, needs: Requirements) -> Iterator[Finding]:
    """/dev/shm is large enough, but other files fill it.

    What it checks:
        The free space and free inodes of /dev/shm against the need of this run's loaders.
    Why it matters:
        What another run, or a killed one, holds there is missing here: workers die with a bus error or
        "No space left on device (28)" although --shm-size is right.
    Example:
        df -h /dev/shm      # 8.0G, 7.9G used
    Fix:
        Remove what dead processes left (SHM003), stop the other run, or recreate the container.
    References:
        https://man7.org/linux/man-pages/man7/shm_overview.7.html
    """
    if shm.size_bytes < shm.needed_bytes or shm.fallback == ACTIVE or not shm.size_bytes:
        return
    inodes_gone = shm.free_inodes == 0
    if shm.free_bytes >= shm.needed_bytes and not inodes_gone:
        return
    if not shm.needed_for and shm.free_bytes >= shm.needed_bytes // 4 and not inodes_gone:
        severity = Severity.NOTE
    else:
        severity = Severity.ERROR if needs.workers or shm.needed_for or not shm.free_bytes else Severity.WARNING
    free = "no inode" if inodes_gone else mib(shm.free_bytes)
    remedy = Remediation("See what fills it, and remove what is dead", ("ls -lS /dev/shm", "fuser -v /dev/shm/*"))
    if shm.leftovers:
        remedy = remove(shm.leftovers)
    yield Finding(
        severity,
        f"/dev/shm has {free} free of {mib(shm.size_bytes)}; {_need(shm)}",
        remedy,
        {"size_bytes": shm.size_bytes, "free_bytes": shm.free_bytes, "free_inodes": shm.free_inodes},
    )


@check("SHM003", "shm-leftovers", tags={"dataloader"})
def shm_leftovers(shm: ShmFacts) -> Iterator[Finding]:
    """Dead processes left files in /dev/shm.

    What it checks:
        Files named as torch, multiprocessing, joblib and NCCL name theirs, of this user (of everyone, for root),
        older than a minute, whose owner's pid is gone and which no visible process has open or mapped.
    Why it matters:
        A killed run (SIGKILL, out of memory) cannot remove its files. They take memory until the machine or the
        container restarts, and count against the memory limit.
    Example:
        kill -9 TRAINER; ls /dev/shm      # torch_4711_1804289383_0
    Fix:
        rm of the named files.
    References:
        https://docs.pytorch.org/docs/stable/multiprocessing.html#file-system-file-system
    """
    if not shm.leftovers:
        return
    count = sum(len(item.names) for item in shm.leftovers)
    matters = shm.leftover_bytes >= shm.size_bytes // 20 or shm.free_bytes < shm.needed_bytes
    pids = sorted({item.owner_pid for item in shm.leftovers if item.owner_pid is not None})
    yield Finding(
        Severity.WARNING if matters else Severity.NOTE,
        f"{counted(count, 'file')} of dead processes in /dev/shm: {mib(shm.leftover_bytes)}",
        remove(shm.leftovers),
        {
            "files": [f"/dev/shm/{name}" for item in shm.leftovers for name in item.names][:_MOST_NAMES],
            "file_count": count,
            "size_bytes": shm.leftover_bytes,
            "dead_pids": pids,
        },
    )


def remove(leftovers: tuple[Leftover, ...]) -> Remediation:
    """The commands that remove them: by the dead owner's prefix, which no living process uses, else by name."""
    commands = [f"rm -rf /dev/shm/{quote(i.prefix)}*" for i in leftovers if i.prefix]
    names = [f"/dev/shm/{quote(name)}" for i in leftovers if not i.prefix for name in i.names]
    if names:
        commands.append("rm -f " + " ".join(names))
    return Remediation("Remove them", tuple(commands))


@check("SHM004", "shm-not-writable-tmpfs", tags={"container"})
def shm_not_writable_tmpfs(shm: ShmFacts, needs: Requirements) -> Iterator[Finding]:
    """/dev/shm is missing, read-only, not writable for this user, or not in memory.

    What it checks:
        Whether this user can make a file in /dev/shm, and whether it is a tmpfs.
    Why it matters:
        Semaphores, queues and batches of DataLoader workers are files there: without it they fail at the first
        worker ("Permission denied", "Function not implemented", "No such file or directory"). On a disk every
        batch is written to that disk.
    Example:
        docker run --user 1000 -v /srv/shm:/dev/shm IMAGE
    Fix:
        Mount a tmpfs with mode 1777 there: docker run --shm-size=8g does.
    References:
        https://man7.org/linux/man-pages/man7/shm_overview.7.html
    """
    served = shm.fallback == ACTIVE
    single = bool(needs.loaders) and needs.workers == 0 and needs.workers_known
    bad = Severity.NOTE if served or single else Severity.ERROR
    tail = "; the shared-memory fallback serves the workers" if served else ""
    evidence = {"error": shm.error, "kind": shm.kind, "fallback": shm.fallback}
    if shm.error == "ENOENT":
        yield Finding(bad, f"/dev/shm does not exist{tail}", _mounted(shm), evidence)
    elif shm.error == "EROFS":
        yield Finding(bad, f"/dev/shm is mounted read-only{tail}", _mounted(shm), evidence)
    elif shm.error in ("EACCES", "EPERM"):
        yield Finding(bad, f"/dev/shm cannot be written by this user ({shm.error}){tail}", _opened(shm), evidence)
    elif shm.error and shm.error not in ("ENOSPC", "EDQUOT"):  # a full one is another fault: SHM002
        yield Finding(bad, f"a file in /dev/shm cannot be made: {shm.error}{tail}", _mounted(shm), evidence)
    elif shm.kind not in ("tmpfs", "ramfs", ""):
        message = f"/dev/shm is on {shm.kind}, not in memory: every batch is written to that file system"
        yield Finding(Severity.WARNING, message, _mounted(shm), evidence)


def _mounted(shm: ShmFacts) -> Remediation:
    if shm.manager == "docker":
        return Remediation("Recreate the container with its own /dev/shm", ("docker run --shm-size=8g ...",))
    if shm.manager == "kubernetes":
        return more_shm(shm)
    return Remediation("Mount a tmpfs there", ("sudo mount -t tmpfs -o rw,nosuid,nodev,mode=1777 tmpfs /dev/shm",))


def _opened(shm: ShmFacts) -> Remediation:
    remedy = _mounted(shm)
    if shm.manager:
        return remedy
    return Remediation("Give it the mode that every user can write with", ("sudo chmod 1777 /dev/shm",))


@check("SHM005", "map-count-too-low", tags={"host"})
def map_count_too_low(shm: ShmFacts) -> Iterator[Finding]:
    """vm.max_map_count is below the kernel's default.

    What it checks:
        The number of memory areas that one process may map.
    Why it matters:
        Every tensor that a worker hands over is a mapping. At the limit mmap fails with "Cannot allocate memory"
        while memory is free.
    Example:
        sysctl vm.max_map_count      # 8192
    Fix:
        sysctl -w vm.max_map_count=262144 on the host; containers share it.
    References:
        https://docs.kernel.org/admin-guide/sysctl/vm.html#max-map-count
    """
    if shm.map_count_limit is None or shm.map_count_limit >= DEFAULT_MAP_COUNT:
        return
    where = "on the host: containers share it" if shm.manager else "and in /etc/sysctl.d to keep it"
    yield Finding(
        Severity.WARNING,
        f"vm.max_map_count is {shm.map_count_limit}, below the default of {DEFAULT_MAP_COUNT}",
        Remediation(f"Raise it {where}", ("sudo sysctl -w vm.max_map_count=262144",)),
        {"max_map_count": shm.map_count_limit},
    )


@check("SHM006", "shm-fallback-cannot-work", tags={"container"})
def shm_fallback_cannot_work(shm: ShmFacts) -> Iterator[Finding]:
    """/dev/shm is too small, and the image's shared-memory fallback cannot stand in for it.

    What it checks:
        The state of the fallback in the interpreter that trains: a static or musl Python does not load it, and it
        needs memfd_create and a folder for its names.
    Why it matters:
        The image lets DataLoader workers outgrow Docker's 64 MiB without --shm-size; here that promise does not hold.
    Example:
        docker run IMAGE /opt/static-python/bin/python train.py
    Fix:
        docker run --shm-size=8g ..., which needs no fallback; or the image's own Python.
    References:
        https://man7.org/linux/man-pages/man2/memfd_create.2.html
    """
    reason = _CANNOT.get(shm.fallback_reason)
    if reason is None or shm.fallback in (ACTIVE, OFF) or shm.size_bytes >= shm.needed_bytes:
        return
    state = "is loaded but inactive" if shm.fallback == INACTIVE else "is not loaded"
    yield Finding(
        Severity.WARNING,
        f"the shared-memory fallback {state}: {reason}",
        more_shm(shm),
        {"fallback": shm.fallback, "fallback_reason": shm.fallback_reason},
    )

"""Runs a real DataLoader in a child process, and reads the limits on files and processes."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

from torch_doctor.facts.request import Request
from torch_doctor.facts.workers import (
    FILES_CAUSE,
    PROCESSES_CAUSE,
    SHM_CAUSE,
    TEMP_CAUSE,
    LimitFacts,
    MethodResult,
    WorkerFacts,
)
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import cgroup, container
from torch_doctor.probes import torch as torch_probe

#: what a failure's text says -> its cause
CAUSES = (
    (re.compile(r"No usable temporary directory"), TEMP_CAUSE),
    (re.compile(r"Too many open files|\bEMFILE\b|received 0 items of ancdata|\[Errno 24\]"), FILES_CAUSE),
    (
        re.compile(
            r"can't start new thread|Resource temporarily unavailable|\[Errno 11\]|pthread_create|std::system_error"
        ),
        PROCESSES_CAUSE,
    ),
    (
        re.compile(
            r"Bus error|insufficient shared memory|\(shm\)|shm_open|/dev/shm|shared memory"
            r"|\[Errno 28\] No space left|SemLock|Function not implemented"
        ),
        SHM_CAUSE,
    ),
)


def probe(request: Request) -> WorkerFacts | ProbeFailure:
    """What came of a DataLoader under each start method that the request names."""
    found = torch_probe.session(request)
    if isinstance(found, ProbeFailure):
        return found
    info = found["torch"]
    if "version" not in info:
        # the check of the import says why; here there is only nothing to look at
        return ProbeFailure("torch cannot be imported", FailureKind.UNAVAILABLE)
    needs = request.requirements
    wanted = {m for m in (needs.start_method, *(n.start_method for n in needs.loaders)) if m}
    return WorkerFacts(
        {method: result(answer) for method, answer in found["methods"].items()},
        info.get("start_method", ""),
        frozenset(wanted),
        info.get("sharing_strategy", ""),
    )


def result(answer: dict[str, Any]) -> MethodResult:
    """One start method's answer, its cause named."""
    if answer["ok"]:
        return MethodResult(True, answer["seconds"])
    parts = [answer.get("error_type", ""), answer.get("error", "")]
    error = ": ".join(p for p in parts if p)
    tail = tuple(answer.get("traceback_tail", ()))
    everything = "\n".join([error, answer.get("cause", ""), *tail])
    return MethodResult(False, answer["seconds"], error, cause(everything), tail)


def cause(text: str) -> str:
    """Which resource a failure's text says was missing; empty where it says nothing of the kind."""
    return next((name for pattern, name in CAUSES if pattern.search(text)), "")


def limits(request: Request) -> LimitFacts:
    """RLIMIT_NOFILE, RLIMIT_NPROC and the pids limit of the control group."""
    files_soft, files_hard = (_limit(v) for v in resource.getrlimit(resource.RLIMIT_NOFILE))
    processes = _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])
    folders = cgroup.tree("pids").folders
    pids, folder = cgroup.smallest(folders, "pids.max")
    return LimitFacts(
        files_soft=files_soft,
        files_hard=files_hard,
        processes_soft=processes,
        user_threads=_user_threads() if processes is not None else None,
        pids_limit=pids,
        pids_current=cgroup.number(folder / "pids.current") if folder else None,
        pids_source=str(folder / "pids.max") if folder else "",
        cpu_threads=_cpu_threads(),
        is_root=os.geteuid() == 0,
        manager=container.manager(),
    )


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _cpu_threads() -> int:
    stated = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(stated) if stated.isdecimal() and int(stated) else len(os.sched_getaffinity(0))


def _user_threads() -> int:
    uid = os.geteuid()
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == uid:
                total += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it ended while we counted
    return total


PROBES = {WorkerFacts: probe, LimitFacts: limits}

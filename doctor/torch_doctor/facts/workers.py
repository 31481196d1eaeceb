"""Whether DataLoader workers hand tensors over, and the limits that bound how many there can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: kinds of cause that a failure of workers has; another check names each
SHM_CAUSE, FILES_CAUSE, PROCESSES_CAUSE, TEMP_CAUSE = "shm", "files", "processes", "temp"


@dataclass(frozen=True)
class MethodResult:
    """A DataLoader with one worker under one start method.

    Args:
        ok: every row came, and was right.
        seconds: wall clock.
        error: type and text in one line; empty where it worked.
        cause: SHM_CAUSE, FILES_CAUSE, PROCESSES_CAUSE, TEMP_CAUSE, or empty for any other.
        traceback_tail: the last lines.
    """

    ok: bool
    seconds: float
    error: str = ""
    cause: str = ""
    traceback_tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerFacts:
    """What came of a real DataLoader in the user's interpreter.

    Args:
        methods: start method -> result, for those that were tried.
        default: the interpreter's default start method.
        wanted: the start methods that the script chooses; empty where it chooses none.
        sharing_strategy: ``file_descriptor`` or ``file_system``.
    """

    methods: Mapping[str, MethodResult] = field(default_factory=dict)
    default: str = ""
    wanted: frozenset[str] = frozenset()
    sharing_strategy: str = ""


@dataclass(frozen=True)
class LimitFacts:
    """Limits on files and processes. None: no limit, or nobody can say.

    Args:
        files_soft: RLIMIT_NOFILE, soft; ``files_hard`` is what ``ulimit -n`` can raise it to.
        processes_soft: RLIMIT_NPROC: threads of this user, on the whole machine.
        user_threads: threads that this user has now, as far as they are visible.
        pids_limit: the control group's.
        pids_current: tasks in that group now.
        pids_source: the file that holds the limit.
        cpu_threads: intra-op threads that one torch process starts here.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    files_soft: int | None = None
    files_hard: int | None = None
    processes_soft: int | None = None
    user_threads: int | None = None
    pids_limit: int | None = None
    pids_current: int | None = None
    pids_source: str = ""
    cpu_threads: int = 1
    is_root: bool = False
    manager: str = ""

"""What is known of one session, and its JSON form. Standard library only: the supervisor imports this."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

SCHEMA_VERSION = 1

STARTING, RUNNING, STOPPING, RESTARTING = "starting", "running", "stopping", "restarting"
DONE, FAILED, STOPPED, LOST = "done", "failed", "stopped", "lost"
#: statuses of a session whose supervisor should be alive
LIVE = frozenset({STARTING, RUNNING, STOPPING, RESTARTING})
#: status that a session ends with when nobody saw how its command ended
LOST_STATUS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """A process beyond doubt: a PID alone is reused, a PID with its start time is not.

    ``start_ticks`` is field 22 of /proc/PID/stat, clock ticks since boot: setting the clock does not move it.
    """

    pid: int
    start_ticks: int
    boot_id: str = ""
    pid_namespace: str = ""
    first_ticks: int = 0  # when PID 1 of that namespace started: inode numbers of namespaces are reused, too
    hostname: str = ""
    uid: int = 0


@dataclass(frozen=True)
class Attempt:
    """One start of the command. ``log_offset`` counts the bytes in the log before it; duration in seconds."""

    log_offset: int = 0
    duration: float = 0.0
    exit_status: int | None = None
    signal: str = ""


@dataclass(frozen=True)
class Exit:
    """How the last attempt ended, and why as far as the kernel and torch-doctor know."""

    status: int
    signal: str = ""
    core_dumped: bool = False
    duration: float = 0.0
    reason: str = ""  # one line for a person
    stopped_by: str = ""
    stop_signal: str = ""
    oom_kills: int | None = None
    memory_limit_hits: int | None = None
    memory_limit_bytes: int | None = None
    memory_peak_bytes: int | None = None
    peak_rss_bytes: int = 0
    peak_tree_rss_bytes: int = 0
    shm_size_bytes: int | None = None
    shm_free_bytes: int | None = None
    survivors: int = 0  # processes left behind by the command that had to be ended


@dataclass(frozen=True)
class LogGap:
    """Output that is not in the log: where it is missing, how much, and what the file system said."""

    offset: int
    lost_bytes: int
    error: str


@dataclass(frozen=True)
class State:
    """One session. ``created`` and ``ended`` are seconds since 1970 and only shown, never computed with."""

    name: str
    command: tuple[str, ...]
    cwd: str = ""
    backend: str = ""
    status: str = STARTING
    grace: float = 30.0
    restarts: int = 0  # how many are allowed
    created: float = 0.0
    ended: float | None = None
    started_boottime: float = 0.0  # CLOCK_BOOTTIME, seconds: the age of a run that goes on
    supervisor: Process | None = None
    child: Process | None = None
    socket: str = ""
    attempts: tuple[Attempt, ...] = ()
    exit: Exit | None = None
    log_bytes: int = 0
    log_error: str = ""
    log_gaps: tuple[LogGap, ...] = ()
    postmortem: str = ""  # one line, where explain found a cause
    remedy: str = ""  # one line: what to type against it
    revision: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def live(self) -> bool:
        """True until the command has ended for good."""
        return self.status in LIVE

    @property
    def exit_status(self) -> int | None:
        """The child's, 128+n for a signal; None while it runs or where nobody saw it."""
        return self.exit.status if self.exit else None


def to_json(state: State) -> dict[str, Any]:
    """The state as plain values."""
    return dataclasses.asdict(state)


def from_json(values: Mapping[str, Any]) -> State:
    """The state from its JSON form. Keys that a newer version added are passed over.

    Raises:
        ValueError, TypeError, KeyError: where the values are not those of a state.
    """
    plain = dict(values)
    for key, kind in (("supervisor", Process), ("child", Process), ("exit", Exit)):
        plain[key] = _build(kind, plain[key]) if plain.get(key) else None
    plain["attempts"] = tuple(_build(Attempt, a) for a in plain.get("attempts", ()))
    plain["log_gaps"] = tuple(_build(LogGap, g) for g in plain.get("log_gaps", ()))
    plain["command"] = tuple(plain["command"])
    return _build(State, plain)


def _build(kind: type[T], values: Mapping[str, Any]) -> T:
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: v for k, v in values.items() if k in known})

"""How a run is brought to its end and what is measured meanwhile. Clocks and processes come in as values."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from torch_doctor.sessions import cgroup, proc
from torch_doctor.sessions.child import CannotStart
from torch_doctor.sessions.state import Exit

#: resource trackers and shared-memory managers unlink what the command left and go by themselves
NATURAL_SECONDS = 0.4
#: processes in uninterruptible sleep cannot be killed: the end is recorded all the same
GIVE_UP_SECONDS = 10.0
#: how long what a command left behind has after SIGTERM when the command ended by itself
SURVIVORS_SECONDS = 5.0


@dataclass(frozen=True)
class Stop:
    """A wish to end the run. ``grace`` and ``at`` are seconds, of the monotonic clock."""

    by: str
    number: int
    grace: float
    sender: str = ""
    at: float = dataclasses.field(default_factory=time.monotonic)

    def left(self, now: float) -> float:
        """Seconds of grace that are left."""
        return max(0.0, self.at + self.grace - now)

    def shortened(self, grace: float) -> Stop:
        """The same stop; a second wish can only bring the end nearer."""
        deadline = min(self.at + self.grace, time.monotonic() + grace)
        return dataclasses.replace(self, grace=max(0.0, deadline - self.at))


class Ending:
    """The command has ended; what it left behind gets a moment, SIGTERM, and SIGKILL.

    Args:
        exit: how the command ended.
        grace: seconds that a stop has left; without a stop, the session's grace.
        stopped: whether a stop was asked for.
    """

    def __init__(self, exit: Exit, grace: float, stopped: bool) -> None:
        now = time.monotonic()
        self.exit = exit
        self.signalled = 0
        self._terminate_at: float | None = now + NATURAL_SECONDS
        self._kill_at = now + NATURAL_SECONDS + (grace if stopped else min(grace, SURVIVORS_SECONDS))
        self._give_up_at = self._kill_at + GIVE_UP_SECONDS

    def next_signal(self, any_left: bool, now: float) -> int | None:
        """What to send to what is left: a signal, 0 for nothing yet, None when the end is reached."""
        if not any_left or now >= self._give_up_at:
            return None
        if now >= self._kill_at:
            return signal.SIGKILL
        if self._terminate_at is not None and now >= self._terminate_at:
            self._terminate_at = None
            return signal.SIGTERM
        return 0

    def hurry(self, grace: float, now: float) -> None:
        """A stop that came while the end was under way."""
        self._terminate_at = None if self._terminate_at is None else min(self._terminate_at, now)
        self._kill_at = min(self._kill_at, now + grace)
        self._give_up_at = self._kill_at + GIVE_UP_SECONDS


class Watch:
    """What is measured over one attempt: time by a clock that nobody sets, memory, the kernel's counters."""

    def __init__(self, log_offset: int = 0) -> None:
        self.log_offset = log_offset
        self._start = time.monotonic()
        self._memory = cgroup.memory()
        self._tree_bytes = 0

    @classmethod
    def begin(cls, log_offset: int) -> Watch:
        """An attempt that starts now."""
        return cls(log_offset)

    def sample(self, processes: Iterable[proc.Stat]) -> None:
        """Take the memory of the process tree as it is now."""
        self._tree_bytes = max(self._tree_bytes, sum(p.rss_bytes for p in processes))

    def ended(self, status: int, rss_bytes: int, stop: Stop | None) -> Exit:
        """The end, from the wait status of the command and its rusage."""
        after = cgroup.memory()
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        size, free = _shm()
        return Exit(
            status=128 + killed if killed else os.WEXITSTATUS(status),
            signal=proc.signal_name(killed) if killed else "",
            core_dumped=os.WCOREDUMP(status),
            duration=round(time.monotonic() - self._start, 3),
            stopped_by=stop.by if stop else "",
            stop_signal=proc.signal_name(stop.number) if stop else "",
            oom_kills=cgroup.since(self._memory.oom_kills, after.oom_kills),
            memory_limit_hits=cgroup.since(self._memory.limit_hits, after.limit_hits),
            memory_limit_bytes=after.limit_bytes,
            memory_peak_bytes=after.peak_bytes,
            peak_rss_bytes=rss_bytes,
            peak_tree_rss_bytes=max(self._tree_bytes, rss_bytes),
            shm_size_bytes=size,
            shm_free_bytes=free,
        )

    def never_started(self, why: CannotStart) -> Exit:
        """The end of a command that could not be started."""
        return Exit(why.status, reason=f"cannot be started: {why.reason}")


def _shm() -> tuple[int | None, int | None]:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

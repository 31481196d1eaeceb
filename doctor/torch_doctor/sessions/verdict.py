"""Why a run ended, in one line, from what the kernel and torch-doctor know. Pure."""

from __future__ import annotations

from torch_doctor.facts.sessions import STOPPED_BY_COMMAND, STOPPED_BY_CONTAINER
from torch_doctor.model import mib
from torch_doctor.sessions.state import DONE, FAILED, STOPPED, Exit

_STOPPED_BY = {
    STOPPED_BY_COMMAND: "torch-doctor stop",
    STOPPED_BY_CONTAINER: "the container's stop or a preemption",
}


def status(exit: Exit) -> str:
    """How the session ended: stopped where somebody asked, whatever the status; else done or failed."""
    if exit.stopped_by:
        return STOPPED
    return DONE if exit.status == 0 else FAILED


def reason(exit: Exit, sender: str = "") -> str:
    """One line for a person.

    Args:
        exit: how it ended.
        sender: for a signal to the supervisor, who sent it, as far as known.
    """
    if exit.stopped_by:
        return _stopped(exit, sender)
    known = {"SIGKILL": _killed, "SIGBUS": _bus_error, "SIGTERM": _terminated}
    if exit.signal in known:
        return known[exit.signal](exit)
    core = " (core dumped)" if exit.core_dumped else ""
    text = f"{exit.signal}{core}" if exit.signal else f"exit status {exit.status}"
    if not exit.signal and exit.status == 0:
        return ""
    if exit.oom_kills:
        return f"{text}; the kernel's OOM killer ended {exit.oom_kills} of its processes{_limit(exit)}"
    if not exit.signal and 128 < exit.status <= 128 + 64:
        return f"{text} (128 + {exit.status - 128}: a child of the command got that signal)"
    return text


def _stopped(exit: Exit, sender: str) -> str:
    by = _STOPPED_BY.get(exit.stopped_by) or f"a signal to torch-doctor{f' from {sender}' if sender else ''}"
    if exit.signal == "SIGKILL" and exit.stop_signal != "SIGKILL":
        return f"stopped by {by}: {exit.stop_signal}, and SIGKILL when the grace time was over"
    ended = f"ended by {exit.signal}" if exit.signal else f"exit status {exit.status}"
    return f"stopped by {by}: {exit.stop_signal}, {ended}"


def _killed(exit: Exit) -> str:
    if exit.oom_kills:
        return f"SIGKILL by the kernel's OOM killer{_limit(exit)}"
    if exit.oom_kills is None:
        return "SIGKILL; whether by the OOM killer, this kernel does not tell"
    return "SIGKILL from another process: no OOM kill was counted, and torch-doctor did not send it"


def _bus_error(exit: Exit) -> str:
    if exit.shm_size_bytes is None or exit.shm_free_bytes is None:
        return "SIGBUS: a memory-mapped file has no storage behind it"
    room = f"/dev/shm had {mib(exit.shm_free_bytes)} free of {mib(exit.shm_size_bytes)} at the end"
    return f"SIGBUS: shared memory was full, or a memory-mapped file was cut short; {room}"


def _terminated(exit: Exit) -> str:
    return "SIGTERM from another process (kill, a scheduler): torch-doctor did not send it"


def _limit(exit: Exit) -> str:
    return f" (memory limit {mib(exit.memory_limit_bytes)})" if exit.memory_limit_bytes else ""


def summary(name: str, status: str, exit: Exit | None) -> str:
    """One line for the end of a view: name, how it ended, how long it ran."""
    if exit is None:
        return f"{name}: {status}"
    how = exit.reason or f"exit status {exit.status}"
    return f"{name}: {status} after {duration(exit.duration)}: {how}"


def duration(seconds: float) -> str:
    """``3725`` as ``1h 2m``, ``62`` as ``1m 2s``, below ten seconds with a decimal."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {whole % 60}s" if minutes else f"{whole}s"

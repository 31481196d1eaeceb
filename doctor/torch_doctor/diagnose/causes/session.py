"""What a session's own record tells: the kernel's count of kills, a stop on request, a signal without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_doctor.diagnose.cause import FATAL, HINT, VAGUE
from torch_doctor.diagnose.tables import SIGNALS, signal_number
from torch_doctor.facts.log import LogFacts, RunFacts
from torch_doctor.model import Finding, Location, Remediation, Severity, mib
from torch_doctor.registry import check


def _evidence(log: LogFacts, kind: str, **values: Any) -> dict[str, Any]:
    last = log.lines[-1] if log.lines else None
    return {"line": last.number if last else 1, "text": [last.text] if last else [], "kind": kind, **values}


def _place(log: LogFacts) -> Location:
    return Location(log.path, log.lines[-1].number if log.lines else None)


@check("MEM207", "session-killed-for-memory", tags={FATAL})
def session_killed_for_memory(log: LogFacts, run: RunFacts) -> Iterator[Finding]:
    """The kernel's OOM killer ended a process of the session.

    What it checks:
        The memory cgroup's count of OOM kills at the start and the end of the session.
    Why it matters:
        SIGKILL leaves no word in the log. The cgroup's counter is proof, where the exit status 137 is a hint only.
    Example:
        torch-doctor run --name exp1 -- python train.py        # ends with 137 under docker run --memory=8g
    Fix:
        Raise the memory limit, use fewer workers or a smaller prefetch_factor, keep samples in NumPy or Arrow arrays.
    References:
        https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    if not run.oom_kills:
        return
    limit = f" of {mib(run.memory_limit_bytes)}" if run.memory_limit_bytes else ""
    yield Finding(
        Severity.ERROR,
        f"the OOM killer ended {run.oom_kills} process(es) of this run: the host RAM limit{limit} of its cgroup "
        "was reached",
        Remediation(
            "Raise the memory limit, use fewer workers or a smaller prefetch_factor, and keep samples in NumPy or "
            "Arrow arrays rather than in lists of Python objects",
            ("docker run --memory=64g ...", "cat /sys/fs/cgroup/memory.events"),
        ),
        _evidence(log, FATAL, oom_kills=run.oom_kills, memory_peak_bytes=run.memory_peak_bytes),
        _place(log),
    )


@check("SES231", "session-stopped-on-request", tags={HINT})
def session_stopped_on_request(log: LogFacts, run: RunFacts) -> Iterator[Finding]:
    """The session was asked to end.

    What it checks:
        Whether torch-doctor stop, docker stop or a signal asked the session to end.
    Why it matters:
        An end on request is no failure, whatever the exit status and the last lines say.
    Example:
        torch-doctor stop exp1
    Fix:
        Nothing to mend; resume from the last checkpoint.
    References:
        https://docs.docker.com/reference/cli/docker/container/stop/
    """
    if not run.stopped_by or run.oom_kills:
        return
    yield Finding(
        Severity.NOTE,
        f"the run ended on request ({run.stopped_by}{', ' + run.signal if run.signal else ''})",
        Remediation("Nothing to mend; resume from the last checkpoint"),
        _evidence(log, HINT, stopped_by=run.stopped_by),
        _place(log),
    )


@check("SES232", "session-ended-by-signal", tags={VAGUE})
def session_ended_by_signal(log: LogFacts, run: RunFacts) -> Iterator[Finding]:
    """A signal ended the session's command, and its log says nothing of it.

    What it checks:
        The signal that ended the command, as the supervisor saw it.
    Why it matters:
        A process that dies of a signal writes no last word.
    Example:
        torch-doctor run --name exp1 -- python train.py        # ends with 139
    Fix:
        SIGSEGV, SIGABRT, SIGBUS: run with PYTHONFAULTHANDLER=1. SIGKILL: look for the OOM killer in dmesg.
    References:
        https://man7.org/linux/man-pages/man7/signal.7.html
    """
    if not run.signal or run.stopped_by or run.oom_kills:
        return
    means = SIGNALS.get(signal_number(run.signal), "")
    yield Finding(
        Severity.ERROR,
        f"the command was ended by {run.signal}{': ' + means if means else ''}",
        Remediation(
            "Look for who sent it in the kernel log; for a crash in native code get its stack",
            ("dmesg -T | tail -30", "PYTHONFAULTHANDLER=1 python train.py"),
        ),
        _evidence(log, VAGUE, signal=run.signal),
        _place(log),
    )

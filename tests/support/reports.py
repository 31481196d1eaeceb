"""One report that has everything in it: every severity, outcome, a fix, a suppression, odd characters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch_doctor import registry
from torch_doctor.model import (
    Check,
    CheckResult,
    Edit,
    Finding,
    Fix,
    Location,
    Notification,
    Outcome,
    Remediation,
    Report,
    Severity,
    Suppression,
)

DOC = """{summary}

What it checks:
    What there is.
Why it matters:
    It | breaks.
Example:
    docker run IMAGE
Fix:
    Mend it.
References:
    https://example.org/
"""


def nothing() -> Iterator[Finding]:
    """A check's function that never runs."""
    yield from ()


def check(id: str, name: str) -> Check:
    """A check that is not registered."""
    return registry.build(id, name, nothing, tags={"container"}, doc=DOC.format(summary=f"{name} is the fault."))


SHM = Finding(
    Severity.ERROR,
    "/dev/shm is 64 MiB; this loader needs 8 GiB",
    Remediation("Recreate the container with more shared memory", ("docker run --shm-size=8g ...", "df -h /dev/shm")),
    evidence={"size_bytes": 67108864},
)
GRAD = Finding(
    Severity.WARNING,
    "the loss keeps its graph: 100 % of it, a,b | c\x1b[31m\u0000",
    Remediation("Detach it"),
    location=Location("dir with space/träin.py", 12, 5, 12, 18),
    fix=Fix("Append .item()", (Edit(12, 18, 12, 18, ".item()"),)),
)
NOTE = Finding(Severity.NOTE, "no NVIDIA driver here", location=Location("nb.ipynb", 2, 1, cell=3))
SILENCED = replace(GRAD, suppression=Suppression("in-source", "measured, small"), location=Location("a.py", 1, 1))
ECHO = replace(SHM, severity=Severity.ERROR, message="the worker died", role="consequence")

FULL = Report(
    "check",
    (
        CheckResult(check("SHM098", "shm-too-small-here"), Outcome.FAILED, (SHM, ECHO), duration=0.0034),
        CheckResult(check("GRD198", "loss-keeps-graph"), Outcome.FAILED, (GRAD, SILENCED)),
        CheckResult(check("GPU098", "no-gpu-here"), Outcome.FAILED, (NOTE,)),
        CheckResult(check("GPU099", "gpu-too-hot"), Outcome.SKIPPED, reason="NVML is not there"),
        CheckResult(check("CMP099", "compiler-missing"), Outcome.CRASHED, reason="killed by SIGSEGV"),
        CheckResult(check("MEM099", "memory-too-small"), Outcome.PASSED),
    ),
    {"shm": {"size_bytes": 67108864}},
    (Notification("invalid syntax", Location("old.py", 3)),),
    1.25,
)
HEALTHY = Report("check", (CheckResult(check("MEM099", "memory-too-small"), Outcome.PASSED),), duration=0.5)
EMPTY = Report("lint", ())

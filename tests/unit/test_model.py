"""Exit codes, order and words of the shared types."""

from __future__ import annotations

import pytest
from support import reports

from torch_doctor.model import (
    CheckResult,
    Finding,
    Notification,
    Outcome,
    Report,
    Severity,
    Suppression,
    counted,
    mib,
)


def report(*severities: Severity, crashed: bool = False, notes: tuple[Notification, ...] = ()) -> Report:
    check = reports.check("SHM098", "shm-too-small-here")
    findings = tuple(Finding(s, "m") for s in severities)
    results = [CheckResult(check, Outcome.FAILED if findings else Outcome.PASSED, findings)]
    results += [CheckResult(check, Outcome.CRASHED)] if crashed else []
    return Report("check", tuple(results), notifications=notes)


@pytest.mark.parametrize(
    ("severity", "fail_on", "status"),
    [
        (Severity.ERROR, "error", 1),
        (Severity.WARNING, "error", 0),
        (Severity.WARNING, "warning", 1),
        (Severity.NOTE, "warning", 0),
        (Severity.NOTE, "note", 1),
        (Severity.ERROR, "never", 0),
    ],
)
def test_exit_code_by_severity(severity: Severity, fail_on: str, status: int) -> None:
    assert report(severity).exit_code(fail_on) == status


def test_a_crash_ends_with_3_unless_there_are_findings() -> None:
    assert report(crashed=True).exit_code() == 3
    assert report(Severity.ERROR, crashed=True).exit_code() == 1
    assert report(Severity.ERROR, crashed=True).exit_code("never") == 3


def test_what_could_not_be_looked_at_is_no_success() -> None:
    assert report(notes=(Notification("does not parse"),)).exit_code() == 3
    assert report(notes=(Notification("unused comment", incomplete=False),)).exit_code() == 0


def test_a_suppressed_finding_counts_nowhere() -> None:
    check = reports.check("SHM098", "shm-too-small-here")
    silenced = Finding(Severity.ERROR, "m", suppression=Suppression("in-source"))
    found = Report("lint", (CheckResult(check, Outcome.PASSED, (silenced,)),))
    assert (found.exit_code(), found.worst(), list(found.findings())) == (0, None, [])
    assert len(found.findings(suppressed=True)) == 1


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 MiB"),
        (512, "0.5 KiB"),
        (64 << 20, "64 MiB"),
        (1 << 30, "1 GiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 40, "1024 GiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert mib(size) == words


def test_plurals() -> None:
    assert (counted(1, "worker"), counted(0, "worker"), counted(2, "worker")) == (
        "1 worker",
        "0 workers",
        "2 workers",
    )

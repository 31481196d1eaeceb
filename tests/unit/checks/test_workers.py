"""WRK0xx: workers that fail, and limits that leave no room for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import workers as checks
from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.facts.shm import ShmFacts
from torch_doctor.facts.workers import FILES_CAUSE, PROCESSES_CAUSE, SHM_CAUSE, TEMP_CAUSE, LimitFacts, WorkerFacts
from torch_doctor.facts.workers import MethodResult as Result
from torch_doctor.model import Finding, Severity

GIB = 1 << 30
NOTHING = Requirements()
SHM = ShmFacts(8 * GIB, 8 * GIB)
LIMITS = LimitFacts(files_soft=1048576, files_hard=1048576, manager="docker")
OK = Result(True, 0.1)
FAILED = Result(False, 0.1, "PicklingError: no")


def judged(facts: WorkerFacts, limits: LimitFacts = LIMITS, shm: ShmFacts = SHM) -> list[Finding]:
    return list(checks.workers_fail(facts, limits, shm, NOTHING))


def test_workers_that_work_have_no_fault() -> None:
    assert judged(WorkerFacts({"fork": OK, "spawn": OK}, "fork")) == []


@pytest.mark.parametrize(
    ("failing", "default", "wanted", "severity"),
    [
        ("fork", "fork", set(), Severity.ERROR),
        ("spawn", "fork", set(), Severity.WARNING),
        ("spawn", "fork", {"spawn"}, Severity.ERROR),
        ("fork", "fork", {"spawn"}, Severity.WARNING),
        ("forkserver", "forkserver", set(), Severity.ERROR),
    ],
)
def test_the_method_that_the_run_uses_is_an_error(
    failing: str, default: str, wanted: set[str], severity: Severity
) -> None:
    methods = dict.fromkeys(("fork", "forkserver", "spawn"), OK) | {failing: FAILED}
    (finding,) = judged(WorkerFacts(methods, default, frozenset(wanted)))
    assert finding.severity is severity
    assert finding.message == f"DataLoader workers fail under {failing}: PicklingError: no"
    assert finding.remediation.commands[0].startswith("DataLoader(..., multiprocessing_context='")
    assert failing not in finding.remediation.commands[0].replace(
        "forkserver", "" if failing == "fork" else "forkserver"
    )


def test_one_error_of_several_methods_is_one_finding() -> None:
    (finding,) = judged(WorkerFacts({"fork": FAILED, "spawn": FAILED}, "fork"))
    assert finding.message == "DataLoader workers fail under fork, spawn: PicklingError: no"


@pytest.mark.parametrize(
    ("cause", "limits", "shm", "named"),
    [
        (TEMP_CAUSE, LIMITS, SHM, "FS"),
        (FILES_CAUSE, replace(LIMITS, files_soft=64), SHM, "WRK002"),
        (PROCESSES_CAUSE, replace(LIMITS, pids_limit=20, pids_current=5), SHM, "WRK004"),
        (SHM_CAUSE, LIMITS, replace(SHM, error="EACCES"), "SHM004"),
        (SHM_CAUSE, LIMITS, replace(SHM, size_bytes=64 << 20), "SHM001"),
    ],
)
def test_a_failure_whose_cause_another_check_names_is_a_note(
    cause: str, limits: LimitFacts, shm: ShmFacts, named: str
) -> None:
    (finding,) = judged(WorkerFacts({"fork": replace(FAILED, cause=cause)}, "fork"), limits, shm)
    assert finding.severity is Severity.NOTE and named in finding.remediation.text
    if cause != TEMP_CAUSE:
        (finding,) = judged(WorkerFacts({"fork": replace(FAILED, cause=cause)}, "fork"))
        assert finding.severity is Severity.ERROR


# -- open files ----------------------------------------------------------------------------------------------


def files(soft: int | None, needs: Requirements = NOTHING, hard: int | None = None) -> list[Finding]:
    return list(checks.open_files_limit_too_low(replace(LIMITS, files_soft=soft, files_hard=hard or soft), needs))


def loaders(workers: int, prefetch: int | None = None) -> Requirements:
    return Requirements(loaders=(LoaderNeed(1, workers, 1, prefetch),))


@pytest.mark.parametrize(
    ("soft", "needs", "severity"),
    [
        (64, NOTHING, Severity.ERROR),
        (191, NOTHING, Severity.ERROR),
        (192, NOTHING, Severity.WARNING),
        (1023, NOTHING, Severity.WARNING),
        (1024, NOTHING, None),
        (None, NOTHING, None),
        (1024, loaders(32, 8), Severity.ERROR),
        (4096, loaders(32, 8), None),
        (64, loaders(0), Severity.ERROR),
    ],
)
def test_open_files(soft: int | None, needs: Requirements, severity: Severity | None) -> None:
    assert [f.severity for f in files(soft, needs)] == ([severity] if severity else [])


def test_a_soft_limit_is_raised_in_the_shell_and_a_hard_one_on_the_container() -> None:
    assert files(64, hard=4096)[0].remediation.commands == ("ulimit -n $(ulimit -Hn)",)
    assert files(64, hard=64)[0].remediation.commands == ("docker run --ulimit nofile=16384:16384 ...",)
    many = loaders(1000, 64)
    assert files(64, many, hard=64)[0].remediation.commands == ("docker run --ulimit nofile=65536:65536 ...",)


# -- CPUs and processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "processes", "quota", "found"),
    [
        (2, 1, None, 0),
        (4, 1, None, 0),
        (5, 1, None, 1),
        (2, 1, 1.5, 0),
        (3, 1, 1.5, 1),
        (2, 4, None, 1),
        (0, 1, 0.5, 0),
    ],
)
def test_more_workers_than_cpus(workers: int, processes: int, quota: float | None, found: int) -> None:
    needs = replace(loaders(workers), local_processes=processes)
    cpu = CpuFacts(4, 4, 4, quota=quota, manager="docker")
    findings = list(checks.more_workers_than_cpus(cpu, needs))
    assert len(findings) == found
    assert all(f.severity is Severity.WARNING for f in findings)


def test_a_quota_is_raised_and_a_full_machine_is_not() -> None:
    (limited,) = checks.more_workers_than_cpus(CpuFacts(8, 8, 8, quota=2.0, manager="docker"), loaders(6))
    assert limited.remediation.commands == ("docker run --cpus=6 ...",)
    assert limited.message == "6 workers; 2 CPUs for this process"
    (full,) = checks.more_workers_than_cpus(CpuFacts(2, 2, 2, manager="docker"), loaders(6))
    assert full.remediation.commands == () and "num_workers=2" in full.remediation.text


@pytest.mark.parametrize(
    ("limit", "current", "severity"),
    [
        (None, None, None),
        (4096, 10, None),
        (300, 44, None),
        (299, 44, Severity.WARNING),
        (64, 10, Severity.WARNING),
        (64, 30, Severity.ERROR),
        (20, 10, Severity.ERROR),
        (20, 30, Severity.ERROR),
    ],
)
def test_the_pids_limit(limit: int | None, current: int | None, severity: Severity | None) -> None:
    limits = replace(LIMITS, pids_limit=limit, pids_current=current, cpu_threads=2)
    found = list(checks.process_limit_too_low(limits, NOTHING))
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_the_users_limit_counts_what_the_user_runs_already() -> None:
    limits = replace(LIMITS, processes_soft=200, user_threads=190)
    (finding,) = checks.process_limit_too_low(limits, NOTHING)
    assert finding.remediation.commands == ("ulimit -u $(ulimit -Hu)",) and "room for 10 threads" in finding.message
    assert not list(checks.process_limit_too_low(replace(limits, is_root=True), NOTHING))


def test_the_workers_of_each_rank_count() -> None:
    assert checks.tasks_needed(replace(LIMITS, cpu_threads=4), replace(loaders(8), local_processes=2)) == 2 * (
        24 + 4 + 24
    )

"""CPU checks on facts of machines, containers and jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import cpu as checks
from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.model import Severity

HOST = CpuFacts(online=64, affinity=64, physical_cores=32)
LIMITED = replace(HOST, quota=4.0, quota_source="/x/cpu.max", manager="docker")
ALL = (
    checks.threads_exceed_quota,
    checks.cpu_throttled,
    checks.too_few_cpus,
    checks.thread_setting_invalid,
    checks.ranks_times_threads_exceed_cpus,
    checks.affinity_is_one_cpu,
    checks.compile_workers_exceed_quota,
    checks.workers_times_threads_exceed_cpus,
)


@pytest.mark.parametrize(
    "facts",
    [
        HOST,
        replace(LIMITED, threads={"OMP_NUM_THREADS": "4"}),
        replace(LIMITED, threads={"MKL_NUM_THREADS": "2"}),
        replace(LIMITED, quota=32.0),
        replace(HOST, compiles=True),
        replace(HOST, workers=64),
        replace(HOST, workers=64, threads={"OMP_NUM_THREADS": "1"}),
        replace(HOST, workers=16, threads={"OMP_NUM_THREADS": "16"}),
        replace(LIMITED, quota=32.0, compiles=True),
        CpuFacts(online=2, affinity=1, physical_cores=1),
        replace(HOST, threads={"OMP_NUM_THREADS": "8,2"}),
    ],
)
def test_a_healthy_machine_has_no_finding(facts: CpuFacts) -> None:
    assert [finding for check in ALL for finding in check(facts)] == []


def test_torch_does_not_know_the_quota() -> None:
    (finding,) = checks.threads_exceed_quota(LIMITED)
    assert (finding.severity, finding.message) == (
        Severity.WARNING,
        "torch starts 32 threads on a quota of 4 CPUs",
    )
    assert finding.remediation.commands == ("docker run -e OMP_NUM_THREADS=4 ...",)


@pytest.mark.parametrize(
    ("quota", "message", "threads"),
    [
        (1.0, "torch starts 32 threads on a quota of 1 CPU", 1),
        (1.5, "torch starts 32 threads on a quota of 1.5 CPUs", 2),
        (0.5, "torch starts 32 threads on a quota of 0.5 CPUs", 1),
    ],
)
def test_part_of_a_cpu_is_rounded_up(quota: float, message: str, threads: int) -> None:
    (finding,) = checks.threads_exceed_quota(replace(LIMITED, quota=quota))
    assert finding.message == message
    assert finding.remediation.commands == (f"docker run -e OMP_NUM_THREADS={threads} ...",)


def test_the_remedy_removes_the_finding() -> None:
    (finding,) = checks.threads_exceed_quota(LIMITED)
    setting = finding.remediation.commands[0].split()[3].split("=")[1]
    assert list(checks.threads_exceed_quota(replace(LIMITED, threads={"OMP_NUM_THREADS": setting}))) == []


def test_a_setting_above_the_affinity_is_named_without_a_quota() -> None:
    (finding,) = checks.threads_exceed_quota(
        CpuFacts(online=8, affinity=2, physical_cores=2, threads={"OMP_NUM_THREADS": "16"})
    )
    assert finding.message == "torch starts 16 threads on 2 CPUs"
    assert finding.remediation.commands == ("export OMP_NUM_THREADS=2",)


def test_kubernetes_gets_its_own_command() -> None:
    (finding,) = checks.threads_exceed_quota(replace(LIMITED, manager="kubernetes"))
    assert finding.remediation.commands == ("kubectl set env deployment NAME OMP_NUM_THREADS=4",)


@pytest.mark.parametrize(
    ("periods", "throttled", "found"), [(99, 99, 0), (100, 24, 0), (100, 25, 1), (5000, 4000, 1)]
)
def test_throttling_counts_from_a_quarter_of_a_hundred_periods(periods: int, throttled: int, found: int) -> None:
    facts = replace(LIMITED, periods=periods, throttled_periods=throttled)
    assert len(list(checks.cpu_throttled(facts))) == found


def test_throttling_is_said_in_per_cent() -> None:
    (finding,) = checks.cpu_throttled(replace(LIMITED, periods=600, throttled_periods=450))
    assert finding.message == "stopped at the quota of 4 CPUs in 75 % of 600 periods"
    assert finding.remediation.commands == ("docker update --cpus=8 CONTAINER",)


@pytest.mark.parametrize(("needed", "commands"), [(8, ("docker run --cpus=8 ...",)), (128, ())])
def test_cpus_that_were_asked_for(needed: int, commands: tuple[str, ...]) -> None:
    (finding,) = checks.too_few_cpus(replace(LIMITED, needed=needed))
    assert (finding.severity, finding.message) == (
        Severity.ERROR,
        f"{needed} CPUs asked for; this process can use 4",
    )
    assert finding.remediation.commands == commands
    assert list(checks.too_few_cpus(replace(LIMITED, needed=4))) == []


@pytest.mark.parametrize("value", ["auto", "0", "-1", "4.0", "4,0"])
def test_a_setting_that_is_no_number_is_named(value: str) -> None:
    (finding,) = checks.thread_setting_invalid(replace(HOST, threads={"OMP_NUM_THREADS": value}))
    assert finding.message == f"OMP_NUM_THREADS={value} is not a number of threads"


@pytest.mark.parametrize("value", ["4", " 4 ", "4,2", ""])
def test_numbers_and_lists_of_them_are_settings(value: str) -> None:
    assert list(checks.thread_setting_invalid(replace(HOST, threads={"OMP_NUM_THREADS": value}))) == []


def test_ranks_times_threads() -> None:
    facts = replace(HOST, processes=8, threads={"OMP_NUM_THREADS": "32"})
    (finding,) = checks.ranks_times_threads_exceed_cpus(facts)
    assert finding.message == "8 ranks x 32 threads on 64 CPUs"
    assert finding.remediation.commands == ("export OMP_NUM_THREADS=8",)
    # torchrun sets one thread where nothing is set
    assert list(checks.ranks_times_threads_exceed_cpus(replace(HOST, processes=8))) == []


@pytest.mark.parametrize(("quota", "number"), [(16.0, 0), (15.0, 1), (4.0, 1)])
def test_compilers_are_started_for_every_cpu_that_is_seen(quota: float, number: int) -> None:
    findings = list(checks.compile_workers_exceed_quota(replace(LIMITED, quota=quota, compiles=True)))
    assert [f.message for f in findings] == [f"torch.compile starts 32 workers on {quota:g} CPUs"] * number
    for finding in findings:
        assert finding.remediation.commands == (f"docker run -e TORCHINDUCTOR_COMPILE_THREADS={quota:g} ...",)


def test_a_script_that_does_not_compile_and_a_setting_are_no_fault() -> None:
    assert list(checks.compile_workers_exceed_quota(LIMITED)) == []
    assert list(checks.compile_workers_exceed_quota(replace(LIMITED, compiles=True, compile_threads="8"))) == []


def test_threads_in_every_worker_are_a_note() -> None:
    (finding,) = checks.workers_times_threads_exceed_cpus(
        replace(HOST, workers=17, threads={"OMP_NUM_THREADS": "16"})
    )
    assert (finding.severity, finding.message) == (
        Severity.NOTE,
        "17 workers x 16 threads on 64 CPUs, for NumPy and OpenCV",
    )
    assert finding.remediation.commands == ("export OMP_NUM_THREADS=3",)


def test_one_cpu_of_many() -> None:
    (finding,) = checks.affinity_is_one_cpu(replace(HOST, affinity=1, physical_cores=1, manager="slurm"))
    assert finding.message == "this process may run on 1 of 64 CPUs"
    assert finding.remediation.commands == ("srun --cpus-per-task=8 ...",)

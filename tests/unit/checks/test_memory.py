"""Memory checks on facts of machines, containers and jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import memory as checks
from torch_doctor.facts.memory import SPAWNED_WORKER_BYTES, WORKER_BYTES, MemoryFacts
from torch_doctor.model import Severity

GIB, MIB = 1 << 30, 1 << 20
HOST = MemoryFacts(64 * GIB, 60 * GIB)
CONTAINER = replace(HOST, limit_bytes=8 * GIB, usage_bytes=GIB, manager="docker", limit_source="/x/memory.max")
ALL = (
    checks.memory_limit_too_small,
    checks.oom_kills_counted,
    checks.memory_nearly_used_up,
    checks.memory_swapped_out,
    checks.address_space_limited,
)


@pytest.mark.parametrize("facts", [HOST, CONTAINER, replace(CONTAINER, limit_bytes=GIB, usage_bytes=20 * MIB)])
def test_a_healthy_machine_has_no_finding(facts: MemoryFacts) -> None:
    assert [finding for check in ALL for finding in check(facts)] == []


def test_a_limit_below_what_torch_needs_is_an_error_with_the_flag_to_add() -> None:
    (finding,) = checks.memory_limit_too_small(replace(CONTAINER, limit_bytes=512 * MIB))
    assert (finding.severity, finding.message) == (
        Severity.ERROR,
        "the memory limit is 512 MiB; one process with torch and CUDA needs about 1 GiB",
    )
    assert finding.remediation.commands[0] == "docker run --memory=1g ..."
    assert "mem_limit: 1g" in finding.remediation.text


@pytest.mark.parametrize(("limit", "found"), [(GIB - 1, 1), (GIB, 0)])
def test_the_boundary_is_one_gib(limit: int, found: int) -> None:
    assert len(list(checks.memory_limit_too_small(replace(CONTAINER, limit_bytes=limit)))) == found


def test_what_was_asked_for_is_the_floor() -> None:
    (finding,) = checks.memory_limit_too_small(replace(CONTAINER, needed_bytes=32 * GIB))
    assert finding.message == "the memory limit is 8 GiB; this run needs 32 GiB"
    assert finding.remediation.commands[0] == "docker run --memory=32g ..."
    assert list(checks.memory_limit_too_small(replace(CONTAINER, needed_bytes=8 * GIB))) == []


def test_a_machine_without_the_memory_gets_no_flag_that_cannot_help() -> None:
    (finding,) = checks.memory_limit_too_small(replace(HOST, needed_bytes=128 * GIB))
    assert finding.message == "this machine has 64 GiB of memory; this run needs 128 GiB"
    assert finding.remediation.commands == ()


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("kubernetes", "kubectl set resources deployment NAME --limits=memory=16Gi --requests=memory=16Gi"),
        ("slurm", "sbatch --mem=16G ..."),
        ("", "systemd-run --scope -p MemoryMax=16G python train.py"),
    ],
)
def test_the_command_speaks_the_language_of_what_set_the_limit(manager: str, command: str) -> None:
    (finding,) = checks.memory_limit_too_small(replace(CONTAINER, manager=manager, needed_bytes=16 * GIB))
    assert finding.remediation.commands == (command,)


@pytest.mark.parametrize(
    ("workers", "worker_bytes", "severity"),
    [(8, WORKER_BYTES, None), (9, WORKER_BYTES, Severity.WARNING), (4, SPAWNED_WORKER_BYTES, Severity.WARNING)],
)
def test_workers_are_counted_in(workers: int, worker_bytes: int, severity: Severity | None) -> None:
    facts = replace(CONTAINER, limit_bytes=2 * GIB, workers=workers, worker_bytes=worker_bytes)
    assert [f.severity for f in checks.memory_limit_too_small(facts)] == ([severity] if severity else [])


def test_batches_in_shared_memory_count_against_the_limit() -> None:
    (finding,) = checks.memory_limit_too_small(replace(CONTAINER, workers=4, shm_bytes=8 * GIB))
    assert finding.message == "the memory limit is 8 GiB; torch and 4 DataLoader workers take about 9.5 GiB"


def test_every_rank_counts() -> None:
    (finding,) = checks.memory_limit_too_small(replace(CONTAINER, processes=8, workers=2))
    assert finding.message == "the memory limit is 8 GiB; 8 ranks with 2 DataLoader workers each take about 10 GiB"


def test_kills_that_were_counted_are_named() -> None:
    (finding,) = checks.oom_kills_counted(replace(CONTAINER, oom_kills=3))
    assert finding.severity is Severity.WARNING
    assert finding.message == "the kernel has killed 3 processes here for memory at the limit of 8 GiB"
    assert finding.remediation.commands[0] == "docker run --memory=16g ..."


def test_hits_of_the_limit_alone_are_no_fault() -> None:
    assert list(checks.oom_kills_counted(replace(CONTAINER, limit_hits=5000))) == []


def test_page_cache_that_can_be_dropped_is_free() -> None:
    full = replace(CONTAINER, usage_bytes=8 * GIB - MIB)
    assert len(list(checks.memory_nearly_used_up(full))) == 1
    assert list(checks.memory_nearly_used_up(replace(full, reclaimable_bytes=4 * GIB))) == []


def test_memory_that_others_hold_is_named() -> None:
    (finding,) = checks.memory_nearly_used_up(replace(HOST, available_bytes=10 * GIB, needed_bytes=32 * GIB))
    assert (finding.severity, finding.message) == (
        Severity.WARNING,
        "10 GiB of 64 GiB of memory is free; this run needs 32 GiB",
    )


def test_a_limit_that_is_too_low_is_not_reported_twice() -> None:
    assert list(checks.memory_nearly_used_up(replace(CONTAINER, limit_bytes=512 * MIB, usage_bytes=500 * MIB))) == []


@pytest.mark.parametrize(("used", "available", "found"), [(2, 3, 1), (2, 30, 0), (0, 3, 0)])
def test_swapping_needs_swap_in_use_and_little_memory(used: int, available: int, found: int) -> None:
    facts = replace(HOST, swap_total_bytes=8 * GIB, swap_free_bytes=(8 - used) * GIB, available_bytes=available * GIB)
    assert len(list(checks.memory_swapped_out(facts))) == found


def test_limits_of_the_address_space_are_warnings() -> None:
    findings = list(checks.address_space_limited(replace(HOST, address_space_bytes=16 * GIB, overcommit_mode=2)))
    assert [f.remediation.commands for f in findings] == [
        ("ulimit -v unlimited",),
        ("sysctl -w vm.overcommit_memory=0",),
    ]
    assert list(checks.address_space_limited(replace(HOST, overcommit_mode=1))) == []

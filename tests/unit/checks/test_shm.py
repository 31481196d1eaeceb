"""SHM0xx: what is said of /dev/shm, healthy, broken and at the boundary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import shm as checks
from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.facts.shm import ABSENT, ACTIVE, INACTIVE, OFF, Leftover, ShmFacts
from torch_doctor.model import Finding, Remediation, Severity

MIB, GIB = 1 << 20, 1 << 30
NOTHING = Requirements()
HEALTHY = ShmFacts(8 * GIB, 8 * GIB, map_count_limit=65530, manager="docker")
SMALL = ShmFacts(64 * MIB, 64 * MIB, manager="docker")


def only(findings: object) -> Finding:
    (finding,) = list(findings)  # type: ignore[call-overload]
    assert isinstance(finding, Finding)
    return finding


def test_a_healthy_one_has_no_fault() -> None:
    assert not [
        *checks.shm_too_small(HEALTHY, NOTHING),
        *checks.shm_nearly_full(HEALTHY, NOTHING),
        *checks.shm_leftovers(HEALTHY),
        *checks.shm_not_writable_tmpfs(HEALTHY, NOTHING),
        *checks.map_count_too_low(HEALTHY),
        *checks.shm_fallback_cannot_work(HEALTHY),
    ]


def test_64_mib_is_too_small() -> None:
    assert only(checks.shm_too_small(SMALL, NOTHING)) == Finding(
        Severity.ERROR,
        "/dev/shm is 64 MiB; DataLoader workers need 1 GiB",
        Remediation(
            "Recreate the container with more shared memory; it costs nothing until it is used "
            "(compose: shm_size: 8g on the service)",
            ("docker run --shm-size=8g ...",),
        ),
        {"size_bytes": 64 * MIB, "needed_bytes": GIB, "needed_for": "", "fallback": ABSENT},
    )


@pytest.mark.parametrize(("size", "found"), [(GIB - 1, 1), (GIB, 0)])
def test_the_boundary_is_the_need(size: int, found: int) -> None:
    assert len(list(checks.shm_too_small(replace(HEALTHY, size_bytes=size), NOTHING))) == found


def test_the_need_of_the_script_is_named() -> None:
    facts = replace(SMALL, needed_bytes=3 * GIB, needed_for="train.py:12: 8 workers x 2 batches x 64 samples")
    message = only(checks.shm_too_small(facts, NOTHING)).message
    assert message == "/dev/shm is 64 MiB; this run needs 3 GiB (train.py:12: 8 workers x 2 batches x 64 samples)"


def test_a_script_without_workers_needs_nothing() -> None:
    assert not list(checks.shm_too_small(replace(SMALL, needed_bytes=0), NOTHING))


def test_a_script_without_a_loader_gets_a_warning() -> None:
    assert only(checks.shm_too_small(SMALL, Requirements(script="train.py"))).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("docker", "docker run --shm-size=8g ..."),
        ("", "sudo mount -o remount,size=8g /dev/shm"),
        ("slurm", "sudo mount -o remount,size=8g /dev/shm"),
        ("kubernetes", 'volumes: [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]'),
    ],
)
def test_the_remedy_fits_what_started_the_process(manager: str, command: str) -> None:
    finding = only(checks.shm_too_small(replace(SMALL, manager=manager), NOTHING))
    assert finding.remediation.commands[0] == command


@pytest.mark.parametrize(("gib", "asked"), [(0, 8), (6, 8), (7, 16), (16, 32), (100, 128)])
def test_the_size_to_ask_for_leaves_a_quarter(gib: int, asked: int) -> None:
    assert checks.size_to_ask_for(gib * GIB) == asked


def test_a_stated_need_has_its_headroom_already() -> None:
    facts = replace(SMALL, needed_bytes=16 * GIB, needed_for="--need shm=16g")
    assert only(checks.shm_too_small(facts, NOTHING)).remediation.commands == ("docker run --shm-size=16g ...",)


def test_an_active_fallback_makes_it_a_note_and_says_what_bounds_it() -> None:
    facts = replace(SMALL, fallback=ACTIVE, fallback_reason="small", memory_limit_bytes=16 * GIB)
    finding = only(checks.shm_too_small(facts, NOTHING))
    assert finding.severity is Severity.NOTE
    assert finding.message.endswith("the shared-memory fallback serves them, up to 16 GiB of memory")


def test_a_fallback_that_memory_does_not_cover_is_an_error() -> None:
    facts = replace(
        SMALL, fallback=ACTIVE, memory_limit_bytes=2 * GIB, needed_bytes=4 * GIB, needed_for="train.py:3: ..."
    )
    finding = only(checks.shm_too_small(facts, NOTHING))
    assert finding.severity is Severity.ERROR and "more than the 2 GiB of memory" in finding.message


def test_a_rule_of_thumb_does_not_call_memory_too_small() -> None:
    facts = replace(SMALL, fallback=ACTIVE, memory_limit_bytes=512 * MIB)
    assert only(checks.shm_too_small(facts, NOTHING)).severity is Severity.NOTE


def test_a_fallback_that_is_off_can_be_turned_on() -> None:
    finding = only(checks.shm_too_small(replace(SMALL, fallback=OFF, fallback_reason="off"), NOTHING))
    assert finding.severity is Severity.ERROR and "unset TORCH_DOCTOR_SHM" in finding.remediation.text


@pytest.mark.parametrize(
    ("free", "needs", "severity"),
    [
        (GIB, NOTHING, None),
        (GIB // 2, NOTHING, Severity.NOTE),
        (GIB // 8, NOTHING, Severity.WARNING),
        (0, NOTHING, Severity.ERROR),
        (GIB // 8, Requirements(loaders=(LoaderNeed(1, 4),)), Severity.ERROR),
    ],
)
def test_a_full_one_is_a_fault_of_its_own(free: int, needs: Requirements, severity: Severity | None) -> None:
    found = list(checks.shm_nearly_full(replace(HEALTHY, free_bytes=free), needs))
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_no_inode_is_as_bad_as_no_space() -> None:
    finding = only(checks.shm_nearly_full(replace(HEALTHY, free_inodes=0), NOTHING))
    assert "no inode" in finding.message


def test_leftovers_of_dead_owners_are_listed_with_the_command() -> None:
    facts = replace(
        HEALTHY,
        leftovers=(
            Leftover(("torch_4711_1_0", "torch_4711_2_1"), GIB, 4711, "torch_4711_"),
            Leftover(("psm_1a2b3c4d",), 4096),
        ),
    )
    finding = only(checks.shm_leftovers(facts))
    assert finding.severity is Severity.WARNING
    assert finding.message == "3 files of dead processes in /dev/shm: 1 GiB"
    assert finding.remediation.commands == ("rm -rf /dev/shm/torch_4711_*", "rm -f /dev/shm/psm_1a2b3c4d")
    assert finding.evidence["dead_pids"] == [4711]


def test_small_leftovers_are_a_note() -> None:
    facts = replace(HEALTHY, leftovers=(Leftover(("sem.mp-abc",), 32),))
    assert only(checks.shm_leftovers(facts)).severity is Severity.NOTE


@pytest.mark.parametrize(
    ("error", "words"),
    [("ENOENT", "does not exist"), ("EROFS", "read-only"), ("EACCES", "cannot be written"), ("EIO", "EIO")],
)
def test_one_that_cannot_be_written_is_named(error: str, words: str) -> None:
    finding = only(checks.shm_not_writable_tmpfs(replace(HEALTHY, error=error), NOTHING))
    assert finding.severity is Severity.ERROR and words in finding.message
    served = only(checks.shm_not_writable_tmpfs(replace(HEALTHY, error=error, fallback=ACTIVE), NOTHING))
    assert served.severity is Severity.NOTE


def test_a_full_one_is_not_called_unwritable() -> None:
    assert not list(checks.shm_not_writable_tmpfs(replace(HEALTHY, error="ENOSPC"), NOTHING))


@pytest.mark.parametrize(("kind", "found"), [("tmpfs", 0), ("ramfs", 0), ("", 0), ("overlay", 1), ("ext4", 1)])
def test_one_on_a_disk_is_slow(kind: str, found: int) -> None:
    assert len(list(checks.shm_not_writable_tmpfs(replace(HEALTHY, kind=kind), NOTHING))) == found


@pytest.mark.parametrize(("limit", "found"), [(65529, 1), (65530, 0), (262144, 0), (None, 0)])
def test_the_number_of_mappings(limit: int | None, found: int) -> None:
    assert len(list(checks.map_count_too_low(replace(HEALTHY, map_count_limit=limit)))) == found


@pytest.mark.parametrize(
    ("fallback", "reason", "size", "found"),
    [
        (INACTIVE, "no_memfd", 64 * MIB, 1),
        (INACTIVE, "no_folder", 64 * MIB, 1),
        (ABSENT, "static", 64 * MIB, 1),
        (ABSENT, "musl", 64 * MIB, 1),
        (ABSENT, "", 64 * MIB, 0),
        (INACTIVE, "no_memfd", GIB, 0),
        (INACTIVE, "large", 64 * MIB, 0),
        (ACTIVE, "small", 64 * MIB, 0),
        (OFF, "off", 64 * MIB, 0),
    ],
)
def test_where_the_fallback_cannot_work(fallback: str, reason: str, size: int, found: int) -> None:
    facts = replace(SMALL, size_bytes=size, fallback=fallback, fallback_reason=reason)
    assert len(list(checks.shm_fallback_cannot_work(facts))) == found

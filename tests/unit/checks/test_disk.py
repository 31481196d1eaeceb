"""Checks of space, inodes and what serves a folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import disk as checks
from torch_doctor.facts.filesystem import FsFacts, Place
from torch_doctor.model import Severity

GIB, MIB = 1 << 30, 1 << 20
ROOT = {
    "kind": "ext4",
    "mount_point": "/",
    "free_bytes": 50 * GIB,
    "total_bytes": 100 * GIB,
    "free_inodes": 10**6,
    "total_inodes": 10**7,
}
WORKSPACE = Place("workspace", "/work", **ROOT)  # type: ignore[arg-type]
TMP = Place("tmp", "/tmp", **ROOT)  # type: ignore[arg-type]
TMPFS = replace(TMP, kind="tmpfs", mount_point="/tmp", total_bytes=GIB, free_bytes=GIB)
ALL = (
    checks.disk_nearly_full,
    checks.inodes_nearly_used_up,
    checks.disk_too_small_for_run,
    checks.tmp_on_network_file_system,
    checks.file_size_limited,
    checks.files_on_desktop_share,
    checks.file_system_gives_no_answer,
)


def facts(*places: Place, **fields: object) -> FsFacts:
    return FsFacts(**{"places": places, "uid": 1000, "gid": 1000, "manager": "docker", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        facts(WORKSPACE, TMP),
        facts(WORKSPACE, TMPFS),
        # btrfs, and many file systems in user space, have no fixed number of inodes
        facts(replace(WORKSPACE, total_inodes=0, free_inodes=0)),
        # read-only images are always full
        facts(replace(WORKSPACE, error="EROFS", free_bytes=0)),
        facts(replace(WORKSPACE, kind="nfs4"), TMP, needed_bytes=50 * GIB),
        # a sandbox whose root itself is served from outside
        facts(replace(WORKSPACE, kind="9p"), replace(TMP, kind="9p")),
    ],
)
def test_healthy_disks_have_no_finding(given: FsFacts) -> None:
    assert [finding for check in ALL for finding in check(given)] == []


@pytest.mark.parametrize(("free", "number"), [(GIB, 0), (GIB - 1, 1)])
def test_one_gib_is_what_a_disk_must_have(free: int, number: int) -> None:
    findings = list(checks.disk_nearly_full(facts(replace(WORKSPACE, free_bytes=free))))
    assert [f.severity for f in findings] == [Severity.WARNING] * number


def test_a_small_tmpfs_gets_a_larger_one() -> None:
    (finding,) = checks.disk_nearly_full(facts(WORKSPACE, replace(TMPFS, total_bytes=64 * MIB, free_bytes=64 * MIB)))
    assert finding.message == "64 MiB of 64 MiB is free for tmp /tmp"
    assert finding.remediation.commands == ("docker run --tmpfs /tmp:exec,size=4g ...",)
    assert list(checks.disk_nearly_full(facts(replace(TMPFS, free_bytes=256 * MIB)))) == []


def test_one_disk_is_full_once() -> None:
    full = {"free_bytes": 10 * MIB}
    (finding,) = checks.disk_nearly_full(facts(replace(WORKSPACE, **full), replace(TMP, **full)))
    assert finding.message == "10 MiB of 100 GiB is free for workspace /work, tmp /tmp"


@pytest.mark.parametrize(("error", "what"), [("ENOSPC", "disk is full"), ("EDQUOT", "quota is used up")])
def test_a_write_that_failed_for_space_is_an_error(error: str, what: str) -> None:
    (finding,) = checks.disk_nearly_full(facts(replace(WORKSPACE, error=error, free_bytes=0)))
    assert finding.severity is Severity.ERROR
    assert finding.message == f"the {what}: workspace /work (0 MiB of 100 GiB free)"


@pytest.mark.parametrize(("free", "severity"), [(999, Severity.WARNING), (0, Severity.ERROR)])
def test_inodes(free: int, severity: Severity) -> None:
    (finding,) = checks.inodes_nearly_used_up(facts(replace(WORKSPACE, free_inodes=free)))
    assert (finding.severity, finding.message) == (
        severity,
        f"{free} of 10000000 inodes are free for workspace /work",
    )


def test_no_inode_is_not_reported_as_a_full_disk_too() -> None:
    given = facts(replace(WORKSPACE, error="ENOSPC", free_inodes=0))
    assert list(checks.disk_nearly_full(given)) == []
    assert len(list(checks.inodes_nearly_used_up(given))) == 1


def test_what_the_run_needs_is_judged_where_it_saves() -> None:
    saved = Place("checkpoints", "/big", **{**ROOT, "free_bytes": 300 * GIB, "total_bytes": 400 * GIB})  # type: ignore[arg-type]
    assert list(checks.disk_too_small_for_run(facts(WORKSPACE, saved, needed_bytes=200 * GIB))) == []
    (finding,) = checks.disk_too_small_for_run(facts(WORKSPACE, needed_bytes=200 * GIB))
    assert (finding.severity, finding.message) == (
        Severity.ERROR,
        "50 GiB is free for workspace /work; this run needs 200 GiB",
    )


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "cifs"])
def test_temporary_files_on_another_machine(kind: str) -> None:
    given = facts(replace(TMP, kind=kind, origin="TMPDIR", path="/home/u/tmp", mount_point="/home"), manager="")
    (finding,) = checks.tmp_on_network_file_system(given)
    assert finding.message == f"TMPDIR /home/u/tmp is on a network file system ({kind}, mounted at /home)"


@pytest.mark.parametrize("kind", ["9p", "virtiofs", "fuse.grpcfuse"])
def test_a_folder_of_windows_is_slow(kind: str) -> None:
    given = facts(replace(WORKSPACE, kind=kind, path="/mnt/c/work", mount_point="/mnt/c"), manager="")
    (finding,) = checks.files_on_desktop_share(given)
    assert finding.severity is Severity.NOTE
    assert finding.message == f"workspace /mnt/c/work comes through {kind} (mounted at /mnt/c): slow for many files"


def test_a_limit_of_file_size() -> None:
    (finding,) = checks.file_size_limited(facts(WORKSPACE, file_size_bytes=GIB, manager=""))
    assert finding.remediation.commands == ("ulimit -f unlimited",)


def test_a_server_that_does_not_answer_is_named_with_its_mount() -> None:
    silent = Place("cache", "/mnt/nfs/hf", "HF_HOME", error="TIMEOUT", kind="nfs4", mount_point="/mnt/nfs")
    (finding,) = checks.file_system_gives_no_answer(facts(WORKSPACE, silent))
    assert finding.severity is Severity.ERROR
    assert finding.message == "HF_HOME /mnt/nfs/hf gives no answer (nfs4, mounted at /mnt/nfs)"
    assert finding.remediation.commands == ("sudo umount -f -l /mnt/nfs",)

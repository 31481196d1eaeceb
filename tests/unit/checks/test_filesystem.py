"""Checks of folders: who may write, execute and read, with the exact flag that mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import filesystem as checks
from torch_doctor.facts.filesystem import FsFacts, Place
from torch_doctor.model import Finding, Severity

GIB = 1 << 30
ROOM = {"free_bytes": 50 * GIB, "total_bytes": 100 * GIB, "free_inodes": 10**6, "total_inodes": 10**7}


def place(role: str, path: str, **fields: object) -> Place:
    return Place(
        **{"role": role, "path": path, "nearest": path, "executable": True, "kind": "ext4", **ROOM, **fields}
    )  # type: ignore[arg-type]


WORKSPACE = place("workspace", "/workspace", mount_point="/workspace", owner_uid=1000, owner_gid=1000)
HOME = place("home", "/home/trainer", origin="HOME", mount_point="/")
TMP = place("tmp", "/tmp", mount_point="/")
DENIED = {"error": "EACCES", "executable": None}
ALL = (
    checks.workspace_not_writable,
    checks.tmp_not_writable,
    checks.cache_not_writable,
    checks.folder_noexec,
    checks.uid_without_name,
    checks.files_owned_by_root,
    checks.data_not_readable,
    checks.checkpoints_not_writable,
)


def facts(*places: Place, **fields: object) -> FsFacts:
    return FsFacts(**{"places": places, "uid": 1000, "gid": 1000, "manager": "docker", **fields})  # type: ignore[arg-type]


def found(given: FsFacts) -> list[Finding]:
    return [finding for check in ALL for finding in check(given)]


@pytest.mark.parametrize(
    "given",
    [
        facts(WORKSPACE, HOME, TMP),
        facts(WORKSPACE, HOME, TMP, manager="", uid=0),
        facts(WORKSPACE, HOME, TMP, place("cache", "/c", origin="HF_HOME", exists=False, nearest="/")),
        facts(WORKSPACE, HOME, TMP, place("checkpoints", "/workspace/out", exists=False, nearest="/workspace")),
        facts(WORKSPACE, HOME, TMP, place("data", "/data/none.h5", exists=False, nearest="/data")),
        facts(WORKSPACE, HOME, TMP, has_name=False, named_by="USER"),
        # full, or silent: other checks say so
        facts(replace(WORKSPACE, error="ENOSPC"), replace(HOME, error="TIMEOUT"), replace(TMP, error="EDQUOT")),
        # the compile checks judge these
        facts(WORKSPACE, place("compile-cache", "/c", **{**DENIED, "executable": False})),
    ],
)
def test_healthy_folders_have_no_finding(given: FsFacts) -> None:
    assert found(given) == []


def test_a_mount_of_another_uid_gets_the_exact_user_flag() -> None:
    (finding,) = found(facts(replace(WORKSPACE, **DENIED, owner_uid=1001, owner_gid=100), HOME, TMP))
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "nothing can be written to the working folder /workspace: "
        "uid 1000 may not write there: it belongs to 1001:100, mode 0755"
    )
    assert finding.remediation.commands == ("docker run --user 1001:100 ...", "sudo chown -R 1000:1000 .")
    assert "runAsUser: 1001" in finding.remediation.text


def test_a_mount_that_belongs_to_root_is_not_answered_with_root() -> None:
    (finding,) = found(facts(replace(WORKSPACE, **DENIED, owner_uid=0, owner_gid=0), HOME, TMP))
    assert finding.remediation.commands == ("sudo chown -R 1000:1000 .",)
    assert "fsGroup: 1000" in finding.remediation.text


def test_an_owner_without_a_number_is_a_user_namespace() -> None:
    (finding,) = found(facts(replace(WORKSPACE, **DENIED, owner_uid=65534, owner_gid=65534)))
    assert finding.remediation.commands == ("podman run --userns=keep-id ...",)


def test_on_a_host_the_folder_is_given_to_the_user() -> None:
    (finding,) = found(
        facts(replace(WORKSPACE, **DENIED, owner_uid=0, path="/srv/a b", nearest="/srv/a b"), manager="")
    )
    assert finding.severity is Severity.WARNING
    assert finding.remediation.commands == ("sudo chown -R 1000:1000 '/srv/a b'",)


@pytest.mark.parametrize(
    ("mode", "command"),
    [(0o555, "chmod u+rwx /workspace"), (0o755, 'docker run -v "$PWD":/workspace:Z ...')],
)
def test_a_folder_of_ones_own(mode: int, command: str) -> None:
    (finding,) = found(facts(replace(WORKSPACE, **DENIED, mode=mode)))
    assert finding.remediation.commands == (command,)


def test_a_read_only_workspace_in_a_container_may_be_meant() -> None:
    (finding,) = found(facts(replace(WORKSPACE, error="EROFS", executable=None), HOME, TMP))
    assert finding.severity is Severity.NOTE
    assert finding.remediation.commands == ('docker run -v "$PWD":/workspace ...',)


def test_but_not_where_the_script_saves_there() -> None:
    saved = place("checkpoints", "/workspace/out", exists=False, nearest="/workspace", error="EROFS", executable=None)
    findings = found(facts(replace(WORKSPACE, error="EROFS", executable=None), HOME, TMP, saved))
    assert [f.severity for f in findings] == [Severity.NOTE, Severity.ERROR]


def test_checkpoints_in_a_workspace_of_another_uid_are_one_fault() -> None:
    saved = place("checkpoints", "/workspace/out", exists=False, nearest="/workspace", **DENIED)
    assert len(found(facts(replace(WORKSPACE, **DENIED, owner_uid=5), HOME, TMP, saved))) == 1


def test_a_read_only_tmp_gets_a_tmpfs_with_exec() -> None:
    (finding,) = found(facts(WORKSPACE, HOME, replace(TMP, error="EROFS", executable=None)))
    assert finding.severity is Severity.ERROR
    assert finding.message == "temporary files have no place in tmp /tmp: the file system is mounted read-only"
    assert finding.remediation.commands == ("docker run --tmpfs /tmp:exec ...",)


def test_a_tmpdir_that_is_not_there_is_made() -> None:
    missing = place("tmp", "/scratch/job 7", origin="TMPDIR", exists=False, nearest="/scratch")
    (finding,) = found(facts(WORKSPACE, HOME, missing, manager="slurm"))
    assert finding.message == "temporary files have no place in TMPDIR /scratch/job 7: it does not exist"
    assert finding.remediation.commands == ("mkdir -p '/scratch/job 7'",)


def test_caches_below_a_bad_tmp_are_not_reported_again() -> None:
    bad = {"error": "EROFS", "executable": None, "nearest": "/tmp"}
    caches = [place("cache", f"/tmp/{name}", origin=name, exists=False, **bad) for name in ("HF_HOME", "TORCH_HOME")]
    caches.append(place("cache", "/tmp/all/x", origin="XDG_CACHE_HOME", **{**bad, "nearest": "/tmp/all"}))
    assert len(found(facts(WORKSPACE, HOME, replace(TMP, **bad), *caches))) == 1


def test_a_home_that_is_root_and_caches_with_the_same_cause_are_one_finding() -> None:
    home = place("home", "/", origin="HOME", **DENIED)
    cache = place("cache", "/cache/hf", origin="HF_HOME", exists=False, **{**DENIED, "nearest": "/"})
    (finding,) = found(facts(WORKSPACE, home, TMP, cache, uid=12345, gid=12345))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("HOME /, HF_HOME /cache/hf cannot be written to: uid 12345 may not write there")
    assert finding.remediation.commands == ("docker run -e HOME=/tmp -e HF_HOME=/tmp/hf_home ...",)


def test_a_noexec_tmp_is_a_warning_with_the_flag() -> None:
    (finding,) = found(facts(WORKSPACE, HOME, replace(TMP, executable=False, mount_point="/tmp")))
    assert finding.severity is Severity.WARNING
    assert finding.remediation.commands == ("docker run --tmpfs /tmp:exec ...",)


def test_on_a_host_it_is_remounted() -> None:
    (finding,) = found(facts(WORKSPACE, replace(TMP, executable=False, mount_point="/tmp"), manager=""))
    assert finding.remediation.commands == ("sudo mount -o remount,exec /tmp",)


def test_a_noexec_cache_of_data_is_no_fault() -> None:
    assert found(facts(WORKSPACE, place("cache", "/hf", origin="HF_HOME", executable=False))) == []
    assert len(found(facts(WORKSPACE, place("cache", "/x", origin="TORCH_EXTENSIONS_DIR", executable=False)))) == 1


def test_a_uid_without_a_name_is_a_note() -> None:
    (finding,) = found(facts(WORKSPACE, uid=12345, gid=12345, has_name=False))
    assert finding.severity is Severity.NOTE
    assert finding.remediation.commands == ("docker run --user 12345:12345 -e USER=trainer ...",)


@pytest.mark.parametrize(
    ("uid", "owner", "manager", "point", "number"),
    [
        (0, 1001, "docker", "/workspace", 1),
        (0, 0, "docker", "/workspace", 0),
        (0, 1001, "", "/workspace", 0),
        (0, 1001, "docker", "/", 0),
        (1001, 1001, "docker", "/workspace", 0),
    ],
)
def test_files_of_root_matter_in_a_mount_of_somebody_else(
    uid: int, owner: int, manager: str, point: str, number: int
) -> None:
    mounted = replace(WORKSPACE, owner_uid=owner, owner_gid=100, mount_point=point)
    findings = found(facts(mounted, uid=uid, gid=uid, manager=manager))
    assert [f.remediation.commands for f in findings] == [("docker run --user 1001:100 ...",)] * number


def test_a_mount_for_checkpoints_counts_and_each_mount_once() -> None:
    mounted = replace(WORKSPACE, owner_uid=1001, owner_gid=100)
    saved = replace(mounted, role="checkpoints", path="/workspace/out")
    other = replace(saved, path="/out", nearest="/out", mount_point="/out")
    assert len(found(facts(mounted, saved, other, uid=0, gid=0))) == 2


def test_data_that_may_not_be_read_is_an_error() -> None:
    data = place("data", "/data/train.h5", readable=False, owner_uid=1001, owner_gid=1001, mode=0o600)
    (finding,) = found(facts(WORKSPACE, data))
    assert finding.severity is Severity.ERROR
    assert finding.message == "uid 1000 may not read /data/train.h5: it belongs to 1001:1001, mode 0600"


def test_a_workspace_that_is_a_dead_link_says_so() -> None:
    (finding,) = found(facts(replace(WORKSPACE, error="ENOTDIR", executable=None), manager=""))
    assert "a part of the path is not a folder" in finding.message

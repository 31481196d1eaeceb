"""The mount table: parsing, the mount of a path, and what can hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.probes import mounts

TABLE = mounts.parse(
    "22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n"
    "23 22 0:21 / /proc rw - proc proc rw\n"
    "40 22 0:50 /export/home /home rw,nosuid - nfs4 server:/export rw,vers=4.2\n"
    "41 22 0:51 /docker/ab /work\\040space rw - ext4 /dev/vdb rw\n"
    "42 22 0:52 / /mnt rw - autofs systemd-1 rw\n"
    "43 22 0:53 / /tmp rw,noexec - tmpfs tmpfs rw,size=64k\n"
    "44 22 0:54 / /tmp rw - tmpfs tmpfs rw\n"
    "broken line\n"
)


@pytest.mark.parametrize(
    ("path", "kind", "point"),
    [
        ("/etc/passwd", "ext4", "/"),
        ("/home/u/x", "nfs4", "/home"),
        ("/homeland", "ext4", "/"),
        ("/work space/a", "ext4", "/work space"),
        ("/", "ext4", "/"),
    ],
)
def test_a_path_is_on_the_longest_mount_point(path: str, kind: str, point: str) -> None:
    mount = mounts.of(path, TABLE)
    assert mount is not None
    assert (mount.kind, mount.point) == (kind, point)


def test_of_two_at_one_point_the_later_hides_the_earlier() -> None:
    mount = mounts.of("/tmp/x", TABLE)
    assert mount is not None
    assert "noexec" not in mount.options


def test_fields_are_read_behind_any_number_of_optional_ones() -> None:
    assert TABLE[0] == mounts.Mount(
        "/", "/", frozenset({"rw", "relatime"}), "ext4", "/dev/vda", frozenset({"rw", "discard"})
    )
    assert TABLE[3].root == "/docker/ab"


@pytest.mark.parametrize(
    ("path", "expected"), [("/home/u", True), ("/mnt/x", True), ("/tmp", False), ("/etc", False)]
)
def test_a_server_can_hang(path: str, expected: bool) -> None:
    assert mounts.can_hang(path, TABLE) is expected


def test_a_link_to_a_server_can_hang_and_is_not_followed_there(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/home/u/data")
    (tmp_path / "here").symlink_to("data/x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "local").symlink_to("/etc")
    table = (*TABLE, mounts.Mount("/", str(tmp_path), frozenset(), "ext4", "", frozenset()))
    assert mounts.can_hang(str(tmp_path / "data"), table)
    assert mounts.can_hang(str(tmp_path / "here" / "y"), table)
    assert not mounts.can_hang(str(tmp_path / "loop"), table)
    assert not mounts.can_hang(str(tmp_path / "local" / "passwd"), table)


def test_this_machine_has_a_root() -> None:
    assert mounts.of("/", mounts.read()) is not None


def test_no_proc_is_no_mounts() -> None:
    assert mounts.read(Path("/nonexistent/mountinfo")) == ()

"""The log: every byte, rotation, and what happens while the file system refuses."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torch_doctor.sessions.log import BEGINNING, Follower, LogWriter, chunks, files, last_line, tail_offset
from torch_doctor.sessions.state import LogGap


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """No file can grow beyond this size: a full disk that needs no root."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_bytes_are_appended_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    writer = LogWriter(path)
    assert writer.file_bytes == 7
    assert writer.write(b"\x00\xff\r\n") and writer.write(b"")
    writer.close()
    assert path.read_bytes() == b"before\n\x00\xff\r\n" and writer.gaps == []


def test_output_is_held_while_the_disk_is_full_and_written_when_it_is_not(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log")
    with files_at_most(10):
        assert not writer.write(b"0123456789abcdef")
        assert not writer.write(b"ghi")
        assert not writer.retry() and writer.error == "File too large"
    assert writer.retry() and writer.error == ""
    assert writer.write(b"jkl")
    writer.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789abcdefghijkl" and writer.gaps == []


def test_what_cannot_be_held_is_counted_and_the_log_says_where_it_is_missing(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", hold_bytes=4)
    with files_at_most(3):
        writer.write(b"abcdefghij")
    assert writer.retry()
    writer.close()
    note = b"\n[torch-doctor: 3 bytes of output are missing here: File too large]\n"
    assert (tmp_path / "log").read_bytes() == b"abc" + note + b"ghij"
    assert writer.gaps == [LogGap(3, 3, "File too large")]


def test_what_is_still_held_at_the_end_is_spilled_and_recorded(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log")
    with files_at_most(3):
        writer.write(b"abcde")
        writer.close()
    assert writer.gaps == [LogGap(3, 2, "File too large")]
    writer = LogWriter(tmp_path / "no" / "folder")
    writer.write(b"abc")
    writer.close(tmp_path / "spilled")
    assert (tmp_path / "spilled").read_bytes() == b"abc"
    assert writer.gaps == [LogGap(0, 3, "No such file or directory")]


def test_a_log_that_cannot_be_opened_is_opened_when_it_can(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "later" / "log")
    assert not writer.write(b"abc")
    (tmp_path / "later").mkdir()
    assert writer.retry()
    writer.close()
    assert (tmp_path / "later" / "log").read_bytes() == b"abc"


def test_rotation_keeps_so_many_files_and_loses_nothing_of_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path, limit_bytes=10, keep=2)
    writer.write(b"".join(b"%04d\n" % n for n in range(9)))
    writer.close()
    assert [p.name for p in files(path)] == ["log.2", "log.1", "log"]
    assert [p.read_bytes() for p in files(path)] == [b"0004\n0005\n", b"0006\n0007\n", b"0008\n"]
    assert b"".join(chunks(path, BEGINNING)) == b"0004\n0005\n0006\n0007\n0008\n"


def test_a_follower_misses_nothing_over_several_rotations(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path, limit_bytes=10, keep=5)
    follower = Follower(path)
    writer.write(b"a" * 5)
    assert follower.read() == b"a" * 5
    writer.write(b"b" * 30)
    seen = b""
    while data := follower.read():
        seen += data
    assert seen == b"b" * 30
    follower.close()
    writer.close()


@pytest.mark.parametrize(
    ("text", "lines", "rest"),
    [
        (b"", 5, b""),
        (b"one", 1, b"one"),
        (b"one\ntwo\n", 1, b"two\n"),
        (b"one\ntwo\n", 2, b"one\ntwo\n"),
        (b"one\ntwo\n", 9, b"one\ntwo\n"),
        (b"one\ntwo", 1, b"two"),
        (b"one\ntwo", 0, b""),
        (b"one\ntwo\n", 0, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"x" * 70000 + b"\n" + b"y" * 70000 + b"\n", 1, b"y" * 70000 + b"\n"),
        (b"x\n" * 100000, 99999, b"x\n" * 99999),
        (b"first\n" + b"y" * 65529 + b"\n", 1, b"y" * 65529 + b"\n"),
    ],
)
def test_the_last_lines(tmp_path: Path, text: bytes, lines: int, rest: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    assert text[tail_offset(path, lines) :] == rest


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"", ""),
        (b"one\ntwo\n\n  \n", "two"),
        (b"epoch 1:  10%|#  |\repoch 1: 100%|###|", "epoch 1: 100%|###|"),
        (b"\x1b[32mdone\x1b[0m\n", "done"),
        ("é".encode() * 5000 + b"\n", "é"),
        (b"half \xff\n", "half \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_the_last_line_that_a_terminal_would_show(tmp_path: Path, text: bytes, shown: str) -> None:
    (tmp_path / "log").write_bytes(text)
    found = last_line(tmp_path / "log")
    assert found == shown or (shown == "é" and set(found) <= {"é", "\N{REPLACEMENT CHARACTER}"})


def test_no_log_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "nothing") == ""
    assert os.listdir(tmp_path) == []  # noqa: PTH208

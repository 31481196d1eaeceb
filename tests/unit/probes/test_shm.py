"""/dev/shm as it is here, leftovers of processes that are really dead, and the fallback's states."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.facts.shm import ABSENT, ACTIVE, DEFAULT_NEEDED_BYTES, INACTIVE, OFF, ShmFacts
from torch_doctor.probes import shm

LATER = 3600  # seconds: the files below are old enough then


def look() -> ShmFacts:
    facts = shm.probe(Request(python=sys.executable))
    assert isinstance(facts, ShmFacts)
    return facts


def test_this_machines_own() -> None:
    facts = look()
    space = os.statvfs("/dev/shm")
    assert facts.size_bytes == space.f_blocks * space.f_frsize and facts.kind == "tmpfs" and facts.error == ""
    assert facts.needed_bytes == DEFAULT_NEEDED_BYTES and (facts.map_count_limit or 0) > 1000
    assert facts.memory_limit_bytes and facts.memory_limit_bytes <= os.sysconf("SC_PHYS_PAGES") * 4096


@pytest.mark.parametrize(("asked", "needed"), [(5 << 30, 5 << 30), (0, 0), (None, DEFAULT_NEEDED_BYTES)])
def test_what_the_run_needs_is_judged(asked: int | None, needed: int) -> None:
    facts = shm.probe(Request(requirements=Requirements(shm_bytes=asked), python=sys.executable))
    assert isinstance(facts, ShmFacts) and facts.needed_bytes == needed


@pytest.fixture
def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_files_of_a_dead_process_are_leftovers(tmp_path: Path, dead_pid: int) -> None:
    for name in (f"torch_{dead_pid}_1_0", f"torch_{dead_pid}_2_1", "psm_1a2b3c4d", "sem.mp-ab_c1", "nccl-AbC123"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    (tmp_path / f"torch_{os.getpid()}_1_0").write_bytes(b"x")  # its owner lives
    (tmp_path / "mine.bin").write_bytes(b"x")  # not training's
    found = shm.leftovers(tmp_path, time.time() + LATER)
    names = {name for item in found for name in item.names}
    assert names == {f"torch_{dead_pid}_1_0", f"torch_{dead_pid}_2_1", "psm_1a2b3c4d", "sem.mp-ab_c1", "nccl-AbC123"}
    own = next(item for item in found if item.owner_pid == dead_pid)
    assert own.prefix == f"torch_{dead_pid}_" and own.size_bytes >= 10000
    assert found[0].size_bytes >= found[-1].size_bytes


def test_a_young_file_is_no_leftover(tmp_path: Path, dead_pid: int) -> None:
    (tmp_path / f"torch_{dead_pid}_1_0").write_bytes(b"x")
    assert shm.leftovers(tmp_path) == ()


def test_a_file_that_a_process_has_open_is_no_leftover(tmp_path: Path, dead_pid: int) -> None:
    names = [f"torch_{dead_pid}_1_0", f"torch_{dead_pid}_2_0"]
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 4096)
    code = (
        "import mmap, sys; a = open(sys.argv[1], 'rb'); b = open(sys.argv[2], 'rb');"
        "m = mmap.mmap(b.fileno(), 0, prot=mmap.PROT_READ); b.close(); print('ready', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, *(str(tmp_path / n) for n in names)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        assert shm.leftovers(tmp_path, time.time() + LATER) == ()
    finally:
        holder.communicate()
    assert len(shm.leftovers(tmp_path, time.time() + LATER)) == 1


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("torch_4711_1804289383_0", (4711, "torch_4711_")),
        ("sem.loky-4711-abc", (4711, "sem.loky-4711-")),
        ("joblib_memmapping_folder_4711_ab_cd", (4711, "joblib_memmapping_folder_4711_")),
        ("psm_1a2b3c4d", (None, "")),
        ("torchvision_cache", (None, "")),
    ],
)
def test_the_owner_is_read_from_the_name(name: str, owner: tuple[int | None, str]) -> None:
    assert shm.owner_of(name) == owner


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (1 | 2 | 32, (ACTIVE, "small")),
        (1 | 2 | 64, (ACTIVE, "missing")),
        (1 | 2 | 128 | 32, (ACTIVE, "unwritable")),
        (1 | 2 | 4 | 16, (ACTIVE, "forced")),
        (1 | 8, (OFF, "off")),
        (1 | 8 | 32, (OFF, "small")),
        (1 | 16, (INACTIVE, "large")),
        (1 | 32 | 256, (INACTIVE, "no_memfd")),
        (1 | 128 | 512, (INACTIVE, "no_folder")),
        (1 | 2 | 32 | 1024, (ACTIVE, "small")),
    ],
)
def test_the_librarys_status_is_decoded(status: int, state: tuple[str, str]) -> None:
    assert shm.decode(status) == state


def test_no_library_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shm, "LIBRARY", tmp_path / "none.so")
    assert shm.fallback_state(Request(python=sys.executable)) == (ABSENT, "")


def elf(path: Path, interpreter: bytes | None) -> Path:
    """A 64-bit ELF header with one program header: PT_INTERP, or PT_LOAD in a static program."""
    text = (interpreter or b"") + b"\0"
    head = (
        b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    program = struct.pack("<IIQQQQQQ", 3 if interpreter else 1, 4, 120, 0, 0, len(text), len(text), 1)
    path.write_bytes(head + program + text + b"\0" * 64)
    return path


def test_programs_that_never_read_the_preload_file(tmp_path: Path) -> None:
    assert shm.linkage(elf(tmp_path / "static", None)) == "static"
    assert shm.linkage(elf(tmp_path / "musl", b"/lib/ld-musl-x86_64.so.1")) == "musl"
    assert shm.linkage(elf(tmp_path / "glibc", b"/lib64/ld-linux-x86-64.so.2")) == ""
    assert shm.linkage(Path(sys.executable)) == ""
    assert shm.linkage(tmp_path / "none") == ""

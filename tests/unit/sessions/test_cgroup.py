"""Memory counters of cgroups, v1 and v2, from the files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.sessions.cgroup import MemoryCounters, memory, since


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


EVENTS = "low 0\nhigh 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"


def test_version_2(tmp_path: Path) -> None:
    write(tmp_path / "a/b", memory__events=EVENTS, memory__max="268435456\n", memory__peak="1000\n")
    assert memory(tmp_path, "0::/a/b\n") == MemoryCounters(1, 17, 268435456, 1000)


def test_version_2_of_a_container_with_a_namespace_and_no_limit(tmp_path: Path) -> None:
    write(tmp_path, memory__events=EVENTS, memory__max="max\n")
    assert memory(tmp_path, "0::/\n") == MemoryCounters(1, 17, None, None)


def test_version_1_under_the_hosts_path(tmp_path: Path) -> None:
    write(
        tmp_path / "memory",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        memory__failcnt="99\n",
        memory__limit_in_bytes="134217728\n",
        memory__max_usage_in_bytes="134217728\n",
    )
    membership = "11:cpu,cpuacct:/docker/x\n5:memory:/docker/0123\n0::/docker/0123\n"
    assert memory(tmp_path, membership) == MemoryCounters(3, 99, 134217728, 134217728)


def test_version_1_without_a_limit_and_an_old_kernel(tmp_path: Path) -> None:
    write(tmp_path / "memory/x", memory__oom_control="under_oom 0\n", memory__limit_in_bytes="9223372036854771712\n")
    assert memory(tmp_path, "5:memory:/x\n") == MemoryCounters()


def test_hybrid_takes_version_1_where_the_memory_controller_is(tmp_path: Path) -> None:
    write(tmp_path / "memory", memory__failcnt="1\n")
    assert memory(tmp_path, "0::/x\n5:memory:/\n").limit_hits == 1


@pytest.mark.parametrize("membership", ["", "nonsense", "0::/gone\n"])
def test_nothing_is_told_where_there_is_nothing(tmp_path: Path, membership: str) -> None:
    assert memory(tmp_path, membership) == MemoryCounters()


@pytest.mark.parametrize(("before", "after", "grown"), [(1, 3, 2), (None, 3, None), (1, None, None), (5, 1, 0)])
def test_growth(before: int | None, after: int | None, grown: int | None) -> None:
    assert since(before, after) == grown

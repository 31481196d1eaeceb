"""Control groups as hosts, containers and batch jobs show them, version 1 and 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.facts.cpu import CpuFacts
from torch_doctor.facts.memory import MemoryFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import cgroup, cpu, memory

GIB = 1 << 30
MEMINFO = "MemTotal: 67108864 kB\nMemFree: 1024 kB\nMemAvailable: 33554432 kB\nSwapTotal: 0 kB\nHugePages_Total: 0\n"
V2 = "30 20 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V1_CPU = "36 31 0:33 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def machine(root: Path, mountinfo: str, membership: str, files: dict[str, str]) -> Path:
    """A root with /proc and /sys/fs/cgroup as given."""
    files = {
        "proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mountinfo,
        "proc/self/cgroup": membership,
        "proc/meminfo": MEMINFO,
        "proc/sys/vm/overcommit_memory": "0\n",
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def facts(root: Path, **needs: object) -> MemoryFacts:
    found = memory.probe(Request(requirements=Requirements(**needs)), root)  # type: ignore[arg-type]
    assert isinstance(found, MemoryFacts)
    return found


def test_version_2_takes_the_lowest_limit_up_the_tree(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    root = machine(
        tmp_path,
        V2.format(root="/"),
        "0::/user.slice/job.scope\n",
        {
            f"{base}/cgroup.controllers": "cpu memory pids\n",
            f"{base}/user.slice/memory.max": f"{8 * GIB}\n",
            f"{base}/user.slice/memory.current": f"{2 * GIB}\n",
            f"{base}/user.slice/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            f"{base}/user.slice/memory.events": "low 0\nmax 7\noom 2\noom_kill 2\n",
            f"{base}/user.slice/job.scope/memory.max": "max\n",
        },
    )
    found = facts(root)
    assert (found.limit_bytes, found.usage_bytes, found.reclaimable_bytes) == (8 * GIB, 2 * GIB, GIB)
    assert (found.oom_kills, found.limit_hits) == (2, 7)
    assert found.limit_source == str(root / base / "user.slice/memory.max")
    assert (found.ceiling_bytes, found.free_bytes, found.is_limited) == (8 * GIB, 7 * GIB, True)


@pytest.mark.parametrize("membership", ["0::/\n", "0::/../../other\n", "0::/docker/abc\n"])
def test_a_container_has_its_own_group_at_the_root_of_the_mount(tmp_path: Path, membership: str) -> None:
    files = {
        "sys/fs/cgroup/cgroup.controllers": "memory\n",
        "sys/fs/cgroup/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/memory.events": "oom_kill 1\n",
    }
    mount = V2.format(root="/" if membership == "0::/\n" else "/docker/abc")
    found = facts(machine(tmp_path, mount, membership, files))
    assert (found.limit_bytes, found.oom_kills) == (GIB, 1)


def test_version_1_in_a_container_that_sees_the_path_of_the_host(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{512 << 20}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 10\n",
        "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        "sys/fs/cgroup/memory/memory.failcnt": "99\n",
    }
    found = facts(machine(tmp_path, V1.format(root="/docker/abc"), "4:memory:/docker/abc\n0::/docker/abc\n", files))
    assert (found.limit_bytes, found.usage_bytes, found.reclaimable_bytes) == (512 << 20, 1000, 10)
    assert (found.oom_kills, found.limit_hits) == (4, 99)


def test_version_1_without_a_limit_and_a_hybrid_mount_beside(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/unified/cgroup.controllers": "\n",
        "sys/fs/cgroup/unified/memory.max": "1\n",
    }
    mount = V2.format(root="/").replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ") + V1.format(root="/")
    found = facts(machine(tmp_path, mount, "4:memory:/job\n0::/\n", files))
    assert (found.limit_bytes, found.is_limited, found.ceiling_bytes) == (None, False, 64 * GIB)


def test_a_limit_above_the_machine_is_none(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cgroup.controllers": "memory\n", "sys/fs/cgroup/memory.max": f"{100 * GIB}\n"}
    found = facts(machine(tmp_path, V2.format(root="/"), "0::/\n", files))
    assert (found.is_limited, found.ceiling_bytes) == (False, 64 * GIB)


def test_a_sandbox_without_control_groups(tmp_path: Path) -> None:
    found = facts(machine(tmp_path, "", "", {}))
    assert (found.limit_bytes, found.total_bytes, found.available_bytes) == (None, 64 * GIB, 32 * GIB)


def test_no_meminfo_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert isinstance(memory.probe(Request(), tmp_path), ProbeFailure)


def test_what_the_script_needs_comes_along(tmp_path: Path) -> None:
    loader = LoaderNeed(1, workers=4, batch_size=8, prefetch_factor=2, sample_bytes=1 << 20, start_method="spawn")
    found = facts(machine(tmp_path, "", "", {}), loaders=(loader,), memory_bytes=GIB)
    assert (found.needed_bytes, found.workers, found.worker_bytes, found.shm_bytes) == (GIB, 4, 384 << 20, 64 << 20)


@pytest.mark.parametrize(
    ("text", "quota"), [("400000 100000\n", 4.0), ("max 100000\n", None), ("150000 100000\n", 1.5), ("", None)]
)
def test_cpu_quota_of_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    files = {
        "sys/fs/cgroup/cgroup.controllers": "cpu\n",
        "sys/fs/cgroup/cpu.max": text,
        "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_periods 200\nnr_throttled 50\n",
    }
    found = cpu.probe(Request(), machine(tmp_path, V2.format(root="/"), "0::/\n", files))
    assert found.quota == quota
    assert (found.periods, found.throttled_periods) == ((200, 50) if quota else (0, 0))


def test_cpu_quota_of_version_1_up_the_tree(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/cpu,cpuacct"
    files = {
        f"{base}/kubepods/cpu.cfs_quota_us": "200000\n",
        f"{base}/kubepods/cpu.cfs_period_us": "100000\n",
        f"{base}/kubepods/pod/cpu.cfs_quota_us": "-1\n",
        f"{base}/kubepods/pod/cpu.cfs_period_us": "100000\n",
    }
    found = cpu.probe(Request(), machine(tmp_path, V1_CPU.format(root="/"), "3:cpuacct,cpu:/kubepods/pod\n", files))
    assert (found.quota, found.quota_source) == (2.0, str(tmp_path / base / "kubepods/cpu.cfs_quota_us"))


def test_hyper_threads_share_a_core(tmp_path: Path) -> None:
    for number, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        path = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(siblings + "\n")
    assert cpu.physical_cores({0, 1, 2, 3}, tmp_path) == 2
    assert cpu.physical_cores({0, 2}, tmp_path) == 1
    # without a topology every CPU is a core
    assert cpu.physical_cores({7, 8}, tmp_path) == 2


def test_this_machine_is_what_torch_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    found = cpu.probe(Request())
    assert isinstance(found, CpuFacts)
    assert found.torch_threads == torch.get_num_threads()


def test_numbers_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert cgroup.number(tmp_path / "none") is None
    assert cgroup.pairs(tmp_path / "none") == {}
    assert cgroup.tree("memory", tmp_path) == cgroup.Tree(0)

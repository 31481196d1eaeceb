"""GPU030: GPU memory that others hold."""

from __future__ import annotations

from typing import Any

import pytest

from torch_doctor.checks.gpu_memory import gpu_memory_held
from torch_doctor.facts.gpu import GpuDevice, GpuFacts, GpuProcess, MigInstance
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, Severity

GIB = 1 << 30
SEEN = GpuProcess(4711, 60 * GIB, "python train.py", "ann", visible=True)
UNSEEN = GpuProcess(4711, 60 * GIB)


def judge(used: int, access: GpuAccessFacts | None = None, **values: Any) -> list[Finding]:
    device = GpuDevice(1, name="H100", memory_total_bytes=80 * GIB, memory_used_bytes=used, **values)
    return list(gpu_memory_held(access or GpuAccessFacts(container=True), GpuFacts("580.65.06", devices=(device,))))


@pytest.mark.parametrize(("used", "findings"), [(0, 0), (8 * GIB - 1, 0), (8 * GIB, 1), (80 * GIB, 1)])
def test_a_tenth_of_the_memory_is_the_boundary(used: int, findings: int) -> None:
    assert len(judge(used)) == findings


def test_a_process_in_sight_is_named_with_its_owner() -> None:
    (finding,) = judge(61 * GIB, processes=(SEEN,))
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        "GPU 1 (H100): 61 GiB of 80 GiB is in use by python train.py (PID 4711 of ann, 60 GiB)"
    )
    assert "kill 4711" in finding.remediation.commands


@pytest.mark.parametrize(
    ("processes", "words"),
    [
        ((UNSEEN,), "by processes that this container cannot see: PID 4711"),
        ((), "by whom cannot be seen from here"),
        (None, "by whom cannot be seen from here"),
    ],
)
def test_out_of_sight_explains_the_namespace(processes: tuple[GpuProcess, ...] | None, words: str) -> None:
    (finding,) = judge(61 * GIB, processes=processes)
    assert words in finding.message
    for way in ("docker run --pid=host", "# compose: pid: host", "# Kubernetes: hostPID: true"):
        assert any(c.startswith(way) for c in finding.remediation.commands)
    assert not any(c.startswith("kill") for c in finding.remediation.commands)


def test_on_a_host_no_namespace_is_in_the_way() -> None:
    (finding,) = judge(61 * GIB, GpuAccessFacts(container=False), processes=())
    assert not any("docker" in c for c in finding.remediation.commands)


@pytest.mark.parametrize(
    ("used", "needed", "severity"),
    [
        (4 * GIB, 76 * GIB, None),
        (4 * GIB, 76 * GIB + 1, Severity.ERROR),  # little is held, and too much for this run
        (20 * GIB, 10 * GIB, Severity.WARNING),
        (20 * GIB, 70 * GIB, Severity.ERROR),
        (4 * GIB, 90 * GIB, None),  # too small even when empty: its own check
    ],
)
def test_against_what_the_run_needs(used: int, needed: int, severity: Severity | None) -> None:
    found = judge(used, GpuAccessFacts(wanted_memory_bytes=needed))
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_a_lost_gpu_is_left_alone() -> None:
    assert judge(61 * GIB, error_code=15) == []


@pytest.mark.parametrize(("used", "findings"), [(0, 0), (9 * GIB, 1)])
def test_each_mig_device_has_its_own_memory(used: int, findings: int) -> None:
    slices = (MigInstance("MIG-a", "", 10 * GIB, 0), MigInstance("MIG-b", "", 10 * GIB, used))
    found = judge(61 * GIB, mig_enabled=True, mig_instances=slices)
    assert [f.message.split(" is in use")[0] for f in found] == ["GPU 1 (H100), MIG-b: 9 GiB of 10 GiB"] * findings

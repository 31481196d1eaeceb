"""GPU005 to GPU009: what CUDA shows of the GPUs, against what the run needs."""

from __future__ import annotations

from typing import Any

import pytest

from torch_doctor.checks import gpu_visible as checks
from torch_doctor.facts.cuda import CudaDriverFacts
from torch_doctor.facts.gpu import GpuDevice, GpuFacts, MigInstance
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import ProbeFailure, Severity

GIB = 1 << 30
DEVICES = tuple(
    GpuDevice(n, uuid=f"GPU-{n}aaa0000", name="NVIDIA A100", compute_capability=(8, 0), memory_total_bytes=40 * GIB)
    for n in range(4)
)
FOUR = GpuFacts("580.65.06", devices=DEVICES)
SLICES = (MigInstance("MIG-aaaa", memory_total_bytes=5 * GIB), MigInstance("MIG-bbbb", memory_total_bytes=10 * GIB))
MIG = GpuFacts("580.65.06", devices=(GpuDevice(0, uuid="GPU-0aaa0000", mig_enabled=True, mig_instances=SLICES),))


def visible(value: str | None, gpu: GpuFacts = FOUR, asked: str = "") -> list[Any]:
    return list(checks.cuda_visible_devices_hides(GpuAccessFacts(cuda_visible_devices=value, asked=asked), gpu))


@pytest.mark.parametrize("value", [None, "0", "3", "0,1,2,3", " 1, 2", "GPU-0aaa", "GPU-1aaa,GPU-0aaa", "1gpu,2gpu"])
def test_a_list_of_gpus_that_are_here(value: str | None) -> None:
    assert visible(value) == []


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "  "])
def test_a_value_that_hides_all_is_a_warning_unless_gpus_are_asked_for(value: str) -> None:
    (finding,) = visible(value)
    (asked,) = visible(value, asked="--need gpus=1")
    assert (finding.severity, asked.severity) == (Severity.WARNING, Severity.ERROR)
    assert finding.message.endswith("it hides every GPU; CUDA sees no GPU")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("4", "4 ends the list, the last GPU is 3"),
        ("8,0,1", "8 ends the list, the last GPU is 3"),
        ("all", "'all' is no index and ends the list"),
        ("GPU-ffff", "GPU-ffff is not a GPU of this machine and ends the list"),
        ("MIG-aaaa", "MIG-aaaa is not a GPU of this machine and ends the list"),
        ("1,1", "1 stands twice, which hides all"),
        ("GPU-", "GPU- fits 4 GPUs and ends the list"),
    ],
)
def test_a_list_whose_first_entry_is_wrong_hides_all(value: str, reason: str) -> None:
    (finding,) = visible(value)
    assert finding.severity is Severity.ERROR
    assert finding.message == f"CUDA_VISIBLE_DEVICES={value}: {reason}; CUDA sees no GPU"
    assert "unset CUDA_VISIBLE_DEVICES" in finding.remediation.commands


@pytest.mark.parametrize(
    ("value", "kept"), [("0,1,9,2", "2 GPUs of 4"), ("0,-1,1", "1 GPU of 4"), ("GPU-0aaa,GPU-f", "1 GPU of 4")]
)
def test_what_follows_a_wrong_entry_is_hidden(value: str, kept: str) -> None:
    (finding,) = visible(value)
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith(f"CUDA sees {kept}")


@pytest.mark.parametrize("value", ["MIG-aaaa", "MIG-GPU-0aaa0000/1/0", "0", "1", "GPU-0aaa0000"])
def test_mig_slices_that_are_here(value: str) -> None:
    assert visible(value, MIG) == []


@pytest.mark.parametrize("value", ["MIG-cccc", "MIG-GPU-ffff/1/0"])
def test_a_mig_slice_that_is_gone(value: str) -> None:
    (finding,) = visible(value, MIG)
    assert finding.severity is Severity.ERROR and value in finding.message


def test_mig_mode_without_a_slice() -> None:
    empty = GpuFacts("580.65.06", devices=(GpuDevice(2, name="A100", mig_enabled=True),))
    (finding,) = checks.mig_without_instances(empty)
    assert finding.message == "GPU 2 (A100) is in MIG mode and has no MIG device: CUDA cannot use it"
    assert "sudo nvidia-smi -i 2 -mig 0" in finding.remediation.commands


@pytest.mark.parametrize("gpu", [FOUR, MIG])
def test_slices_or_no_mig_are_well(gpu: GpuFacts) -> None:
    assert list(checks.mig_without_instances(gpu)) == []


def count(wanted: int | None, cuda: CudaDriverFacts | ProbeFailure, gpu: GpuFacts = FOUR) -> list[Any]:
    return list(checks.too_few_gpus(GpuAccessFacts(wanted=wanted), gpu, cuda))


STARTED = CudaDriverFacts("libcuda.so.1", 0, device_count=2)


@pytest.mark.parametrize(("wanted", "cuda"), [(None, STARTED), (2, STARTED), (1, STARTED), (4, ProbeFailure("x"))])
def test_enough_gpus(wanted: int | None, cuda: CudaDriverFacts | ProbeFailure) -> None:
    assert count(wanted, cuda) == []


@pytest.mark.parametrize(
    ("wanted", "cuda", "usable"),
    [(3, STARTED, 2), (5, ProbeFailure("CUDA did not start"), 4), (5, CudaDriverFacts("x", 999), 4)],
)
def test_too_few_gpus(wanted: int, cuda: CudaDriverFacts | ProbeFailure, usable: int) -> None:
    (finding,) = count(wanted, cuda)
    assert finding.severity is Severity.ERROR
    assert finding.message == f"{wanted} GPUs needed; {usable} can be used"
    assert f"docker run --gpus {wanted} ..." in finding.remediation.commands


def test_a_lost_gpu_does_not_count() -> None:
    gpu = GpuFacts("580.65.06", devices=(*DEVICES[:3], GpuDevice(3, error_code=15)))
    (finding,) = count(4, ProbeFailure("CUDA is not tried"), gpu)
    assert finding.evidence["usable"] == 3


def test_mig_slices_are_one_gpu_to_a_process() -> None:
    (finding,) = count(2, CudaDriverFacts("x", 0, device_count=1), MIG)
    assert finding.message == "2 GPUs needed; 1 can be used (CUDA shows one of 2 MIG slices to a process)"


@pytest.mark.parametrize(("needed", "findings"), [(None, 0), (40 * GIB, 0), (40 * GIB + 1, 4)])
def test_memory_of_each_gpu(needed: int | None, findings: int) -> None:
    found = list(checks.gpu_memory_too_small(GpuAccessFacts(wanted_memory_bytes=needed), FOUR))
    assert len(found) == findings


def test_a_mig_slice_has_its_own_memory() -> None:
    (finding,) = checks.gpu_memory_too_small(GpuAccessFacts(wanted_memory_bytes=8 * GIB), MIG)
    assert finding.message == "GPU 0, MIG-aaaa has 5 GiB; the run needs 8 GiB"


@pytest.mark.parametrize(("needed", "findings"), [(None, 0), ((7, 5), 0), ((8, 0), 0), ((8, 9), 4), ((10, 0), 4)])
@pytest.mark.parametrize(("stated", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_compute_capability(needed: tuple[int, int] | None, findings: int, stated: bool, severity: Severity) -> None:
    access = GpuAccessFacts(wanted_capability=needed, capability_stated=stated)
    found = list(checks.compute_capability_too_low(access, FOUR))
    assert len(found) == findings
    assert all(f.severity is severity and "compute capability 8.0" in f.message for f in found)

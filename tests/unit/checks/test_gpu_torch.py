"""GPU024 to GPU027: torch's code for these GPUs, and a multiplication on each."""

from __future__ import annotations

import pytest

from torch_doctor.checks import gpu_torch as checks
from torch_doctor.facts.cuda import GpuMatmulFacts, GpuTorchFacts, MatmulResult
from torch_doctor.facts.gpu import GpuDevice, GpuFacts
from torch_doctor.model import Finding, Severity

#: arch lists of published wheels: 2.5.1+cu124, 2.9.1+cu128, 2.10+cu130
CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


def judge(
    capability: tuple[int, int],
    archs: tuple[str, ...],
    cuda: str = "12.8",
    driver: tuple[int, int] | None = (13, 0),
) -> str:
    """``newer``, ``older`` or empty."""
    gpu = GpuFacts("580.65.06", cuda_version=driver, devices=(GpuDevice(0, compute_capability=capability),))
    torch = GpuTorchFacts("2.9.1", cuda, archs)
    newer, older = list(checks.gpu_newer(gpu, torch)), list(checks.gpu_older(gpu, torch))
    assert all(f.severity is Severity.ERROR for f in newer + older)
    return "newer" if newer else "older" if older else ""


@pytest.mark.parametrize(
    ("capability", "archs", "verdict"),
    [
        ((9, 0), CU128, ""),
        ((8, 9), CU128, ""),  # Ada runs sm_86 code: same major version, later minor
        ((8, 7), ("sm_80",), ""),
        ((6, 1), CU124, ""),  # GTX 1080 runs sm_60 code
        ((12, 1), CU128, ""),
        ((10, 3), CU128, ""),
        ((12, 0), CU124, "newer"),  # RTX 5090 with a torch from before Blackwell
        ((10, 0), CU124, "newer"),
        ((11, 0), CU128, "newer"),  # in a gap of the list
        ((8, 0), ("sm_75", "sm_86", "sm_90"), "newer"),  # sm_86 code does not run on 8.0
        ((7, 0), CU130, "older"),  # V100
        ((6, 1), CU128, "older"),
        ((3, 7), CU124, "older"),
        ((9, 0), ("sm_90a",), ""),
        ((9, 1), ("sm_90a",), "newer"),  # code with a runs on exactly its own
        ((10, 3), ("sm_100a",), "newer"),
        ((10, 3), ("sm_100f",), ""),  # code with f runs within its family
        ((12, 0), ("sm_100f",), "newer"),
        ((12, 0), ("sm_90", "compute_90"), ""),  # PTX runs on everything later
        ((12, 0), ("compute_90a",), "newer"),
        ((12, 0), ("compute_100f",), "newer"),  # PTX for a family stays in it
        ((10, 3), ("compute_100f",), ""),
        ((8, 0), ("compute_90",), "older"),
        ((8, 0), (), ""),  # nothing known: nothing judged
        ((9, 0), ("gfx90a",), ""),  # another vendor's build
    ],
)
def test_the_builds_code_against_the_gpu(capability: tuple[int, int], archs: tuple[str, ...], verdict: str) -> None:
    assert judge(capability, archs) == verdict


@pytest.mark.parametrize(("driver", "verdict"), [((12, 8), ""), ((13, 0), ""), ((12, 4), "newer"), (None, "")])
def test_ptx_needs_a_driver_that_knows_the_builds_cuda(driver: tuple[int, int] | None, verdict: str) -> None:
    assert judge((12, 0), ("sm_90", "compute_90"), driver=driver) == verdict


def test_binary_code_runs_on_an_older_driver_of_the_same_major_version() -> None:
    assert judge((9, 0), CU128, driver=(12, 2)) == ""


def test_too_new_says_what_the_build_has() -> None:
    gpu = GpuFacts("580.65.06", devices=(GpuDevice(0, name="RTX 5090", compute_capability=(12, 0)),))
    (finding,) = checks.gpu_newer(gpu, GpuTorchFacts("2.5.1+cu124", "12.4", CU124))
    assert finding.message == (
        "GPU 0 (RTX 5090) is sm_120; torch 2.5.1+cu124 has sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
    )


@pytest.mark.parametrize(
    ("capability", "text", "image"),
    [
        ((7, 0), "Use a torch built with CUDA 12.8", True),
        ((6, 1), "Use a torch built with CUDA 12.6", False),
        ((3, 5), "No current torch has this GPU: use a newer one", False),
    ],
)
def test_too_old_names_a_build_that_has_it(capability: tuple[int, int], text: str, image: bool) -> None:
    gpu = GpuFacts("580.65.06", devices=(GpuDevice(0, compute_capability=capability),))
    (finding,) = checks.gpu_older(gpu, GpuTorchFacts("2.15.0", "13.0", CU130))
    assert finding.remediation.text == text
    assert any("torch2.9" in c for c in finding.remediation.commands) is image


def test_one_finding_for_each_gpu_that_is_not_covered() -> None:
    devices = tuple(GpuDevice(n, compute_capability=c) for n, c in enumerate([(9, 0), (7, 0), (7, 0)]))
    found = list(checks.gpu_older(GpuFacts("580.65.06", devices=devices), GpuTorchFacts("2.15.0", "13.0", CU130)))
    assert [f.evidence["index"] for f in found] == [1, 2]


HEALTHY = GpuFacts("580.65.06", devices=(GpuDevice(0, compute_capability=(9, 0)),))
BUILD = GpuTorchFacts("2.9.1", "12.8", CU128)


def fails(facts: GpuMatmulFacts, gpu: GpuFacts = HEALTHY) -> list[Finding]:
    return list(checks.matmul_fails(facts, gpu, BUILD))


def result(error: float) -> MatmulResult:
    return MatmulResult(2, "H100", "float32", error, 1e-4)


@pytest.mark.parametrize(("error", "wrong"), [(0.0, 0), (1e-4, 0), (1.1e-4, 1), (1e9, 1)])
def test_a_product_is_right_up_to_rounding(error: float, wrong: int) -> None:
    found = list(checks.matmul_wrong(GpuMatmulFacts((result(error),))))
    assert len(found) == wrong
    assert fails(GpuMatmulFacts((result(error),))) == []


def test_a_wrong_product_names_the_gpu() -> None:
    (finding,) = checks.matmul_wrong(GpuMatmulFacts((result(0.25),)))
    assert finding.message == "cuda:2 (H100), float32: relative error 0.25; rounding explains 0.0001"


def test_a_failing_multiplication_is_not_a_wrong_one() -> None:
    facts = GpuMatmulFacts((MatmulResult(2, "H100", error="OutOfMemoryError: CUDA out of memory"),))
    assert list(checks.matmul_wrong(facts)) == []
    (finding,) = fails(facts)
    assert finding.message == "cuda:2 (H100), float32: OutOfMemoryError: CUDA out of memory"


def test_a_hang_names_the_gpu() -> None:
    (finding,) = fails(GpuMatmulFacts((), "python gave no answer within 30 s", "cuda:3 float32"))
    assert finding.message == "cuda:3 float32: python gave no answer within 30 s"
    assert finding.remediation == checks.LEAVE_OUT


def test_cuda_that_does_not_start_in_torch() -> None:
    (finding,) = fails(GpuMatmulFacts((), "torch counts no GPU", "torch.cuda.init"))
    assert (finding.message, finding.remediation) == ("torch.cuda.init: torch counts no GPU", checks.START)


def test_a_driver_that_is_too_old_is_not_reported_twice() -> None:
    facts = GpuMatmulFacts((), "RuntimeError: The NVIDIA driver on your system is too old", "torch.cuda.init")
    assert fails(facts, GpuFacts("470.57.02", devices=HEALTHY.devices)) == []
    assert len(fails(facts)) == 1


def test_a_missing_kernel_image_is_not_reported_twice() -> None:
    facts = GpuMatmulFacts((MatmulResult(0, error="RuntimeError: CUDA error: no kernel image is available"),))
    old = GpuFacts("580.65.06", devices=(GpuDevice(0, compute_capability=(5, 2)),))
    assert fails(facts, old) == []
    assert len(fails(facts)) == 1

"""GPU020 to GPU023: whether CUDA starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torch_doctor.checks import gpu_cuda as checks
from torch_doctor.facts.cuda import CudaDriverFacts, GpuTorchFacts
from torch_doctor.facts.gpu import GpuDevice, GpuFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import ProbeFailure, Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def gpu(driver: str, cuda: tuple[int, int] | None = None, name: str = "NVIDIA A100") -> GpuFacts:
    return GpuFacts(driver, cuda_version=cuda, devices=(GpuDevice(0, name=name),))


def torch(cuda: str | None, libcuda: tuple[int, int] | None = None) -> GpuTorchFacts:
    return GpuTorchFacts("2.9.1", cuda, libcuda_version=libcuda)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("450.80.02", "11.8"),  # the floors themselves: minor version compatibility
        ("525.60.13", "12.8"),
        ("525.105.17", "12.8"),
        ("580.65.06", "13.0"),
        ("610.10", "12.6"),  # newer drivers run older builds
        ("470.57.02", None),  # a build without CUDA needs no driver
        ("470.57.02", "10.2"),  # no floor in the table: not judged
        ("470.57.02", "14.0"),
        ("", "13.0"),
    ],
)
def test_a_driver_that_runs_the_build(driver: str, cuda: str | None) -> None:
    assert list(checks.driver_too_old(gpu(driver), torch(cuda))) == []


@pytest.mark.parametrize(
    ("driver", "cuda", "floor"),
    [("450.51.06", "11.8", "450.80.02"), ("525.60.11", "12.8", "525.60.13"), ("575.57.08", "13.0", "580.65.06")],
)
def test_a_driver_below_the_floor(driver: str, cuda: str, floor: str) -> None:
    (finding,) = checks.driver_too_old(gpu(driver), torch(cuda))
    assert finding.severity is Severity.ERROR
    assert finding.message == f"driver {driver} is older than {floor}, which torch 2.9.1 (CUDA {cuda}) needs"


def test_an_older_image_is_offered_where_the_driver_runs_it() -> None:
    (finding,) = checks.driver_too_old(gpu("550.54.15"), torch("13.0"))
    assert "a torch built for CUDA 12" in finding.remediation.text
    assert "docker run --gpus all torch-doctor:torch2.9 ..." in finding.remediation.commands
    (finding,) = checks.driver_too_old(gpu("470.57.02"), torch("13.0"))
    assert "a torch built for CUDA 11" in finding.remediation.text
    assert not any("torch2.9" in c for c in finding.remediation.commands)


@pytest.mark.parametrize(("name", "offered"), [("NVIDIA A100", True), ("NVIDIA GeForce RTX 4090", False)])
def test_forward_compatibility_is_offered_on_data_center_gpus(name: str, offered: bool) -> None:
    (finding,) = checks.driver_too_old(gpu("535.183.01", name=name), torch("13.0"))
    assert any("cuda-compat-13-0" in c for c in finding.remediation.commands) is offered


@pytest.mark.parametrize(
    ("driver", "cuda", "libcuda", "findings"),
    [
        ("535.183.01", "13.0", (13, 0), 0),
        ("535.183.01", "13.2", (13, 0), 0),  # minor version compatibility on top of it
        ("535.183.01", "13.0", (12, 2), 1),  # the driver's own
        ("535.183.01", "13.0", (12, 9), 1),  # a compat package, and not new enough
        ("535.183.01", "13.0", None, 1),
        ("450.51.06", "11.8", (11, 0), 1),
        ("450.51.06", "11.8", (11, 8), 0),
    ],
)
def test_forward_compatibility_in_use_counts(
    driver: str, cuda: str, libcuda: tuple[int, int] | None, findings: int
) -> None:
    assert len(list(checks.driver_too_old(gpu(driver), torch(cuda, libcuda)))) == findings


ONE = gpu("580.65.06")


def cuda(code: int | None, **values: Any) -> CudaDriverFacts:
    return CudaDriverFacts(values.pop("library", "/usr/lib/libcuda.so.580.65.06"), code, **values)


def test_cuda_that_starts() -> None:
    assert list(checks.cuda_does_not_start(cuda(0), ONE)) == []


@pytest.mark.parametrize(
    ("code", "words", "command"),
    [
        (100, "CUDA sees no GPU, though NVML does", "NVIDIA_DRIVER_CAPABILITIES"),
        (101, "a device number that is no GPU", "ls -l /dev/nvidia*"),
        (802, "fabric", "nvidia-fabricmanager"),
        (803, "do not fit together", "/proc/driver/nvidia/version"),
        (804, "compat", "LD_LIBRARY_PATH"),
        (999, "nvidia-uvm", "nvidia-modprobe"),
    ],
)
def test_each_code_has_its_meaning_and_remedy(code: int, words: str, command: str) -> None:
    (finding,) = checks.cuda_does_not_start(cuda(code, init_name="CUDA_ERROR_X"), ONE)
    assert finding.severity is Severity.ERROR
    assert f"CUDA_ERROR_X ({code})" in finding.message and words in finding.message
    assert any(command in c for c in finding.remediation.commands)


def test_cuda_without_nvml_is_judged_too() -> None:
    (finding,) = checks.cuda_does_not_start(cuda(999), ProbeFailure("no NVML here"))
    assert finding.message.startswith("cuInit fails with cuInit (999)")


def test_an_unknown_code_is_shown() -> None:
    (finding,) = checks.cuda_does_not_start(cuda(321), ONE)
    assert finding.message == "NVML is healthy and cuInit fails with cuInit (321)"


@pytest.mark.parametrize(("value", "findings"), [("", 0), ("-1", 0), ("5", 0), ("GPU-f", 0), ("0", 1), (None, 1)])
def test_a_hidden_gpu_is_said_by_the_variables_own_check(value: str | None, findings: int) -> None:
    assert len(list(checks.cuda_does_not_start(cuda(100, visible_devices=value), ONE))) == findings


def test_a_hang_in_cuinit() -> None:
    facts = cuda(None, failure="python gave no answer within 30 s", call="cuInit(0)")
    (finding,) = checks.cuda_does_not_start(facts, ONE)
    assert finding.message == "cuInit(0): python gave no answer within 30 s"


COMPAT = "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15"


@pytest.mark.parametrize(
    ("code", "library", "driver", "severity"),
    [
        (0, COMPAT, "580.65.06", Severity.WARNING),  # an older libcuda takes the place of a newer driver's
        (0, COMPAT, "550.54.15", Severity.WARNING),
        (803, COMPAT, "550.163.01", Severity.ERROR),
        (804, COMPAT, "535.183.01", Severity.ERROR),  # a GeForce
        (0, COMPAT, "535.183.01", None),  # forward compatibility at work
        (0, "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", "580.65.06", None),
        (0, "/opt/conda/cuda-compat/libcuda.so.550.54.15", "580.65.06", Severity.WARNING),
        (0, "/opt/compat/libcuda.so.1", "580.65.06", Severity.WARNING),  # no version in its name: CUDA's decides
    ],
)
def test_a_compat_libcuda(code: int, library: str, driver: str, severity: Severity | None) -> None:
    facts = cuda(code, library=library, driver_version=(12, 4))
    # NVML tells the CUDA version of the libcuda that is loaded, a compat one's too
    found = list(checks.compat_shadows_driver(facts, gpu(driver, (12, 4))))
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(library in f.message and driver in f.message for f in found)


def test_nvml_without_libcuda() -> None:
    facts = GpuAccessFacts(container=True, driver_capabilities="utility")
    (finding,) = checks.libcuda_missing(facts, gpu("580.65.06"))
    assert finding.severity is Severity.ERROR and "NVIDIA_DRIVER_CAPABILITIES=utility" in finding.message
    assert any("compute,utility" in c for c in finding.remediation.commands)


def test_a_host_without_libcuda_needs_a_package() -> None:
    (finding,) = checks.libcuda_missing(GpuAccessFacts(), gpu("580.65.06"))
    assert all("docker" not in c for c in finding.remediation.commands)


def test_libcuda_that_is_here() -> None:
    assert list(checks.libcuda_missing(GpuAccessFacts(cuda_library="/usr/lib/libcuda.so.1"), gpu("1.0"))) == []


def test_the_floors_are_those_of_the_images() -> None:
    """images/versions.toml names a floor for each image; the table here serves every torch."""
    table = tomllib.loads((Path(__file__).parents[3] / "images" / "versions.toml").read_text(encoding="utf-8"))
    with_cuda = [v for v in table["variant"].values() if v["torch_cuda"]]
    assert with_cuda
    for variant in with_cuda:
        assert checks.DRIVER_FLOORS[int(variant["torch_cuda"].split(".")[0])] == variant["minimum_driver"]

"""GPU001 to GPU004: whether a GPU can be reached at all."""

from __future__ import annotations

from typing import Any

import pytest

from torch_doctor.checks import gpu_access as checks
from torch_doctor.facts.gpu import GpuDevice, GpuFacts, NvmlStatusFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, ProbeFailure, Severity

NO_NVML = ProbeFailure("no NVML here: libnvidia-ml.so.1 is not found")
UUID = "GPU-00000000-0000-4000-8000-000000000000"


def access(**values: Any) -> GpuAccessFacts:
    return GpuAccessFacts(**{"container": True, "torch_cuda": "12.8", **values})


def gpus(count: int) -> GpuFacts:
    return GpuFacts(
        "580.65.06", devices=tuple(GpuDevice(n, uuid=UUID.replace("-0000000", f"-{n}000000")) for n in range(count))
    )


def test_a_machine_without_a_gpu_is_a_note_and_no_more() -> None:
    (finding,) = checks.no_gpu_found(ProbeFailure("no NVIDIA GPU", evidence={"container": True}))
    assert finding == Finding(
        Severity.NOTE,
        "no NVIDIA GPU, driver or library is here: training runs on the CPU",
        evidence={"container": True},
    )


def test_asked_for_and_nothing_there_is_an_error() -> None:
    (finding,) = checks.no_gpu_found(access(asked="--need gpus=1"))
    assert finding.severity is Severity.ERROR
    assert finding.message == "--need gpus=1 asks for a GPU; no NVIDIA GPU, driver or library is here"


@pytest.mark.parametrize(
    "values",
    [{"kernel_driver": "580.65.06"}, {"device_nodes": ("/dev/nvidia0",)}, {"nvml_library": "/x"}, {"wsl": True}],
)
def test_anything_of_nvidias_is_not_nothing(values: dict[str, Any]) -> None:
    assert list(checks.no_gpu_found(access(asked="--need gpus=1", **values))) == []


def test_a_driver_on_the_host_and_no_gpu_in_the_container() -> None:
    (finding,) = checks.gpu_not_passed(access(kernel_driver="550.54.15"), NO_NVML)
    assert finding.severity is Severity.WARNING
    assert finding.message == "the host has NVIDIA driver 550.54.15; no GPU was passed to this container"
    assert "docker run --gpus all ..." in finding.remediation.commands
    assert any("Kubernetes" in c for c in finding.remediation.commands)
    assert any(c.startswith("# compose:") for c in finding.remediation.commands)


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        ({"asked": "--need gpus=8"}, Severity.ERROR),
        ({"torch_cuda": ""}, Severity.NOTE),  # a torch for the CPU could use none anyway
        ({"torch_cuda": "", "asked": "--need gpus=1"}, Severity.ERROR),
        ({"torch_cuda": None}, Severity.WARNING),
    ],
)
def test_the_wish_decides_the_severity(values: dict[str, Any], severity: Severity) -> None:
    (finding,) = checks.gpu_not_passed(access(kernel_driver="550.54.15", **values), NO_NVML)
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("values", "gpu"),
    [
        ({"kernel_driver": None}, NO_NVML),
        ({"container": False}, NO_NVML),
        ({"device_nodes": ("/dev/nvidia0",)}, NO_NVML),
        ({}, gpus(1)),
        ({"visible_devices": "none"}, NO_NVML),  # the variable's own check says it
    ],
)
def test_passed_gpus_and_other_reasons_are_left_alone(values: dict[str, Any], gpu: Any) -> None:
    assert list(checks.gpu_not_passed(access(**{"kernel_driver": "550.54.15", **values}), gpu)) == []


def test_a_gpu_on_the_bus_without_a_driver() -> None:
    (finding,) = checks.driver_not_loaded(access(pci_gpus=("0000:01:00.0", "0000:02:00.0")), NO_NVML)
    assert finding.severity is Severity.WARNING
    assert finding.message == "2 NVIDIA GPUs on the PCI bus, and no NVIDIA driver is loaded in the kernel"
    assert any("apt-get install" in c for c in finding.remediation.commands)


def test_libraries_without_a_driver_are_a_note_unless_a_gpu_is_asked_for() -> None:
    values = {"nvml_library": "/usr/lib64/libnvidia-ml.so.1"}
    status = NvmlStatusFacts(code=9, error="Driver Not Loaded")
    (note,) = checks.driver_not_loaded(access(**values), status)
    (error,) = checks.driver_not_loaded(access(asked="--gpus all", **values), status)
    assert (note.severity, error.severity) == (Severity.NOTE, Severity.ERROR)
    assert "sudo modprobe nvidia" in note.remediation.commands


@pytest.mark.parametrize(
    "status", [NvmlStatusFacts(), NvmlStatusFacts(code=18), NvmlStatusFacts(failure="hang"), NO_NVML]
)
def test_an_answering_driver_is_loaded(status: Any) -> None:
    assert list(checks.driver_not_loaded(access(nvml_library="/x"), status)) == []


def test_a_loaded_driver_is_loaded() -> None:
    facts = access(pci_gpus=("0000:01:00.0",), kernel_driver="580.65.06")
    assert list(checks.driver_not_loaded(facts, NvmlStatusFacts(code=9))) == []


@pytest.mark.parametrize(("value", "shown"), [("none", "none"), ("void", "void"), ("", '""')])
def test_a_value_that_keeps_every_gpu_out(value: str, shown: str) -> None:
    facts = access(visible_devices=value, kernel_driver="580.65.06", asked="--need gpus=1")
    (finding,) = checks.visible_devices_hides(facts, NO_NVML)
    assert finding.severity is Severity.ERROR
    assert f"NVIDIA_VISIBLE_DEVICES={shown} keeps every GPU out" in finding.message
    assert "docker run --gpus all -e NVIDIA_VISIBLE_DEVICES=all ..." in finding.remediation.commands


@pytest.mark.parametrize(
    ("values", "gpu"),
    [
        ({"visible_devices": "all", "kernel_driver": "580.65.06"}, NO_NVML),
        ({"visible_devices": None, "kernel_driver": "580.65.06"}, NO_NVML),
        ({"visible_devices": "void"}, NO_NVML),  # a CPU machine, and nobody asked
        ({"visible_devices": "void", "kernel_driver": "580.65.06"}, gpus(1)),  # CDI sets it, and passes GPUs on
        ({"visible_devices": "0,1"}, gpus(2)),
        ({"visible_devices": "4,5"}, gpus(2)),  # indexes are the host's
        ({"visible_devices": "GPU-0000"}, gpus(1)),
        ({"visible_devices": "nvidia.com/gpu=0"}, gpus(1)),
    ],
)
def test_a_value_that_hides_nothing(values: dict[str, Any], gpu: Any) -> None:
    assert list(checks.visible_devices_hides(access(**values), gpu)) == []


@pytest.mark.parametrize(("value", "missing"), [("0,1,2", "names 2;"), (f"{UUID},GPU-ffff", "names GPU-ffff;")])
def test_a_list_that_names_more_than_is_here(value: str, missing: str) -> None:
    (finding,) = checks.visible_devices_hides(access(visible_devices=value), gpus(2))
    assert finding.severity is Severity.WARNING and missing in finding.message

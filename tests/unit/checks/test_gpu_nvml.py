"""GPU010 to GPU016: what NVML's answer says about the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torch_doctor.checks import gpu_nvml as checks
from torch_doctor.facts.gpu import GpuDevice, GpuFacts, NvmlStatusFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import FailureKind, Finding, ProbeFailure, Severity

CONTAINER = GpuAccessFacts(container=True, kernel_driver="535.183.01", device_nodes=("/dev/nvidia0",))
HOST = GpuAccessFacts(kernel_driver="535.183.01", device_nodes=("/dev/nvidia0",))
REFUSED = ProbeFailure("NVML refused")
HEALTHY = GpuFacts("580.65.06", devices=(GpuDevice(0, name="H100"), GpuDevice(1, name="H100")))


def all_findings(
    nvml: NvmlStatusFacts, access: GpuAccessFacts, gpu: GpuFacts | ProbeFailure
) -> dict[str, list[Finding]]:
    """Every check of the module on the same facts, those that found something by name."""
    found: dict[str, list[Finding]] = {
        "mismatch": list(checks.driver_library_mismatch(nvml, access)),
        "revoked": list(checks.access_revoked(nvml, access)),
        "lost": list(checks.gpu_lost(nvml, gpu)),
        "no-gpu": list(checks.driver_finds_no_gpu(nvml, access)),
        "no-answer": list(checks.nvml_no_answer(nvml, gpu)),
        "error": list(checks.nvml_error(nvml, access)),
        "permission": list(checks.gpu_node_permission(nvml)),
    }
    return {name: findings for name, findings in found.items() if findings}


def status(code: int, **values: Any) -> NvmlStatusFacts:
    return NvmlStatusFacts(code=code, error="as NVML says", **values)


def test_a_healthy_driver() -> None:
    assert all_findings(NvmlStatusFacts(library="/x", count=2), CONTAINER, HEALTHY) == {}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (4, "permission"),
        (8, "error"),
        (12, "error"),
        (15, "lost"),
        (16, "lost"),
        (17, "revoked"),
        (18, "mismatch"),
        (77, "error"),
        (999, "revoked"),
    ],
)
@pytest.mark.parametrize("access", [CONTAINER, HOST])
def test_each_code_has_exactly_one_check(code: int, name: str, access: GpuAccessFacts) -> None:
    found = all_findings(status(code), access, REFUSED)
    assert list(found) == [name] and len(found[name]) == 1
    assert found[name][0].severity is Severity.ERROR
    assert str(code) in found[name][0].message or code == 18


def test_a_mismatch_shows_both_versions() -> None:
    nvml = status(18, library="/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15")
    (finding,) = checks.driver_library_mismatch(nvml, CONTAINER)
    assert finding.message == ("NVML: driver/library version mismatch: kernel module 535.183.01, library 550.54.15")
    assert "sudo reboot" in finding.remediation.commands


def test_a_revoked_container_must_be_recreated() -> None:
    nvml = status(999, closed_nodes={"/dev/nvidiactl": "Operation not permitted"})
    (finding,) = checks.access_revoked(nvml, CONTAINER)
    assert "this container has lost its GPUs: the device cgroup denies /dev/nvidiactl" in finding.message
    assert finding.remediation.commands[0].startswith("docker rm -f")
    assert any(c.startswith("kubectl") for c in finding.remediation.commands)


def test_a_container_has_lost_its_gpus_even_where_no_node_says_so() -> None:
    (finding,) = checks.access_revoked(status(999), CONTAINER)
    assert finding.message == "NVML: as NVML says (code 999): this container has lost its GPUs"


def test_the_same_code_on_a_host_is_its_driver() -> None:
    (finding,) = checks.access_revoked(status(999), HOST)
    assert "driver on this host" in finding.message
    assert not any("docker" in c for c in finding.remediation.commands)


def test_a_file_mode_is_told_from_a_cgroup() -> None:
    nvml = status(999, closed_nodes={"/dev/nvidiactl": "Permission denied"})
    found = all_findings(nvml, CONTAINER, REFUSED)
    assert list(found) == ["permission"]
    assert "this user may not open /dev/nvidiactl" in found["permission"][0].message


def test_a_driver_that_is_not_loaded_is_said_elsewhere() -> None:
    assert all_findings(status(9), GpuAccessFacts(container=True), REFUSED) == {}


def test_a_driver_that_is_loaded_and_says_it_is_not() -> None:
    assert list(all_findings(status(9), HOST, REFUSED)) == ["error"]


@pytest.mark.parametrize(
    ("code", "words"),
    [(15, "is lost: it has fallen off the bus"), (16, "needs a reset"), (999, "does not answer: ?")],
)
def test_one_lost_gpu_among_healthy_ones(code: int, words: str) -> None:
    gpu = GpuFacts("580.65.06", devices=(GpuDevice(0), GpuDevice(1, error_code=code, error="?"), GpuDevice(2)))
    found = all_findings(NvmlStatusFacts(), CONTAINER, gpu)
    assert list(found) == ["lost"]
    (finding,) = found["lost"]
    assert finding.message == f"GPU 1 {words} (NVML code {code})"
    assert any("--gpu-reset -i 1" in c for c in finding.remediation.commands)


def test_a_hang_is_named_once() -> None:
    failure = ProbeFailure("NVML gave no answer within 30 s in nvmlInit", FailureKind.TIMEOUT)
    nvml = NvmlStatusFacts(failure=failure.reason, failure_kind="timeout", call="nvmlInit")
    found = all_findings(nvml, CONTAINER, failure)
    assert list(found) == ["no-answer"]
    (finding,) = found["no-answer"]
    assert finding.message == failure.reason and finding.severity is Severity.ERROR
    assert finding.evidence == {"kind": "timeout", "call": "nvmlInit"}


@pytest.mark.parametrize("function", [checks.driver_library_mismatch, checks.nvml_error, checks.access_revoked])
def test_a_hang_has_no_code(function: Callable[..., Any]) -> None:
    assert list(function(NvmlStatusFacts(failure="hang"), CONTAINER)) == []


@pytest.mark.parametrize(
    ("access", "severity"),
    [
        (GpuAccessFacts(), Severity.WARNING),
        (GpuAccessFacts(asked="--need gpus=1"), Severity.ERROR),
        (GpuAccessFacts(pci_gpus=("0000:01:00.0",)), Severity.ERROR),
        (CONTAINER, Severity.ERROR),  # its nodes are here
        (GpuAccessFacts(container=True), None),  # a container that was given none: said elsewhere
    ],
)
def test_a_driver_that_finds_no_gpu(access: GpuAccessFacts, severity: Severity | None) -> None:
    found = all_findings(NvmlStatusFacts(count=0), access, ProbeFailure("NVML sees no GPU"))
    assert [f.severity for f in found.get("no-gpu", [])] == ([severity] if severity else [])
    assert set(found) <= {"no-gpu"}


def test_a_missing_binding_is_told_to_be_installed() -> None:
    said = "the nvml probe ended with status 1: ModuleNotFoundError: No module named 'pynvml'"
    (finding,) = checks.nvml_no_answer(NvmlStatusFacts(failure=said, failure_kind="error"), ProbeFailure(said))
    assert finding.remediation.commands[0] == "python -m pip install nvidia-ml-py"

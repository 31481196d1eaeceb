"""GPU031 to GPU036: the health of each GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torch_doctor.checks import gpu_device as checks
from torch_doctor.facts.gpu import GpuDevice, GpuFacts, RemappedRows
from torch_doctor.model import Finding, Severity

HEALTHY = {
    "ecc_uncorrected": 0,
    "remapped_rows": RemappedRows(3, 0, pending=False, failed=False),
    "retired_pages_pending": False,
    "clock_reasons": ("gpu_idle",),
    "temperature_c": 41,
    "pcie_width": 16,
    "pcie_max_width": 16,
    "pcie_gen": 1,
    "pcie_max_gen": 5,
    "compute_mode": "default",
}
ALL = (
    checks.ecc_uncorrected,
    checks.row_remap_failed,
    checks.memory_repair_pending,
    checks.gpu_throttled,
    checks.pcie_link_narrow,
    checks.compute_mode_restricted,
)


def gpu(**values: Any) -> GpuFacts:
    return GpuFacts(
        "580.65.06", devices=(GpuDevice(0, **HEALTHY), GpuDevice(1, name="H100", **{**HEALTHY, **values}))
    )


def only(function: Callable[[GpuFacts], Iterator[Finding]], **values: Any) -> Finding:
    """The one finding, which no other check of the module shares."""
    facts = gpu(**values)
    assert [f for other in ALL if other is not function for f in other(facts)] == []
    (finding,) = function(facts)
    assert finding.evidence["index"] == 1
    return finding


def test_healthy_gpus() -> None:
    assert [f for function in ALL for f in function(gpu())] == []


def test_a_gpu_that_supports_nothing_of_it_is_not_judged() -> None:
    assert [f for function in ALL for f in function(GpuFacts("580.65.06", devices=(GpuDevice(0),)))] == []


def test_a_lost_gpu_is_not_judged() -> None:
    lost = GpuFacts("580.65.06", devices=(GpuDevice(0, error_code=15, ecc_uncorrected=9),))
    assert [f for function in ALL for f in function(lost)] == []


def test_uncorrected_errors() -> None:
    finding = only(checks.ecc_uncorrected, ecc_uncorrected=1)
    assert finding.severity is Severity.ERROR
    assert finding.message == "GPU 1 (H100): 1 uncorrected ECC error since the driver was loaded"
    assert any("--gpu-reset -i 1" in c for c in finding.remediation.commands)


def test_a_failed_row_remapping() -> None:
    finding = only(checks.row_remap_failed, remapped_rows=RemappedRows(0, 8, pending=False, failed=True))
    assert finding.severity is Severity.ERROR
    assert finding.message == "GPU 1 (H100): row remapping failed after 8 uncorrectable rows"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"remapped_rows": RemappedRows(0, 1, pending=True, failed=False)}, "a row remapping is pending"),
        ({"remapped_rows": None, "retired_pages_pending": True}, "memory pages wait to be retired"),
    ],
)
def test_a_pending_repair(values: dict[str, Any], what: str) -> None:
    finding = only(checks.memory_repair_pending, **values)
    assert finding.severity is Severity.WARNING
    assert finding.message == f"GPU 1 (H100): {what} until the GPU is reset"


@pytest.mark.parametrize(
    ("reasons", "words", "remedy"),
    [
        (("hw_slowdown", "hw_thermal_slowdown"), "too hot: the hardware", "airflow"),
        (("sw_power_cap", "hw_power_brake_slowdown"), "power brake", "power supplies"),
        (("sw_thermal_slowdown",), "too hot: the driver", "airflow"),
        (("hw_slowdown",), "the hardware cut its clocks", "power supplies"),
    ],
)
def test_throttling(reasons: tuple[str, ...], words: str, remedy: str) -> None:
    finding = only(checks.gpu_throttled, clock_reasons=reasons, temperature_c=93)
    assert finding.severity is Severity.WARNING
    assert "throttled at 93 °C" in finding.message and words in finding.message
    assert remedy in finding.remediation.text


@pytest.mark.parametrize(
    "reasons",
    [(), ("sw_power_cap",), ("applications_clocks_setting", "sync_boost"), ("display_clock_setting",), None],
)
def test_the_power_cap_and_set_clocks_are_no_fault(reasons: tuple[str, ...] | None) -> None:
    assert list(checks.gpu_throttled(gpu(clock_reasons=reasons))) == []


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (0, "GPU 1 (H100) runs on 4 of 16 PCIe lanes"),
        (None, "GPU 1 (H100) runs on 4 of 16 PCIe lanes"),
        (8, "GPU 1 (H100) runs on 4 of 16 PCIe lanes (idle, P8: look again under load)"),
    ],
)
def test_a_narrow_link(state: int | None, message: str) -> None:
    finding = only(checks.pcie_link_narrow, pcie_width=4, performance_state=state)
    assert (finding.severity, finding.message) == (Severity.WARNING, message)


@pytest.mark.parametrize("values", [{"pcie_width": 8, "pcie_max_width": 8}, {"pcie_width": None}, {"pcie_width": 0}])
def test_a_link_as_wide_as_it_gets(values: dict[str, Any]) -> None:
    assert list(checks.pcie_link_narrow(gpu(**values))) == []


@pytest.mark.parametrize(
    ("mode", "severity"), [("prohibited", Severity.ERROR), ("exclusive-process", Severity.WARNING)]
)
def test_compute_modes(mode: str, severity: Severity) -> None:
    finding = only(checks.compute_mode_restricted, compute_mode=mode)
    assert finding.severity is severity and mode in finding.message
    assert finding.remediation.commands == ("sudo nvidia-smi -i 1 -c DEFAULT",)

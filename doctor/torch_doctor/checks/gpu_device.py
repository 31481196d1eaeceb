"""The health of each GPU: memory errors, throttling, the link, and the mode it is in."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.gpu import GpuDevice, GpuFacts
from torch_doctor.model import Finding, Remediation, Severity, counted
from torch_doctor.registry import check

_POWER = "Check the power supplies, the cables to the GPU and the rack's power budget"
_HEAT = "Check airflow, fans, dust and the room; a neighbour GPU may blow hot air into it"

#: clock reasons that are faults -> what each means, and what to do. The software power cap and idle clocks are
#: none. Source: NVML API reference, nvmlClocksEventReasons
THROTTLING: dict[str, tuple[str, str]] = {
    "hw_thermal_slowdown": ("too hot: the hardware cut its clocks by half or more", _HEAT),
    "hw_power_brake_slowdown": ("the power supply or chassis asserted the power brake", _POWER),
    "sw_thermal_slowdown": ("too hot: the driver lowers its clocks", _HEAT),
    "hw_slowdown": ("the hardware cut its clocks by half or more", f"{_HEAT}. {_POWER}"),
}

#: performance states from here on mean that the GPU idles
IDLE_STATE = 5

RESET = "sudo nvidia-smi --gpu-reset -i {index}    # with no process on it"


@check("GPU031", "ecc-errors-uncorrected")
def ecc_uncorrected(gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU's memory had errors that ECC could not correct.

    What it checks:
        The volatile count of uncorrected errors: those since the driver was loaded.
    Why it matters:
        Each one ended the process that met it ("uncorrectable ECC error encountered", Xid 48, 63, 94, 95). Until
        a reset the bad cells stay in use or blocked; a count that comes back means a failing board.
    Example:
        CUDA error: uncorrectable ECC error encountered
    Fix:
        Reset the GPU or reboot, which remaps the bad rows; watch the count; replace the GPU where it grows.
    References:
        https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
    """
    for device in gpu.answering:
        count = device.ecc_uncorrected
        if count:
            yield Finding(
                Severity.ERROR,
                f"{device.label}: {counted(count, 'uncorrected ECC error')} since the driver was loaded",
                _reset(device, "Reset the GPU, or reboot; replace it where the errors come back"),
                evidence={"index": device.index, "uuid": device.uuid, "ecc_uncorrected": count},
            )


@check("GPU032", "row-remap-failed")
def row_remap_failed(gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU has run out of spare memory rows: bad ones can no longer be replaced.

    What it checks:
        NVML's flag of a failed row remapping (Ampere and later).
    Why it matters:
        Bad memory stays in use. NVIDIA takes the flag as a reason to replace the GPU.
    Example:
        nvidia-smi -q -d ROW_REMAPPER       # Remapping Failure Occurred : Yes
    Fix:
        Take the GPU out of service and have it replaced.
    References:
        https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
    """
    for device in gpu.answering:
        rows = device.remapped_rows
        if rows is not None and rows.failed:
            yield Finding(
                Severity.ERROR,
                f"{device.label}: row remapping failed after {counted(rows.uncorrectable, 'uncorrectable row')}",
                Remediation(
                    "Take the GPU out of service and have it replaced",
                    (f"nvidia-smi -i {device.index} -q -d ROW_REMAPPER", f"sudo dcgmi diag -r 3 -i {device.index}"),
                ),
                evidence=_rows(device),
            )


@check("GPU033", "memory-repair-pending")
def memory_repair_pending(gpu: GpuFacts) -> Iterator[Finding]:
    """Bad GPU memory waits for a reset to be replaced.

    What it checks:
        A pending row remapping (Ampere and later), or pages that wait to be retired (before Ampere).
    Why it matters:
        The GPU works on; a next error may hit the same place and end the run. The repair itself happens only at
        a GPU reset.
    Example:
        nvidia-smi -q -d ROW_REMAPPER       # Pending : Yes
    Fix:
        Reset the GPU, or reboot, before a long run.
    References:
        https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html
    """
    for device in gpu.answering:
        rows = device.remapped_rows
        if rows is not None and rows.pending:
            what, evidence = "a row remapping is pending", _rows(device)
        elif device.retired_pages_pending:
            what, evidence = "memory pages wait to be retired", {"index": device.index, "uuid": device.uuid}
        else:
            continue
        yield Finding(
            Severity.WARNING,
            f"{device.label}: {what} until the GPU is reset",
            _reset(device, "Reset the GPU, or reboot, before a long run"),
            evidence=evidence,
        )


@check("GPU034", "gpu-throttled")
def gpu_throttled(gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU runs at lowered clocks because of heat or power.

    What it checks:
        NVML's reasons for lower clocks: hardware slowdown, thermal, power brake. The software power cap is the
        normal state of a GPU at full load, and idle clocks are no fault either.
    Why it matters:
        The slowest GPU sets the pace of a data-parallel run: one throttled GPU slows all of them.
    Example:
        nvidia-smi -q -d PERFORMANCE        # HW Thermal Slowdown : Active
    Fix:
        Cool it, or give it the power it asks for.
    References:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    """
    for device in gpu.answering:
        active = [reason for reason in THROTTLING if reason in (device.clock_reasons or ())]
        if not active:
            continue
        heat = f" at {device.temperature_c} °C" if device.temperature_c is not None else ""
        meaning, remedy = THROTTLING[active[0]]
        yield Finding(
            Severity.WARNING,
            f"{device.label} is throttled{heat}: {meaning}",
            Remediation(remedy, (f"nvidia-smi -i {device.index} -q -d PERFORMANCE,TEMPERATURE,POWER",)),
            evidence={
                "index": device.index,
                "clock_reasons": list(device.clock_reasons or ()),
                "temperature_c": device.temperature_c,
            },
        )


@check("GPU035", "pcie-link-narrow")
def pcie_link_narrow(gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU's PCIe link runs on fewer lanes than GPU and slot support.

    What it checks:
        The link's width against the maximum of GPU and slot together. Its generation is not judged: an idle GPU
        lowers that to save power, and raises it under load.
    Why it matters:
        Host-to-device copies, and traffic between GPUs without NVLink, slow down by the same factor. A badly
        seated card, a dirty contact or a damaged riser does it.
    Example:
        nvidia-smi -q -d PCI | grep -A 5 'Link Width'        # Max : 16x, Current : 4x
    Fix:
        Reseat the card or riser; look for PCIe errors in dmesg. An idle laptop GPU may narrow its link to save
        power: measure under load.
    References:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for device in gpu.answering:
        width, full = device.pcie_width, device.pcie_max_width
        if not width or not full or width >= full:
            continue
        state = device.performance_state
        query = "pcie.link.width.current,pcie.link.width.max,pstate"
        idle = f" (idle, P{state}: look again under load)" if state is not None and state >= IDLE_STATE else ""
        yield Finding(
            Severity.WARNING,
            f"{device.label} runs on {width} of {full} PCIe lanes{idle}",
            Remediation(
                "Look again under load; then reseat the card or riser, and look for PCIe errors",
                (
                    f"nvidia-smi -i {device.index} --query-gpu={query} --format=csv",
                    "sudo dmesg | grep -iE 'aer|pcie' | tail",
                ),
            ),
            evidence={
                "index": device.index,
                "pcie_width": width,
                "pcie_max_width": full,
                "pcie_gen": device.pcie_gen,
                "performance_state": state,
            },
        )


@check("GPU036", "compute-mode-restricted")
def compute_mode_restricted(gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU's compute mode keeps processes out.

    What it checks:
        Compute modes other than "default": prohibited lets no process in, exclusive-process one at a time.
    Why it matters:
        With exclusive-process a second process gets "all CUDA-capable devices are busy or unavailable": an
        evaluation beside training, a worker that touches CUDA, or a process that has not died yet.
    Example:
        sudo nvidia-smi -i 0 -c EXCLUSIVE_PROCESS
    Fix:
        Set it back to DEFAULT on the host; MPS shares an exclusive GPU.
    References:
        https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    for device in gpu.answering:
        mode = device.compute_mode
        if mode is None or mode == "default":
            continue
        prohibited = mode == "prohibited"
        effect = "CUDA cannot use it" if prohibited else "one process at a time can use it"
        yield Finding(
            Severity.ERROR if prohibited else Severity.WARNING,
            f"{device.label} is in compute mode {mode}: {effect}",
            Remediation("Set the mode back, on the host", (f"sudo nvidia-smi -i {device.index} -c DEFAULT",)),
            evidence={"index": device.index, "compute_mode": mode},
        )


def _reset(device: GpuDevice, text: str) -> Remediation:
    query = f"nvidia-smi -i {device.index} -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"
    return Remediation(text, (query, RESET.format(index=device.index)))


def _rows(device: GpuDevice) -> dict[str, object]:
    rows = device.remapped_rows
    if rows is None:
        return {}
    return {
        "index": device.index,
        "uuid": device.uuid,
        "remapped_correctable": rows.correctable,
        "remapped_uncorrectable": rows.uncorrectable,
    }

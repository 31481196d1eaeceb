"""What NVML says of the GPUs. A field is None where the GPU or its driver does not support the question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

#: bits of NVML's clocks event reasons, and their names in nvidia-smi. Source: nvml.h, nvmlClocksEventReasons
CLOCK_REASONS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

#: NVML's compute modes, as nvidia-smi -c takes them. Source: nvml.h, nvmlComputeMode_t
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory on a GPU.

    Where it is not in this PID namespace, ``visible`` is False and name and owner are empty. ``pid`` is as
    NVML gives it: the host's number.
    """

    pid: int
    used_bytes: int | None = None
    name: str = ""
    owner: str = ""
    visible: bool = False


@dataclass(frozen=True)
class MigInstance:
    """One MIG device: its UUID (``MIG-...``), its name, and memory in bytes."""

    uuid: str
    name: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True)
class RemappedRows:
    """Rows of GPU memory that were replaced after errors; ``pending`` needs a GPU reset, ``failed`` a new GPU."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class GpuDevice:
    """One GPU.

    Args:
        index: NVML's index, in PCI order.
        uuid: ``GPU-...``; empty where the GPU did not answer.
        name: product name.
        bus_id: PCI address, ``00000000:07:00.0``.
        compute_capability: ``(9, 0)``.
        memory_total_bytes, memory_used_bytes: of the whole GPU.
        mig_enabled: whether MIG mode is on; None where the GPU has no MIG.
        mig_instances: its MIG devices.
        ecc_enabled: whether ECC is on.
        ecc_uncorrected: uncorrected errors since the driver was loaded (volatile).
        remapped_rows: row remapping (Ampere and later).
        retired_pages_pending: whether pages wait for a reset to be retired (before Ampere).
        clock_reasons: names of CLOCK_REASONS that hold now.
        temperature_c: of the core, in degrees Celsius.
        performance_state: 0 (full speed) to 15.
        pcie_width, pcie_max_width: lanes, now and as GPU and slot support together.
        pcie_gen, pcie_max_gen: link generation; falls when idle, which is no fault.
        compute_mode: a name of COMPUTE_MODES.
        processes: who holds memory; None where NVML does not say.
        error_code: NVML's code where the GPU did not answer; None where it did.
        error: that code in words.
    """

    index: int
    uuid: str = ""
    name: str = ""
    bus_id: str = ""
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None
    clock_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None
    performance_state: int | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    pcie_gen: int | None = None
    pcie_max_gen: int | None = None
    compute_mode: str | None = None
    processes: tuple[GpuProcess, ...] | None = None
    error_code: int | None = None
    error: str = ""

    @property
    def label(self) -> str:
        """``GPU 3 (NVIDIA H100)``."""
        return f"GPU {self.index} ({self.name})" if self.name else f"GPU {self.index}"

    @property
    def healthy(self) -> bool:
        """Whether it answered NVML at all."""
        return self.error_code is None


@dataclass(frozen=True)
class NvmlStatusFacts:
    """How NVML answered when it was first called.

    Args:
        code: of nvmlInit or nvmlDeviceGetCount; 0 where both succeeded.
        error: that code in words.
        library: path of the loaded library, symlinks resolved.
        count: GPUs that it counts, those that do not answer too; None where it refused.
        closed_nodes: device nodes that could not be opened, with the system's reason.
        failure: why there was no answer at all (a hang, a signal); empty where there was one.
        failure_kind: ``timeout``, ``signal`` or ``error``.
        call: the call that it died in.
    """

    #: nvmlReturn_t: the kernel has no driver; the library is not there or could not be loaded
    DRIVER_NOT_LOADED: ClassVar[int] = 9
    LIBRARY_NOT_FOUND: ClassVar[int] = 12

    code: int = 0
    error: str = ""
    library: str = ""
    count: int | None = None
    closed_nodes: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    failure_kind: str = ""
    call: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """NVML's view: versions and devices. ``cuda_version`` is the newest CUDA that the driver supports."""

    driver_version: str
    nvml_version: str = ""
    cuda_version: tuple[int, int] | None = None
    devices: tuple[GpuDevice, ...] = ()

    @property
    def answering(self) -> tuple[GpuDevice, ...]:
        """The devices that answered."""
        return tuple(d for d in self.devices if d.healthy)

"""CUDA as a program meets it: the driver library, torch's build on these GPUs, and a multiplication on each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CudaDriverFacts:
    """What cuInit of libcuda.so.1 answered in a child process.

    Args:
        library: path that the loader mapped, symlinks resolved.
        init_code: CUresult of cuInit(0); 0 is success, None where it hung or crashed.
        init_name: its name, ``CUDA_ERROR_NO_DEVICE``.
        driver_version: CUDA version of that library, ``(12, 8)``.
        device_count: GPUs that CUDA sees, after CUDA_VISIBLE_DEVICES; None where cuInit failed.
        other_libraries: further libcuda.so.1 on the loader's path, which the mapped one shadows.
        uvm_node: whether /dev/nvidia-uvm exists.
        nvml_seen: GPUs that NVML saw; None where NVML did not answer.
        visible_devices: CUDA_VISIBLE_DEVICES; None where unset.
        failure: why it gave no answer (a hang, a signal); empty where it gave one.
        call: the call that it died in.
    """

    library: str
    init_code: int | None
    init_name: str = ""
    driver_version: tuple[int, int] | None = None
    device_count: int | None = None
    other_libraries: tuple[str, ...] = ()
    uvm_node: bool = True
    nvml_seen: int | None = None
    visible_devices: str | None = None
    failure: str = ""
    call: str = ""


@dataclass(frozen=True)
class GpuTorchFacts:
    """The torch build, looked at only where a GPU is visible: importing it takes seconds.

    Args:
        version: of torch.
        cuda: CUDA version of the build; None for a build without CUDA.
        arch_list: ``sm_80``, ``sm_90a``, ``compute_90`` (PTX).
        libcuda_version: CUDA version of the libcuda in use, a compat package's too; None where cuInit fails.
    """

    version: str
    cuda: str | None = None
    arch_list: tuple[str, ...] = ()
    libcuda_version: tuple[int, int] | None = None


@dataclass(frozen=True)
class MatmulResult:
    """A matrix multiplication on one GPU against the CPU.

    Args:
        index: torch's device index, after CUDA_VISIBLE_DEVICES.
        name: product name.
        dtype: ``float32``, ``bfloat16``.
        relative_error: largest difference, as a share of the largest value; None where it raised.
        tolerance: what rounding explains.
        seconds: of the second run, copy back included.
        error: exception in one line; empty where it ran.
    """

    index: int
    name: str = ""
    dtype: str = "float32"
    relative_error: float | None = None
    tolerance: float = 0.0
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class GpuMatmulFacts:
    """One result per GPU and dtype.

    Args:
        results: in the order of torch's device indexes.
        failure: why the child process died instead (a hang, a signal); empty where it did not.
        step: what it was doing, ``cuda:3 float32``.
    """

    results: tuple[MatmulResult, ...] = ()
    failure: str = ""
    step: str = ""

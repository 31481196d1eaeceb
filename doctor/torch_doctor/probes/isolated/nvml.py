"""Asks NVML about every GPU, through nvidia-ml-py. Any call may hang: each is named on stderr before it is made."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]

#: codes that say "this GPU is in trouble", whatever was asked; any other only says that there is no answer
TROUBLE = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}

#: ", GPU 3" while that GPU is asked
PLACE = [""]


def main() -> None:
    """Write what NVML said to the descriptor in the last argument."""
    json.load(sys.stdin)
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(look(), stream)


def look() -> dict[str, Any]:
    """Versions and devices; or ``code`` and ``error`` where NVML does not start."""
    try:
        call(pynvml.nvmlInit)
        count = call(pynvml.nvmlDeviceGetCount)
    except pynvml.NVMLError as error:
        return {**failure(error), "nodes": closed_nodes(), "library": mapped("libnvidia-ml.so")}
    return {
        "library": mapped("libnvidia-ml.so"),
        "driver_version": text(ask(pynvml.nvmlSystemGetDriverVersion)),
        "nvml_version": text(ask(pynvml.nvmlSystemGetNVMLVersion)),
        "cuda_version": ask(cuda_driver_version),
        "devices": [device(index) for index in range(count)],
    }


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, named on stderr first: the last line tells where a hang was."""
    print(f"{function.__name__}{PLACE[0]}", file=sys.stderr, flush=True)
    return function(*arguments)


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer; None where this GPU or driver cannot give one (not supported, not permitted, a driver's bug)."""
    try:
        return call(function, *arguments)
    except pynvml.NVMLError as error:
        if error.value in TROUBLE:
            raise
        return None


def cuda_driver_version() -> list[int]:
    """``[12, 8]`` of NVML's 12080."""
    number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return [number // 1000, number % 1000 // 10]


def failure(error: pynvml.NVMLError) -> dict[str, Any]:
    """NVML's code and its words."""
    return {"code": error.value, "error": str(error)}


def closed_nodes() -> dict[str, str]:
    """Device nodes that cannot be opened, with the system's reason: that tells a cgroup from a file mode."""
    closed = {}
    # others (nvswitch, caps) may be closed to users with good reason
    for path in sorted(p for p in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia(ctl|-uvm|\d+)", p.name)):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            closed[str(path)] = error.strerror or str(error)
    return closed


def mapped(name: str) -> str:
    """Path of the loaded library, symlinks resolved; empty where it is not loaded."""
    with Path("/proc/self/maps").open() as stream:
        paths = {line.split(maxsplit=5)[5].strip() for line in stream if name in line}
    return min(paths, default="")


def device(index: int) -> dict[str, Any]:
    """One GPU; ``error_code`` where it does not answer."""
    found: dict[str, Any] = {"index": index}
    PLACE[0] = f", GPU {index}"
    try:
        handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
        identity(found, handle)
        health(found, handle)
        mig(found, handle)
        found["processes"] = processes(handle)
    except pynvml.NVMLError as error:
        found.update(error_code=error.value, error=str(error))
    return found


def identity(found: dict[str, Any], handle: Any) -> None:
    """What the GPU is, and how much memory it has."""
    found["uuid"] = text(ask(pynvml.nvmlDeviceGetUUID, handle)) or ""
    found["name"] = text(ask(pynvml.nvmlDeviceGetName, handle)) or ""
    pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
    found["bus_id"] = text(pci.busId) if pci else ""
    found["compute_capability"] = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    found["memory_total_bytes"] = memory.total if memory else None
    found["memory_used_bytes"] = memory.used if memory else None


def health(found: dict[str, Any], handle: Any) -> None:
    """Errors, clocks, link and mode."""
    ecc = ask(pynvml.nvmlDeviceGetEccMode, handle)
    found["ecc_enabled"] = bool(ecc[0]) if ecc else None
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    found["ecc_uncorrected"] = ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, *kinds)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    keys = ("correctable", "uncorrectable", "pending", "failed")
    found["remapped_rows"] = dict(zip(keys, rows, strict=True)) if rows else None
    pending = ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    found["retired_pages_pending"] = None if pending is None else bool(pending)
    found["clock_reasons"] = clock_reasons(handle)
    found["temperature_c"] = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    found["performance_state"] = ask(pynvml.nvmlDeviceGetPerformanceState, handle)
    found["pcie_width"] = ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
    found["pcie_max_width"] = ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
    found["pcie_gen"] = ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)
    found["pcie_max_gen"] = ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
    found["compute_mode"] = ask(pynvml.nvmlDeviceGetComputeMode, handle)


def clock_reasons(handle: Any) -> Any:
    """Bit mask of why the clocks are below their maximum; drivers before 535 know it by its older name."""
    new = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    answer = ask(new, handle) if new else None
    return ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) if answer is None else answer


def mig(found: dict[str, Any], handle: Any) -> None:
    """MIG mode and its devices."""
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    found["mig_enabled"] = bool(mode[0]) if mode else None
    found["mig_instances"] = []
    if not found["mig_enabled"]:
        return
    for index in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is not None:
            found["mig_instances"].append(mig_instance(part))


def mig_instance(part: Any) -> dict[str, Any]:
    """One MIG device."""
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, part)
    return {
        "uuid": text(ask(pynvml.nvmlDeviceGetUUID, part)) or "",
        "name": text(ask(pynvml.nvmlDeviceGetName, part)) or "",
        "memory_total_bytes": memory.total if memory else None,
        "memory_used_bytes": memory.used if memory else None,
    }


def processes(handle: Any) -> list[dict[str, Any]] | None:
    """Processes that hold memory, compute and graphics; None where NVML does not tell."""
    compute = ask(running(pynvml, "nvmlDeviceGetComputeRunningProcesses"), handle)
    graphics = ask(running(pynvml, "nvmlDeviceGetGraphicsRunningProcesses"), handle)
    if compute is None and graphics is None:
        return None
    held: dict[int, int | None] = {}
    for item in [*(graphics or []), *(compute or [])]:
        held[item.pid] = max(held.get(item.pid) or 0, item.usedGpuMemory or 0) or None
    return [{"pid": pid, "used_bytes": used} for pid, used in sorted(held.items())]


def running(module: Any, name: str) -> Callable[..., Any]:
    """The newest version of the call that this driver's library has."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    for suffix in ("_v3", "_v2"):
        if hasattr(library, name + suffix) and hasattr(module, name + suffix):
            function: Callable[..., Any] = getattr(module, name + suffix)
            return function
    return getattr(module, name)  # type: ignore[no-any-return]


def text(value: Any) -> str | None:
    """Strings are bytes in older bindings."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


main()

"""What NVML tells about GPUs that sessions use: load, memory per process, and whether one was lost.

Every look happens in a forked child with a time limit: a driver that is wedged must not hang ``ps``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Load:
    """One GPU now. Memory in bytes, ``percent`` of time that a kernel ran."""

    index: int
    used_bytes: int
    total_bytes: int
    percent: int


@dataclass(frozen=True)
class Health:
    """Whether the GPUs that this machine or container was given still answer.

    ``fault`` is "" where they do, or where there never were any; ``gpus`` how many answered.
    """

    gpus: int
    fault: str = ""


def loads() -> list[Load]:
    """Every visible GPU; empty where there is none, or NVML does not answer in time."""
    found = _in_child(_loads)
    return [Load(*row) for row in found] if isinstance(found, list) else []


def memory_of_processes() -> Mapping[int, int]:
    """PID -> bytes of GPU memory, over all visible GPUs; empty where NVML does not tell."""
    found = _in_child(_memory_of_processes)
    return {int(pid): int(used) for pid, used in found} if isinstance(found, list) else {}


def health(dev: Path = Path("/dev"), seconds: float = LOOK_SECONDS) -> Health:
    """Whether a GPU was lost. Device nodes say how many there should be."""
    nodes = [p for p in dev.glob("nvidia[0-9]*") if p.name[6:].isdigit()]
    if not nodes:
        return Health(0)
    found = _in_child(_answers, seconds)
    if found is None:
        return Health(0, f"NVML gave no answer within {seconds:g} s")
    gpus, fault = found
    return Health(gpus, fault)


def _nvml() -> Any:
    import pynvml  # type: ignore[import-untyped]

    pynvml.nvmlInit()
    return pynvml


def _loads() -> list[list[int]]:
    nvml = _nvml()
    rows = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        percent = -1
        with contextlib.suppress(nvml.NVMLError):  # MIG instances have none
            percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        rows.append([index, memory.used, memory.total, percent])
    return rows


def _memory_of_processes() -> list[list[int]]:
    nvml = _nvml()
    found: dict[int, int] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                found[process.pid] = found.get(process.pid, 0) + (process.usedGpuMemory or 0)
    return [[pid, used] for pid, used in found.items()]


def _answers() -> tuple[int, str]:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_LibraryNotFound:
        return 0, ""  # a container without the driver's utility libraries: nothing was lost
    except pynvml.NVMLError as error:
        return 0, f"NVML: {error}"
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            # answered by the device itself, not from what the driver remembers
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired, pynvml.NVMLError_Unknown) as error:
            return index, f"GPU {index}: {error}"
        except pynvml.NVMLError:
            continue  # not supported on this device: it did answer
    return count, ""


def _in_child(look: Callable[[], Any], seconds: float = LOOK_SECONDS) -> Any:
    """The JSON value of ``look()``, called in a fork; None where it died or took too long."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _answer(look, writer)
    os.close(writer)
    data = b""
    while select.select([reader], [], [], seconds)[0]:
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        data += piece
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # one in uninterruptible sleep is left behind
    return json.loads(data) if data else None


def _answer(look: Callable[[], Any], writer: int) -> NoReturn:
    try:
        os.write(writer, json.dumps(look()).encode())
    finally:
        os._exit(0)

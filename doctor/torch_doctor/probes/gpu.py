"""Asks NVML, in a child process that is killed at the time limit: a wedged driver hangs whoever calls it."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_doctor.facts.gpu import (
    CLOCK_REASONS,
    COMPUTE_MODES,
    GpuDevice,
    GpuFacts,
    GpuProcess,
    MigInstance,
    NvmlStatusFacts,
    RemappedRows,
)
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import gpu_access, isolated
from torch_doctor.probes.once import once

NO_LIBRARY = "no NVML here: libnvidia-ml.so.1 is not found"


@dataclass(frozen=True)
class _Answer:
    status: NvmlStatusFacts | ProbeFailure
    gpu: GpuFacts | ProbeFailure


def status(request: Request) -> NvmlStatusFacts | ProbeFailure:
    """How NVML answered; ProbeFailure(UNAVAILABLE) where there is no library to ask."""
    return _answer(request).status


def probe(request: Request) -> GpuFacts | ProbeFailure:
    """The GPUs that NVML sees.

    Returns:
        ProbeFailure(UNAVAILABLE) without NVML, without a GPU, or where NVML refused;
        ProbeFailure(TIMEOUT | SIGNAL | ERROR) where it hung or crashed.
    """
    return _answer(request).gpu


@once
def _answer(request: Request) -> _Answer:
    if not _reachable():
        missing = ProbeFailure(NO_LIBRARY)
        return _Answer(missing, missing)
    # this interpreter has nvidia-ml-py; the user's need not
    found = isolated.call("nvml", {}, python=sys.executable, timeout=request.timeout)
    if isinstance(found, ProbeFailure):
        return _died(found)
    if "code" in found:
        return _refused(found)
    gpu = facts(found)
    status = NvmlStatusFacts(library=found["library"], count=len(gpu.devices))
    return _Answer(status, gpu if gpu.devices else ProbeFailure("NVML sees no GPU"))


def _reachable() -> bool:
    # known without a child process, so that a machine without a GPU pays nothing
    if next(gpu_access.libraries("libnvidia-ml.so.1", os.environ), None):
        return True
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def _died(failure: ProbeFailure) -> _Answer:
    tail = failure.evidence.get("stderr_tail") or [""]
    timed_out = failure.kind is FailureKind.TIMEOUT
    call = tail[-1] if timed_out or failure.kind is FailureKind.SIGNAL else ""
    reason = f"NVML gave no answer within {failure.evidence.get('timeout_s', 0):g} s" if timed_out else failure.reason
    failed = ProbeFailure(f"{reason} in {call}" if call else reason, failure.kind, failure.evidence)
    return _Answer(NvmlStatusFacts(failure=failed.reason, failure_kind=failure.kind.value, call=call), failed)


def _refused(found: Mapping[str, Any]) -> _Answer:
    code, error = int(found["code"]), str(found["error"])
    if code == NvmlStatusFacts.LIBRARY_NOT_FOUND and not found["library"]:
        missing = ProbeFailure(NO_LIBRARY)
        return _Answer(missing, missing)
    status = NvmlStatusFacts(code=code, error=error, library=found["library"], closed_nodes=dict(found["nodes"]))
    return _Answer(status, ProbeFailure(f"NVML refused with code {code}: {error}", evidence={"nvml_code": code}))


def facts(found: Mapping[str, Any]) -> GpuFacts:
    """GpuFacts of the child's JSON."""
    version = found.get("cuda_version")
    return GpuFacts(
        driver_version=found.get("driver_version") or "",
        nvml_version=found.get("nvml_version") or "",
        cuda_version=(version[0], version[1]) if version else None,
        devices=tuple(_device(d) for d in found["devices"]),
    )


def _device(found: Mapping[str, Any]) -> GpuDevice:
    values = dict(found)
    capability, rows, reasons = (values.get(k) for k in ("compute_capability", "remapped_rows", "clock_reasons"))
    mode = values.get("compute_mode")
    values["compute_capability"] = (capability[0], capability[1]) if capability else None
    values["remapped_rows"] = _rows(rows) if rows else None
    values["clock_reasons"] = None if reasons is None else clock_reasons(reasons)
    values["compute_mode"] = None if mode is None else COMPUTE_MODES.get(mode, str(mode))
    values["mig_instances"] = tuple(MigInstance(**m) for m in values.get("mig_instances") or ())
    holders = values.get("processes")
    values["processes"] = None if holders is None else tuple(process(h, Path("/proc")) for h in holders)
    return GpuDevice(**values)


def _rows(rows: Mapping[str, int]) -> RemappedRows:
    return RemappedRows(rows["correctable"], rows["uncorrectable"], bool(rows["pending"]), bool(rows["failed"]))


def clock_reasons(mask: int) -> tuple[str, ...]:
    """Names of the bits that are set; an unknown bit by its number."""
    names = [CLOCK_REASONS.get(1 << n, hex(1 << n)) for n in range(mask.bit_length()) if mask >> n & 1]
    return tuple(names)


def process(holder: Mapping[str, Any], proc: Path) -> GpuProcess:
    """The process that NVML names, with name and owner where it is one that this PID namespace shows."""
    pid, used = int(holder["pid"]), holder.get("used_bytes")
    folder = proc / str(pid)
    if not _same_process(folder, proc):
        return GpuProcess(pid, used)
    try:
        name = (folder / "comm").read_text().strip()
        owner = _user(folder.stat().st_uid)
    except OSError:  # it ended meanwhile
        return GpuProcess(pid, used)
    return GpuProcess(pid, used, _command(folder) or name, owner, visible=True)


def _same_process(folder: Path, proc: Path) -> bool:
    """NVML counts processes as the host does: in a PID namespace, the same number may be another process."""
    if not folder.exists():
        return False
    if _read(proc / "2/comm") == "kthreadd":  # only the host's namespace has kernel threads
        return True
    maps = _read(folder / "maps")
    return "libcuda" in maps or "nvidia" in maps


def _command(folder: Path) -> str:
    words = [w for w in _read(folder / "cmdline").split("\0") if w]
    # "python train.py" tells more than "python"; further arguments, and code after -c, may hold secrets
    script = next((w for w in words[1:] if not w.startswith("-")), "") if "-c" not in words else ""
    return " ".join(Path(w).name[:60] for w in (*words[:1], script) if w)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


PROBES = {GpuFacts: probe, NvmlStatusFacts: status}

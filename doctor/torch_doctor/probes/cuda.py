"""Tries CUDA, in child processes: cuInit, and torch's multiplication on each GPU."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from torch_doctor.facts.cuda import CudaDriverFacts, GpuMatmulFacts, GpuTorchFacts, MatmulResult
from torch_doctor.facts.gpu import GpuFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import gpu, gpu_access, isolated
from torch_doctor.probes import torch as torch_probe
from torch_doctor.probes.once import once

_PLACE = re.compile(r"cuda:(\d+) (\w+)")


@once
def driver(request: Request) -> CudaDriverFacts | ProbeFailure:
    """What cuInit answers; ProbeFailure(UNAVAILABLE) where there is no GPU or NVML is in trouble already."""
    access, seen = gpu_access.probe(request), gpu.probe(request)
    if isinstance(access, ProbeFailure):
        return access
    blocked = _nvml_blocks(access, seen)
    if blocked:
        return ProbeFailure(blocked)
    found = isolated.call("cuda_driver", {}, python=sys.executable, timeout=request.timeout)
    if isinstance(found, ProbeFailure):
        return _died(found, access)
    if "load_error" in found:
        return ProbeFailure(f"libcuda.so.1 cannot be loaded: {found['load_error']}")
    return _driver_facts(found, access, seen)


def _nvml_blocks(access: GpuAccessFacts, seen: GpuFacts | ProbeFailure) -> str:
    """Why CUDA is not tried: a fault that NVML shows would only be reported twice."""
    if isinstance(seen, ProbeFailure):
        # Jetson and some minimal systems have CUDA and no NVML
        without_nvml = access.nvml_library is None and access.has_device and access.cuda_library
        return "" if without_nvml else seen.reason
    lost = [d.label for d in seen.devices if not d.healthy]
    if lost:
        return f"CUDA is not tried while {lost[0]} does not answer NVML"
    empty = all(d.mig_enabled and not d.mig_instances for d in seen.devices)
    return "CUDA is not tried: every GPU is in MIG mode without a MIG device" if empty else ""


def _died(failure: ProbeFailure, access: GpuAccessFacts) -> CudaDriverFacts:
    tail = failure.evidence.get("stderr_tail") or [""]
    return CudaDriverFacts(
        library=access.cuda_library or "libcuda.so.1",
        init_code=None,
        failure=failure.reason,
        call=tail[-1],
        uvm_node=access.uvm_node or access.wsl,
        visible_devices=access.cuda_visible_devices,
    )


def _driver_facts(found: dict[str, Any], access: GpuAccessFacts, seen: GpuFacts | ProbeFailure) -> CudaDriverFacts:
    version = found.get("driver_version")
    library = found["library"] or access.cuda_library or ""
    others = [p for p in gpu_access.libraries("libcuda.so.1", os.environ) if os.path.realpath(p) != library]
    return CudaDriverFacts(
        library=library,
        init_code=int(found["init_code"]),
        init_name=found["init_name"],
        driver_version=(version[0], version[1]) if version else None,
        device_count=found.get("device_count"),
        other_libraries=tuple(os.path.realpath(p) for p in others),
        uvm_node=access.uvm_node or access.wsl,
        nvml_seen=len(seen.devices) if isinstance(seen, GpuFacts) else None,
        visible_devices=access.cuda_visible_devices,
    )


def torch_build(request: Request) -> GpuTorchFacts | ProbeFailure:
    """The torch build, where NVML sees a GPU; torch is not imported otherwise."""
    seen = gpu.probe(request)
    if isinstance(seen, ProbeFailure):
        return ProbeFailure(seen.reason)
    build, cuda = torch_probe.probe(request), driver(request)
    if not isinstance(build, TorchFacts):
        return ProbeFailure(build.reason)  # the package checks judge it
    in_use = cuda.driver_version if isinstance(cuda, CudaDriverFacts) and cuda.init_code == 0 else None
    return GpuTorchFacts(build.version, build.cuda, build.arch_list, in_use)


def matmul(request: Request) -> GpuMatmulFacts | ProbeFailure:
    """A multiplication on each GPU, where cuInit succeeds and torch is built for CUDA."""
    cuda, build = driver(request), torch_build(request)
    for earlier in (cuda, build):
        if isinstance(earlier, ProbeFailure):
            return ProbeFailure(earlier.reason)
    if isinstance(build, GpuTorchFacts) and not build.cuda:
        return ProbeFailure(f"torch {build.version} is built without CUDA")
    if isinstance(cuda, CudaDriverFacts) and not cuda.device_count:
        return ProbeFailure("CUDA sees no GPU")
    found = isolated.call("cuda_matmul", {}, python=request.python, timeout=request.timeout)
    return _matmul_died(found) if isinstance(found, ProbeFailure) else matmul_facts(found)


def _matmul_died(failure: ProbeFailure) -> GpuMatmulFacts | ProbeFailure:
    if failure.kind is FailureKind.UNAVAILABLE:
        return failure
    tail = failure.evidence.get("stderr_tail") or [""]
    steps = [line for line in tail if _PLACE.fullmatch(line)]
    return GpuMatmulFacts((), failure.reason, steps[-1] if steps else tail[-1])


def matmul_facts(found: dict[str, Any]) -> GpuMatmulFacts:
    """GpuMatmulFacts of the child's JSON. No result at all is a failure, too: nothing was multiplied."""
    results = tuple(MatmulResult(**r) for r in found["results"])
    failure = str(found.get("failure", "")) or ("" if results else "torch counts no GPU")
    return GpuMatmulFacts(results, failure, "torch.cuda.init" if failure else "")


PROBES = {CudaDriverFacts: driver, GpuTorchFacts: torch_build, GpuMatmulFacts: matmul}

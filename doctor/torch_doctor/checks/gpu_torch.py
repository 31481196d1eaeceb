"""torch on these GPUs: whether its build holds code for them, and whether a multiplication comes out right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.checks.gpu_cuda import driver_too_old
from torch_doctor.facts.cuda import GpuMatmulFacts, GpuTorchFacts, MatmulResult
from torch_doctor.facts.gpu import GpuDevice, GpuFacts
from torch_doctor.model import Finding, Remediation, Severity
from torch_doctor.registry import check

#: oldest compute capability that torch's Linux wheels hold code for, by their CUDA version, newest first.
#: Source: get_cuda_arch_list in pytorch/test-infra, tools/pkg-helpers/pytorch_pkg_helpers/cuda.py, and
#: https://github.com/pytorch/pytorch/issues/157517; read on 2026-11-30
WHEEL_FLOORS: tuple[tuple[str, tuple[int, int]], ...] = (("13", (7, 5)), ("12.8", (7, 0)), ("12.6", (5, 0)))

#: what CUDA says where a build has no code for a GPU
NO_KERNEL_IMAGE = "no kernel image"

#: the step before the first GPU is used
STARTING = "torch.cuda.init"

START = Remediation(
    "See what CUDA says by itself, and which libcuda it loads",
    ('python -c "import torch; torch.cuda.init()"', "ldconfig -p | grep libcuda.so.1", "nvidia-smi"),
)
LEAVE_OUT = Remediation(
    "Leave the GPU out, and read the kernel's messages on the host; reset it or reboot",
    ("sudo dmesg | grep -iE 'xid|nvrm' | tail", "torch-doctor check --timeout 120"),
)

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")

Capability = tuple[int, int]


@dataclass(frozen=True)
class Architecture:
    """One entry of the arch list: ``ptx`` is compiled by the driver at load; ``suffix`` is a, f or empty."""

    capability: Capability
    ptx: bool
    suffix: str = ""

    def runs_on(self, device: Capability) -> bool:
        """Whether this code runs on a GPU of that compute capability.

        A cubin runs on the same major version from its own minor version on; PTX on every later one; code with
        ``a`` only on exactly its own; with ``f`` within its family. Source: CUDA programming guide, 1.3 and 5.1.
        """
        if self.suffix == "a":
            return device == self.capability
        if self.ptx and not self.suffix:
            return device >= self.capability
        return device[0] == self.capability[0] and device[1] >= self.capability[1]


def architectures(names: tuple[str, ...]) -> tuple[Architecture, ...]:
    """The arch list, parsed; what is no CUDA architecture (gfx90a) is left out."""
    matches = (_ARCHITECTURE.fullmatch(name) for name in names)
    return tuple(Architecture((int(m[2]), int(m[3])), m[1] == "compute", m[4]) for m in matches if m)


@check("GPU024", "gpu-newer-than-torch-build", tags={"torch"})
def gpu_newer(gpu: GpuFacts, torch: GpuTorchFacts) -> Iterator[Finding]:
    """torch's build holds no code for a GPU that is newer than it.

    What it checks:
        Each GPU's compute capability against the build's arch list: binary code for the same major version, and
        PTX, which the driver compiles at load if it knows the build's CUDA version.
    Why it matters:
        "CUDA error: no kernel image is available for execution on the device", at the first kernel. torch only
        warns before that ("... is not compatible with the current PyTorch installation").
    Example:
        torch 2.5.1+cu124 on an RTX 5090 (sm_120)
    Fix:
        A newer torch: sm_100 and sm_120 (Blackwell) need CUDA 12.8 or later. For PTX, a driver that is at least
        as new as the build's CUDA.
    References:
        https://docs.nvidia.com/cuda/cuda-programming-guide/01-introduction/cuda-platform.html
    """
    known = architectures(torch.arch_list)
    for device, capability in _uncovered(gpu, torch, known):
        if capability < min(a.capability for a in known):
            continue
        ptx = any(a.ptx and a.runs_on(capability) for a in known)
        why = "; its PTX needs a driver for its own CUDA version or a newer one" if ptx else ""
        yield Finding(
            Severity.ERROR,
            f"{device.label} is {_sm(capability)}; torch {torch.version} has {' '.join(torch.arch_list)}{why}",
            Remediation(
                "Upgrade the driver on the host" if ptx else "Use a torch that is built for this GPU",
                ("sudo ubuntu-drivers install --gpgpu  # then reboot, when no job runs",)
                if ptx
                else ("docker run --gpus all torch-doctor:cuda ...", "python -m pip install --upgrade torch"),
            ),
            evidence=_evidence(device, capability, torch),
        )


@check("GPU025", "gpu-older-than-torch-build", tags={"torch"})
def gpu_older(gpu: GpuFacts, torch: GpuTorchFacts) -> Iterator[Finding]:
    """torch's build holds no code any more for a GPU that is older than it.

    What it checks:
        Each GPU's compute capability against the oldest architecture of the build.
    Why it matters:
        "CUDA error: no kernel image is available for execution on the device". CUDA 13 dropped everything before
        7.5: V100 (7.0), P100 (6.0), GTX 10 (6.1).
    Example:
        torch 2.10+cu130 on a V100
    Fix:
        A build that still has it: CUDA 12.8 from 7.0 on, CUDA 12.6 from 5.0 on; for the V100, the torch2.9 image.
    References:
        https://github.com/pytorch/pytorch/issues/157517
    """
    known = architectures(torch.arch_list)
    for device, capability in _uncovered(gpu, torch, known):
        if capability >= min(a.capability for a in known):
            continue
        fitting = next((cuda for cuda, floor in WHEEL_FLOORS if capability >= floor), None)
        text = (
            f"Use a torch built with CUDA {fitting}" if fitting else "No current torch has this GPU: use a newer one"
        )
        yield Finding(
            Severity.ERROR,
            f"{device.label} is {_sm(capability)}; torch {torch.version} starts at "
            f"{_sm(min(a.capability for a in known))}",
            Remediation(text, ("docker run --gpus all torch-doctor:torch2.9 ...",) if fitting == "12.8" else ()),
            evidence=_evidence(device, capability, torch),
        )


def _uncovered(
    gpu: GpuFacts, torch: GpuTorchFacts, known: tuple[Architecture, ...]
) -> Iterator[tuple[GpuDevice, Capability]]:
    """Devices that no code of the build runs on. PTX counts where the driver can compile it."""
    build = tuple(int(part) for part in (torch.cuda or "0").split(".")[:2])
    driver = torch.libcuda_version or gpu.cuda_version
    usable = [a for a in known if not a.ptx or driver is None or driver >= build]
    for device in gpu.answering if known else ():
        capability = device.compute_capability
        if capability is not None and not any(a.runs_on(capability) for a in usable):
            yield device, capability


def _sm(capability: Capability) -> str:
    return f"sm_{capability[0]}{capability[1]}"


def _evidence(device: GpuDevice, capability: Capability, torch: GpuTorchFacts) -> dict[str, object]:
    return {
        "index": device.index,
        "compute_capability": list(capability),
        "arch_list": list(torch.arch_list),
        "torch": torch.version,
    }


@check("GPU026", "gpu-matmul-fails", tags={"torch"})
def matmul_fails(matmul: GpuMatmulFacts, gpu: GpuFacts, torch: GpuTorchFacts) -> Iterator[Finding]:
    """A matrix multiplication on a GPU fails, crashes or hangs.

    What it checks:
        torch starts CUDA and multiplies two 1024 x 1024 matrices on each GPU, in a child process with a time limit.
    Why it matters:
        Everything before looked well, and the first kernel of the run would end the same way.
    Example:
        torch.cuda.OutOfMemoryError, "device busy or unavailable", an illegal address, or no answer at all
    Fix:
        As the error says: free the GPU's memory, change its compute mode, reset a GPU that hangs.
    References:
        https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    if any(driver_too_old(gpu, torch)):
        return  # it would only say so again
    if matmul.failure:
        yield Finding(
            Severity.ERROR,
            f"{matmul.step or 'start'}: {matmul.failure}",
            START if matmul.step == STARTING else LEAVE_OUT,
            evidence={"step": matmul.step, "failure": matmul.failure},
        )
    uncovered = any(_uncovered(gpu, torch, architectures(torch.arch_list)))
    for result in matmul.results:
        if result.error and not (uncovered and NO_KERNEL_IMAGE in result.error):
            yield Finding(
                Severity.ERROR,
                f"{_place(result)}: {result.error}",
                Remediation("Run it alone, with the error at its own line", (_rerun(result),)),
                evidence={"index": result.index, "dtype": result.dtype, "error": result.error},
            )


@check("GPU027", "gpu-matmul-wrong", tags={"torch"})
def matmul_wrong(matmul: GpuMatmulFacts) -> Iterator[Finding]:
    """A GPU computes wrong numbers.

    What it checks:
        The product on each GPU, in float32 and bfloat16, against the CPU's in double precision.
    Why it matters:
        A GPU that computes wrong without an error (silent data corruption) spoils a run that looks well: loss
        spikes, NaN on one rank, or a model that does not converge.
    Example:
        GPU 5, float32: relative error 0.3, where rounding explains 0.0001
    Fix:
        Leave the GPU out, run NVIDIA's diagnostics on it, and replace it where they fail.
    References:
        https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html
    """
    for result in matmul.results:
        if result.relative_error is None or result.relative_error <= result.tolerance:
            continue
        yield Finding(
            Severity.ERROR,
            f"{_place(result)}: relative error {result.relative_error:.2g}; rounding explains {result.tolerance:g}",
            Remediation(
                "Leave this GPU out of the run, and let NVIDIA's diagnostics judge it",
                (f"sudo dcgmi diag -r 3 -i {result.index}", "sudo dmesg | grep -iE 'xid|nvrm' | tail"),
            ),
            evidence={
                "index": result.index,
                "dtype": result.dtype,
                "relative_error": result.relative_error,
                "tolerance": result.tolerance,
            },
        )


def _place(result: MatmulResult) -> str:
    name = f" ({result.name})" if result.name else ""
    return f"cuda:{result.index}{name}, {result.dtype}"


def _rerun(result: MatmulResult) -> str:
    expression = (
        f"a = torch.randn(1024, 1024, device='cuda:{result.index}', dtype=torch.{result.dtype}); print(a @ a)"
    )
    return f'CUDA_LAUNCH_BLOCKING=1 python -c "import torch; {expression}"'

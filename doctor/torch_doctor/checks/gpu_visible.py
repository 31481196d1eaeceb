"""What of the GPUs CUDA shows, and whether that is what the run needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.cuda import CudaDriverFacts
from torch_doctor.facts.gpu import GpuDevice, GpuFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, ProbeFailure, Remediation, Severity, counted, mib
from torch_doctor.registry import check

UNSET = Remediation(
    "Unset it, or name GPUs that nvidia-smi -L lists",
    (
        "unset CUDA_VISIBLE_DEVICES",
        "docker run --gpus all -e CUDA_VISIBLE_DEVICES=0 ...    # count from 0 over the GPUs of the container",
        "nvidia-smi -L",
    ),
)

_NUMBER = re.compile(r"\s*([+-]?\d+)")


@dataclass(frozen=True)
class Visible:
    """CUDA_VISIBLE_DEVICES as CUDA reads it: the entries that count, and the first that ends the list."""

    kept: tuple[str, ...]
    stopped_at: str | None = None
    reason: str = ""


@check("GPU005", "cuda-visible-devices-hides-gpus")
def cuda_visible_devices_hides(access: GpuAccessFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides GPUs that are here.

    What it checks:
        The variable as CUDA reads it: a list of indexes or UUIDs that ends at its first invalid entry. An empty
        value, -1, an index past the last GPU, a UUID of another machine or of a MIG slice that is gone, and an
        entry that stands twice.
    Why it matters:
        What follows the invalid entry is hidden without a word, and with the first one invalid CUDA finds no
        GPU: training runs on the CPU. UUIDs go stale when a machine, a GPU or a MIG layout changes.
    Example:
        CUDA_VISIBLE_DEVICES=0,1,8,9 python train.py        # eight GPUs: 8 ends the list, two are left
    Fix:
        unset CUDA_VISIBLE_DEVICES, or list indexes from 0 over the GPUs of this container.
    References:
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
    """
    value = access.cuda_visible_devices
    if value is None:
        return
    seen = visible(value, gpu.devices)
    if seen.stopped_at is None:
        return
    meant = value.strip() in ("", "-1", "NoDevFiles")
    severity = Severity.WARNING if seen.kept or (meant and not access.asked) else Severity.ERROR
    rest = f"CUDA sees {counted(len(seen.kept), 'GPU')} of {len(gpu.devices)}" if seen.kept else "CUDA sees no GPU"
    yield Finding(
        severity,
        f"CUDA_VISIBLE_DEVICES={value or '(empty)'}: {seen.reason}; {rest}",
        UNSET,
        evidence={"CUDA_VISIBLE_DEVICES": value, "kept": list(seen.kept), "gpus": [d.uuid for d in gpu.devices]},
    )


def visible(value: str, devices: tuple[GpuDevice, ...]) -> Visible:
    """The list as CUDA reads it. Source: CUDA C programming guide, and torch.cuda._parse_visible_devices."""
    if value.strip() in ("", "-1", "NoDevFiles"):
        return Visible((), value, "it hides every GPU")
    if value.startswith(("GPU-", "MIG-")):
        return _by_uuid(value.split(","), devices)
    return _by_index(value.split(","), len(devices), any(d.mig_enabled for d in devices))


def _by_index(entries: list[str], count: int, mig: bool) -> Visible:
    kept: list[str] = []
    for entry in entries:
        match = _NUMBER.match(entry)
        number = int(match[1]) if match else -1
        if number < 0:
            reason = f"{entry.strip()!r} is no index and ends the list" if not match else f"{number} ends the list"
            return Visible(tuple(kept), entry, reason)
        if number >= count and not mig:
            here = f"the last GPU is {count - 1}" if count else "there is no GPU"
            return Visible(tuple(kept), entry, f"{number} ends the list, {here}")
        if str(number) in kept:
            return Visible((), entry, f"{number} stands twice, which hides all")
        kept.append(str(number))
    return Visible(tuple(kept))


def _by_uuid(entries: list[str], devices: tuple[GpuDevice, ...]) -> Visible:
    known = [d.uuid for d in devices if d.uuid] + [m.uuid for d in devices for m in d.mig_instances]
    kept: list[str] = []
    for entry in (e.strip() for e in entries):
        wanted = entry.removeprefix("MIG-").split("/")[0] if entry.startswith("MIG-GPU-") else entry
        matches = [u for u in known if u.startswith(wanted)]
        if not matches:
            return Visible(tuple(kept), entry, f"{entry} is not a GPU of this machine and ends the list")
        if len(matches) > 1 and "/" not in entry:
            return Visible(tuple(kept), entry, f"{entry} fits {len(matches)} GPUs and ends the list")
        if entry in kept:
            return Visible((), entry, f"{entry} stands twice, which hides all")
        kept.append(entry)
    return Visible(tuple(kept))


@check("GPU006", "mig-without-instances")
def mig_without_instances(gpu: GpuFacts) -> Iterator[Finding]:
    """MIG mode is on, and the GPU has no MIG device.

    What it checks:
        GPUs whose MIG mode is enabled and that list no instance here.
    Why it matters:
        In MIG mode only slices compute: without one CUDA finds no GPU ("no CUDA-capable device is detected"),
        although nvidia-smi lists it.
    Example:
        sudo nvidia-smi -i 0 -mig 1         # and no slice made after it
    Fix:
        Make slices (nvidia-smi mig -cgi ... -C), or turn the mode off; in a container, pass a slice on.
    References:
        https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    for device in gpu.answering:
        if device.mig_enabled and not device.mig_instances:
            yield Finding(
                Severity.ERROR,
                f"{device.label} is in MIG mode and has no MIG device: CUDA cannot use it",
                Remediation(
                    "On the host, make slices or turn MIG off; a container is given a slice by its UUID",
                    (
                        f"sudo nvidia-smi mig -i {device.index} -lgip",
                        f"sudo nvidia-smi mig -i {device.index} -cgi PROFILE -C",
                        f"sudo nvidia-smi -i {device.index} -mig 0",
                        "docker run --gpus '\"device=MIG-UUID\"' ...",
                    ),
                ),
                evidence={"index": device.index, "uuid": device.uuid},
            )


@check("GPU007", "too-few-gpus")
def too_few_gpus(access: GpuAccessFacts, gpu: GpuFacts, cuda: CudaDriverFacts | ProbeFailure) -> Iterator[Finding]:
    """The run needs more GPUs than CUDA sees.

    What it checks:
        --need gpus=N, or the script's world size, against the GPUs that CUDA counts after CUDA_VISIBLE_DEVICES;
        NVML's count where CUDA did not start.
    Why it matters:
        torchrun starts a rank per process, not per GPU: "invalid device ordinal", or two ranks on one GPU and
        NCCL's "Duplicate GPU detected".
    Example:
        torchrun --nproc-per-node=8 train.py        # in a container with --gpus 4
    Fix:
        Pass more GPUs, or start fewer ranks. CUDA shows one MIG slice to a process, however many there are.
    References:
        https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    if access.wanted is None:
        return
    counted_by_cuda = cuda.device_count if isinstance(cuda, CudaDriverFacts) else None
    count = len(gpu.answering) if counted_by_cuda is None else counted_by_cuda
    if count >= access.wanted:
        return
    slices = sum(len(d.mig_instances) for d in gpu.devices)
    hint = f" (CUDA shows one of {slices} MIG slices to a process)" if slices > 1 else ""
    yield Finding(
        Severity.ERROR,
        f"{counted(access.wanted, 'GPU')} needed; {count} can be used{hint}",
        Remediation(
            "Pass more GPUs, or start fewer ranks",
            (
                f"docker run --gpus {access.wanted} ...",
                f"# compose: deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, "
                f"count: {access.wanted}, capabilities: [gpu]}}]}}}}}}",
                f"# Kubernetes: resources: {{limits: {{nvidia.com/gpu: {access.wanted}}}}}",
                f"torchrun --nproc-per-node={max(count, 1)} ...",
            ),
        ),
        evidence={"needed": access.wanted, "usable": count, "nvml": len(gpu.devices), "asked": access.wanted_by},
    )


@check("GPU008", "gpu-memory-too-small")
def gpu_memory_too_small(access: GpuAccessFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU has less memory than the run needs.

    What it checks:
        --need gpu-memory=SIZE against the memory of each GPU, or of each MIG device, used or not.
    Why it matters:
        The run ends in "CUDA out of memory" once its activations grow to what it needs.
    Example:
        torch-doctor check --need gpu-memory=70g        # on a GPU with 40 GiB
    Fix:
        A larger GPU or MIG slice; or a smaller batch, mixed precision, activation checkpointing or sharding.
    References:
        https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
    """
    needed = access.wanted_memory_bytes
    if needed is None:
        return
    for device in gpu.answering:
        for label, total in _memories(device):
            if total is not None and total < needed:
                yield Finding(
                    Severity.ERROR,
                    f"{label} has {mib(total)}; the run needs {mib(needed)}",
                    Remediation("Choose a larger GPU or MIG slice, or make the run smaller"),
                    evidence={"index": device.index, "total_bytes": total, "needed_bytes": needed},
                )


def _memories(device: GpuDevice) -> list[tuple[str, int | None]]:
    if device.mig_enabled:
        return [(f"{device.label}, {m.uuid}", m.memory_total_bytes) for m in device.mig_instances]
    return [(device.label, device.memory_total_bytes)]


@check("GPU009", "compute-capability-too-low")
def compute_capability_too_low(access: GpuAccessFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """A GPU is older than what the run needs.

    What it checks:
        The compute capability that --need or the script asks for (bfloat16 needs 8.0, FP8 needs 8.9) against
        each GPU's. What only the script's dtypes suggest is a warning.
    Why it matters:
        Kernels that the GPU lacks fail, or are emulated many times slower: bfloat16 on a V100 or T4 runs, slowly.
    Example:
        torch.autocast("cuda", dtype=torch.bfloat16)        # on a T4, compute capability 7.5
    Fix:
        Use a newer GPU, or float16 with a GradScaler.
    References:
        https://developer.nvidia.com/cuda-gpus
    """
    needed = access.wanted_capability
    if needed is None:
        return
    for device in gpu.answering:
        found = device.compute_capability
        if found is not None and found < needed:
            yield Finding(
                Severity.ERROR if access.capability_stated else Severity.WARNING,
                f"{device.label} has compute capability {found[0]}.{found[1]}; the run needs {needed[0]}.{needed[1]}",
                Remediation("Use a newer GPU, or a dtype that this one has: float16 with a GradScaler"),
                evidence={"index": device.index, "compute_capability": list(found), "needed": list(needed)},
            )

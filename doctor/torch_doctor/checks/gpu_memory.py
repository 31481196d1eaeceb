"""GPU memory that other processes hold."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.gpu import GpuDevice, GpuFacts, GpuProcess
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, Remediation, Severity, mib
from torch_doctor.registry import check

#: share of a GPU's memory from which it counts as held: the driver's own reserve and a desktop stay below
HELD_SHARE = 0.1

SEE_PROCESSES = (
    "docker run --pid=host --gpus all ...",
    "# compose: pid: host",
    "# Kubernetes: hostPID: true",
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv    # on the host",
)


@check("GPU030", "gpu-memory-held")
def gpu_memory_held(access: GpuAccessFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """Other processes hold a GPU's memory.

    What it checks:
        The memory in use on each GPU before the run starts: from a tenth of it on a warning, and an error where
        what is left is less than --need gpu-memory. Processes are named with their owner where this PID
        namespace shows them.
    Why it matters:
        The run ends in "CUDA out of memory" with little of its own allocated. A killed run whose workers live
        on, a notebook kernel or a colleague's job holds it.
    Example:
        CUDA out of memory. ... this process has 1.9 GiB memory in use; process 4711 has 60 GiB memory in use
    Fix:
        End the process if it is yours, or choose another GPU. In a container --pid=host shows whose it is.
    References:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    needed = access.wanted_memory_bytes
    for device in gpu.answering:
        for label, used, total in _memories(device):
            if used is None or not total:
                continue
            # a GPU that is too small even when empty has a check of its own
            short = needed is not None and total - used < needed <= total
            if not short and used < HELD_SHARE * total:
                continue
            yield Finding(
                Severity.ERROR if short else Severity.WARNING,
                f"{label}: {mib(used)} of {mib(total)} is in use{_by_whom(device)}"
                + (f"; the run needs {mib(needed)}" if short and needed is not None else ""),
                _remedy(device, access),
                evidence={
                    "index": device.index,
                    "used_bytes": used,
                    "total_bytes": total,
                    "processes": [_shown(p) for p in device.processes or ()],
                },
            )


def _memories(device: GpuDevice) -> list[tuple[str, int | None, int | None]]:
    """Label, bytes in use and bytes in all: of the GPU, or of each of its MIG devices."""
    if not device.mig_enabled:
        return [(device.label, device.memory_used_bytes, device.memory_total_bytes)]
    return [(f"{device.label}, {m.uuid}", m.memory_used_bytes, m.memory_total_bytes) for m in device.mig_instances]


def _by_whom(device: GpuDevice) -> str:
    seen = [p for p in device.processes or () if p.visible]
    if seen:
        return " by " + ", ".join(_named(p) for p in seen)
    hidden = device.processes or ()
    if hidden:
        return " by processes that this container cannot see: " + ", ".join(f"PID {p.pid}" for p in hidden)
    return ", by whom cannot be seen from here"


def _named(process: GpuProcess) -> str:
    size = f", {mib(process.used_bytes)}" if process.used_bytes else ""
    return f"{process.name or 'a process'} (PID {process.pid} of {process.owner}{size})"


def _shown(process: GpuProcess) -> dict[str, object]:
    return {
        "pid": process.pid,
        "used_bytes": process.used_bytes,
        "name": process.name,
        "owner": process.owner,
        "visible": process.visible,
    }


def _remedy(device: GpuDevice, access: GpuAccessFacts) -> Remediation:
    seen = [p for p in device.processes or () if p.visible]
    other = "CUDA_VISIBLE_DEVICES=N python ...    # another GPU"
    if seen:
        largest = max(seen, key=lambda p: p.used_bytes or 0)
        text = "End the process if it is yours, or choose another GPU"
        return Remediation(text, (f"ps -o pid,user,etime,cmd -p {largest.pid}", f"kill {largest.pid}", other))
    if access.container:
        text = "A container sees its own processes only: start it in the host's PID namespace to see whose it is"
        return Remediation(text, (*SEE_PROCESSES, other))
    return Remediation("Look for the processes as root, or choose another GPU", ("sudo nvidia-smi", other))

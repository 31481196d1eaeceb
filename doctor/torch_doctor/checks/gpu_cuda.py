"""Whether CUDA starts: the driver's age against the build, cuInit's code, and which libcuda is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.checks.gpu_visible import visible
from torch_doctor.facts.cuda import CudaDriverFacts, GpuTorchFacts
from torch_doctor.facts.gpu import GpuFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, ProbeFailure, Remediation, Severity
from torch_doctor.registry import check

#: CUDA major version of a build -> oldest Linux driver that runs it (minor version compatibility).
#: Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
#: Compatibility", https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/; read on 2026-11-30
DRIVER_FLOORS: dict[int, str] = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

#: Product lines that the forward compatibility package (cuda-compat) supports. Source:
#: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html; read on 2026-11-30
CONSUMER_NAMES = ("GeForce", "TITAN", "Quadro P", "Quadro M", "Quadro T")


@dataclass(frozen=True)
class InitCode:
    """What a code of cuInit means, and what mends it."""

    meaning: str
    remedy: str
    commands: tuple[str, ...]


#: CUresult: CUDA sees no GPU
NO_DEVICE = 100

#: cuInit's codes while NVML is healthy. Source: cuda.h, cudaError_enum, and the data center documentation
INIT_CODES: dict[int, InitCode] = {
    34: InitCode(
        "libcuda is the stub for linking, not a driver",
        "Take the stubs folder out of LD_LIBRARY_PATH",
        ("echo $LD_LIBRARY_PATH | tr : '\\n' | grep stubs",),
    ),
    NO_DEVICE: InitCode(
        "CUDA sees no GPU, though NVML does",
        "Look at CUDA_VISIBLE_DEVICES, at MIG, and at the capabilities that the container was given",
        (
            'echo "CUDA_VISIBLE_DEVICES=[$CUDA_VISIBLE_DEVICES]"; nvidia-smi -L',
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
        ),
    ),
    101: InitCode(
        "a device number that is no GPU: a node is missing, or a MIG slice or GPU was changed under the container",
        "Recreate the container, with every /dev/nvidia* node of its GPUs",
        ("ls -l /dev/nvidia*", "docker rm -f CONTAINER && docker run --gpus all ..."),
    ),
    802: InitCode(
        "the NVSwitch fabric is not up: nvidia-fabricmanager does not run, or is of another version than the driver",
        "On the host, start the fabric manager of exactly the driver's version, then recreate the container",
        (
            "sudo systemctl enable --now nvidia-fabricmanager",
            "nvidia-smi -q | grep -i -A 3 fabric",
            "journalctl -u nvidia-fabricmanager -n 20",
        ),
    ),
    803: InitCode(
        "libcuda and the kernel module do not fit together",
        "Use the driver's own libcuda: remove the compat folder from the path; reboot after a driver upgrade",
        ("cat /proc/driver/nvidia/version", "ldconfig -p | grep libcuda.so.1", "unset LD_LIBRARY_PATH"),
    ),
    804: InitCode(
        "a compat libcuda is loaded, and this GPU does not support forward compatibility",
        "Use the driver's own libcuda; upgrade the driver where the CUDA build needs a newer one",
        (
            "ldconfig -p | grep libcuda.so.1",
            "unset LD_LIBRARY_PATH",
            "docker run --gpus all -e LD_LIBRARY_PATH= ...",
        ),
    ),
    805: InitCode(
        "the MPS control daemon cannot be reached",
        "Start it as the user that trains, or take CUDA_MPS_PIPE_DIRECTORY away",
        ("nvidia-cuda-mps-control -d", "unset CUDA_MPS_PIPE_DIRECTORY"),
    ),
    999: InitCode(
        "/dev/nvidia-uvm is missing or its module is in a bad state",
        "On the host, load the module and make its node; then recreate the container",
        (
            "sudo nvidia-modprobe -u -c=0",
            "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm      # after suspend, with no CUDA process",
            "docker run --gpus all --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools ...",
        ),
    ),
}


@check("GPU020", "driver-too-old", tags={"torch"})
def driver_too_old(gpu: GpuFacts, torch: GpuTorchFacts) -> Iterator[Finding]:
    """The NVIDIA driver is older than torch's CUDA build needs.

    What it checks:
        The driver's version against the floor of the build's CUDA major version: within one major, any driver
        from its first on will do. A cuda-compat libcuda in use that starts is counted (forward compatibility).
    Why it matters:
        "The NVIDIA driver on your system is too old", or torch.cuda.is_available() is False without a word.
    Example:
        torch 2.9.1+cu130 on driver 550.54.15
    Fix:
        Upgrade the host's driver, or use an image with an older CUDA build. Data center GPUs can use
        cuda-compat-<major>-<minor> in the container instead.
    References:
        https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    build = numbers(torch.cuda or "")
    floor = DRIVER_FLOORS.get(build[0]) if build else None
    if floor is None or not gpu.driver_version or numbers(gpu.driver_version) >= numbers(floor):
        return
    if _forward_compatible(torch.libcuda_version, build, gpu.driver_version):
        return
    yield Finding(
        Severity.ERROR,
        f"driver {gpu.driver_version} is older than {floor}, which torch {torch.version} (CUDA {torch.cuda}) needs",
        Remediation(_older_build(gpu, build[0]), _driver_commands(gpu, torch)),
        evidence={"driver": gpu.driver_version, "floor": floor, "torch": torch.version, "cuda": torch.cuda},
    )


def _forward_compatible(libcuda: tuple[int, int] | None, build: tuple[int, ...], driver: str) -> bool:
    """Whether the libcuda in use is a newer driver's (cuda-compat), and runs the build."""
    if libcuda is None:
        return False
    branch = numbers(driver)[:1]
    own = max((major for major, floor in DRIVER_FLOORS.items() if branch >= numbers(floor)[:1]), default=0)
    return libcuda >= build[:2] or (libcuda[0] >= build[0] and libcuda[0] > own)


def _older_build(gpu: GpuFacts, major: int) -> str:
    fitting = [m for m, floor in DRIVER_FLOORS.items() if m < major and numbers(gpu.driver_version) >= numbers(floor)]
    other = f", or use a torch built for CUDA {max(fitting)}" if fitting else ""
    return f"Upgrade the driver on the host{other}"


def _driver_commands(gpu: GpuFacts, torch: GpuTorchFacts) -> tuple[str, ...]:
    commands = ["sudo ubuntu-drivers install --gpgpu  # then reboot, when no job runs"]
    if numbers(torch.cuda or "")[0] > 12 and numbers(gpu.driver_version) >= numbers(DRIVER_FLOORS[12]):
        commands.append("docker run --gpus all torch-doctor:torch2.9 ...")
    if not any(name in d.name for d in gpu.devices for name in CONSUMER_NAMES):
        package = "cuda-compat-" + "-".join(str(n) for n in numbers(torch.cuda or "")[:2])
        commands.append(f"apt-get install -y {package}    # in the image; data center GPUs only")
    return tuple(commands)


def numbers(version: str) -> tuple[int, ...]:
    """``(580, 65, 6)`` of ``580.65.06``."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@check("GPU021", "cuda-does-not-start")
def cuda_does_not_start(cuda: CudaDriverFacts, gpu: GpuFacts | ProbeFailure) -> Iterator[Finding]:
    """NVML is healthy, and CUDA does not start.

    What it checks:
        cuInit of the libcuda.so.1 that the loader finds, in a child process with a time limit; its code in words.
    Why it matters:
        nvidia-smi looks well, and torch.cuda.is_available() is False: nvidia-smi does not use CUDA.
    Example:
        torch.cuda.init()       # Error 802: system not yet initialized
    Fix:
        By code: 100 no device, 101 invalid device, 802 fabric manager, 803 driver mismatch, 804 compat library on
        a GPU that does not support it, 999 the uvm module.
    References:
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
    """
    if cuda.init_code == 0:
        return
    if cuda.init_code == NO_DEVICE and _hidden(cuda.visible_devices, gpu):
        return  # cuda-visible-devices-hides-gpus says it
    evidence = {
        "init_code": cuda.init_code,
        "library": cuda.library,
        "uvm_node": cuda.uvm_node,
        "CUDA_VISIBLE_DEVICES": cuda.visible_devices,
    }
    if cuda.init_code is None:
        text = "On the host: read the kernel's messages, reset the GPU or reboot"
        remedy = Remediation(text, ("sudo dmesg | grep -iE 'xid|nvrm' | tail", "torch-doctor check --timeout 120"))
        yield Finding(Severity.ERROR, f"{cuda.call or 'cuInit'}: {cuda.failure}", remedy, evidence)
        return
    known = INIT_CODES.get(cuda.init_code, InitCode("", "Read dmesg on the host; reboot", ("sudo dmesg | tail",)))
    name = f"{cuda.init_name or 'cuInit'} ({cuda.init_code})"
    yield Finding(
        Severity.ERROR,
        f"{'NVML is healthy and ' if isinstance(gpu, GpuFacts) else ''}cuInit fails with {name}"
        + (f": {known.meaning}" if known.meaning else ""),
        Remediation(known.remedy, known.commands),
        evidence,
    )


def _hidden(value: str | None, gpu: GpuFacts | ProbeFailure) -> bool:
    devices = gpu.devices if isinstance(gpu, GpuFacts) else ()
    return value is not None and not visible(value, devices).kept


@check("GPU022", "compat-libcuda-shadows-driver")
def compat_shadows_driver(cuda: CudaDriverFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """A compat libcuda is loaded in place of the driver's own.

    What it checks:
        The libcuda.so.1 that the loader maps: one from a compat folder, or one that is older than the driver
        while the driver's own is on the path, too.
    Why it matters:
        cuda-compat is for drivers older than the build. With a newer driver it takes CUDA back to its own version,
        and on GeForce cards and after driver upgrades CUDA stops with error 803 or 804.
    Example:
        LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH python train.py
    Fix:
        Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, or uninstall cuda-compat.
    References:
        https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    if "/compat" not in cuda.library and "/cuda-compat" not in cuda.library:
        return
    if cuda.init_code == 0 and _newer_than_driver(cuda, gpu):
        return
    version = f" (CUDA {cuda.driver_version[0]}.{cuda.driver_version[1]})" if cuda.driver_version else ""
    yield Finding(
        Severity.WARNING if cuda.init_code == 0 else Severity.ERROR,
        f"{cuda.library}{version} is loaded in place of the own libcuda of driver {gpu.driver_version}",
        Remediation(
            "Use the driver's own libcuda: take the compat folder off the loader's path",
            (
                "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v compat | paste -sd:)",
                "sudo rm -f /etc/ld.so.conf.d/*compat*.conf && sudo ldconfig",
                "docker run --gpus all -e LD_LIBRARY_PATH= ...",
            ),
        ),
        evidence={"library": cuda.library, "shadowed": list(cuda.other_libraries), "init_code": cuda.init_code},
    )


def _newer_than_driver(cuda: CudaDriverFacts, gpu: GpuFacts) -> bool:
    """Whether forward compatibility is at work. NVML's CUDA version tells little: it is the loaded libcuda's."""
    version = numbers(cuda.library.rpartition(".so.")[2])  # libcuda.so.550.54.15
    if len(version) > 1:
        return version > numbers(gpu.driver_version)
    return bool(cuda.driver_version and gpu.cuda_version and cuda.driver_version > gpu.cuda_version)


@check("GPU023", "libcuda-not-passed-to-container")
def libcuda_missing(access: GpuAccessFacts, gpu: GpuFacts) -> Iterator[Finding]:
    """NVML works, and there is no libcuda.so.1.

    What it checks:
        The loader's path for libcuda.so.1 where NVML sees a GPU, and NVIDIA_DRIVER_CAPABILITIES.
    Why it matters:
        Without "compute" the container runtime mounts what nvidia-smi needs and not what CUDA needs: nvidia-smi
        works, and torch finds no GPU. Unset means "utility,compute" with --gpus, and "utility" in older runtimes.
    Example:
        docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=utility torch-doctor
    Fix:
        NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a host, the driver's CUDA package (libcuda1).
    References:
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    if access.cuda_library is not None:
        return
    capabilities = access.driver_capabilities
    given = (
        f"NVIDIA_DRIVER_CAPABILITIES={capabilities or '(empty)'}" if capabilities is not None else "no libcuda.so.1"
    )
    host = ("sudo apt-get install -y libcuda1        # Debian; libnvidia-compute-VERSION on Ubuntu",)
    container = (
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
        "# compose: environment: {NVIDIA_DRIVER_CAPABILITIES: 'compute,utility'}",
        "# Kubernetes: env: [{name: NVIDIA_DRIVER_CAPABILITIES, value: 'compute,utility'}]",
    )
    yield Finding(
        Severity.ERROR,
        f"NVML sees {gpu.devices[0].label}, and CUDA's libcuda.so.1 is not here ({given})",
        Remediation(
            "Recreate the container with the compute capability" if access.container else "Install the driver's CUDA",
            container if access.container else host,
        ),
        evidence={"NVIDIA_DRIVER_CAPABILITIES": capabilities},
    )

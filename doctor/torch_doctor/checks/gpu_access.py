"""Whether a GPU can be reached at all: the machine, the container's start, and the variables that hide GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.gpu import GpuFacts, NvmlStatusFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, ProbeFailure, Remediation, Severity, counted
from torch_doctor.registry import check

PASS_GPUS = (
    "docker run --gpus all ...",
    "# compose: deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}",
    "# Kubernetes: resources: {limits: {nvidia.com/gpu: 1}}",
    "podman run --device nvidia.com/gpu=all ...",
)
INSTALL_DRIVER = (
    "sudo apt-get install -y nvidia-driver firmware-misc-nonfree    # Debian, with non-free enabled",
    "sudo ubuntu-drivers install --gpgpu                            # Ubuntu server",
    "nvidia-smi",
)
LOAD_DRIVER = ("sudo modprobe nvidia", "sudo dmesg | grep -iE 'nvidia|nvrm|nouveau' | tail -n 20", "nvidia-smi")

#: values of NVIDIA_VISIBLE_DEVICES that pass no GPU on. Source: NVIDIA Container Toolkit, docker-specialized.html
HIDING_VALUES = {"": "empty", "void": "void", "none": "none"}


@check("GPU001", "no-gpu-found")
def no_gpu_found(access: GpuAccessFacts | ProbeFailure) -> Iterator[Finding]:
    """This machine has no NVIDIA GPU, driver or library.

    What it checks:
        Device nodes, the kernel's driver, the PCI bus and the loader's path: whether anything of NVIDIA's is here.
    Why it matters:
        Training falls back to the CPU, which a script with device = "cuda" if available does in silence. Where
        nobody asked for a GPU this is a note; with --need gpus=N or --gpus it is an error.
    Example:
        torch-doctor check --need gpus=1        # on a machine without a GPU
    Fix:
        Run on a machine with a GPU: a GPU instance type of a cloud, a GPU node pool in Kubernetes, or
        --gres=gpu:1 in Slurm.
    References:
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    if isinstance(access, ProbeFailure):
        yield Finding(
            Severity.NOTE,
            "no NVIDIA GPU, driver or library is here: training runs on the CPU",
            evidence=dict(access.evidence),
        )
        return
    if access.host_has_gpu or access.nvml_library:
        return
    yield Finding(
        Severity.ERROR,
        f"{_asked(access)}; no NVIDIA GPU, driver or library is here",
        Remediation(
            "Run on a machine with a GPU; on a cluster, ask its scheduler for one",
            ("# Kubernetes: resources: {limits: {nvidia.com/gpu: 1}}", "srun --gres=gpu:1 ..."),
        ),
        evidence={"asked": access.asked, "container": access.container},
    )


@check("GPU002", "gpu-not-passed-to-container", tags={"container"})
def gpu_not_passed(access: GpuAccessFacts, gpu: GpuFacts | ProbeFailure) -> Iterator[Finding]:
    """The host has a GPU with its driver, and this container was started without it.

    What it checks:
        In a container: the host's kernel driver is loaded, and neither device nodes nor NVML came in.
    Why it matters:
        torch.cuda.is_available() is False and training runs on the CPU, 10 to 100 times slower.
    Example:
        docker run IMAGE python train.py         # without --gpus
    Fix:
        docker run --gpus all, a device reservation in compose, a limit of nvidia.com/gpu in Kubernetes. Where
        docker says 'could not select device driver "" with capabilities: [[gpu]]', install the NVIDIA Container
        Toolkit on the host.
    References:
        https://docs.docker.com/engine/containers/gpu/
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    if isinstance(gpu, GpuFacts) or access.has_device or access.kernel_driver is None:
        return
    if not access.container or _hidden_by_value(access):
        return
    yield Finding(
        _wish(access),
        f"{_because(access)}the host has NVIDIA driver {access.kernel_driver}; no GPU was passed to this container",
        Remediation(
            "Recreate the container with the GPUs; the host needs the NVIDIA Container Toolkit",
            (
                *PASS_GPUS,
                "sudo nvidia-ctk runtime configure --runtime=docker",
                "sudo systemctl restart docker  # ends running containers",
            ),
        ),
        evidence={"kernel_driver": access.kernel_driver, "device_nodes": list(access.device_nodes)},
    )


@check("GPU003", "nvidia-driver-not-loaded")
def driver_not_loaded(access: GpuAccessFacts, nvml: NvmlStatusFacts | ProbeFailure) -> Iterator[Finding]:
    """A GPU is on the PCI bus, or its libraries are installed, and the kernel has no NVIDIA driver.

    What it checks:
        /proc/driver/nvidia/version against NVIDIA's devices on the PCI bus and libnvidia-ml.so.1.
    Why it matters:
        The driver lives in the host's kernel: no package in a container or virtual environment stands in for it.
        It is missing after a kernel upgrade without DKMS, with Secure Boot refusing the module, or with nouveau.
    Example:
        nvidia-smi      # NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver
    Fix:
        On the host: install the driver, or load it (modprobe nvidia), and read dmesg where that fails.
    References:
        https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    if access.kernel_driver is not None or access.wsl:
        return
    if isinstance(nvml, NvmlStatusFacts):
        if nvml.code != NvmlStatusFacts.DRIVER_NOT_LOADED:
            return
    elif not access.pci_gpus:
        return
    where = (
        f"{counted(len(access.pci_gpus), 'NVIDIA GPU')} on the PCI bus" if access.pci_gpus else access.nvml_library
    )
    commands = LOAD_DRIVER if access.nvml_library else (*INSTALL_DRIVER, *LOAD_DRIVER[1:2])
    # libraries alone: a GPU system's disk on a machine that has no GPU
    library_only = not access.pci_gpus and not access.asked
    yield Finding(
        Severity.NOTE if library_only else _wish(access),
        f"{_because(access)}{where}, and no NVIDIA driver is loaded in the kernel",
        Remediation("On the host, not in the container: install or load the driver", commands),
        evidence={"pci_gpus": list(access.pci_gpus), "nvml_library": access.nvml_library},
    )


@check("GPU004", "nvidia-visible-devices-hides-gpus", tags={"container"})
def visible_devices_hides(access: GpuAccessFacts, gpu: GpuFacts | ProbeFailure) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES keeps GPUs out of this container.

    What it checks:
        A value of void, none or empty where no GPU came in; and a list that names more GPUs, or other UUIDs,
        than are here.
    Why it matters:
        The container runtime reads the variable when it starts the container, and an entry in an env file or a
        compose file overrides the image's own "all". Changing it inside the container changes nothing.
    Example:
        docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=none torch-doctor
    Fix:
        Recreate the container with NVIDIA_VISIBLE_DEVICES=all, or with --gpus in its place.
    References:
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    if isinstance(gpu, GpuFacts):
        missing = _missing_entries(access.visible_devices or "", gpu)
        if missing:
            yield _hides(access, f"names {', '.join(missing)}; {_seen(gpu)}", Severity.WARNING)
    elif _hidden_by_value(access) and not access.device_nodes and (access.kernel_driver or access.asked):
        yield _hides(access, "keeps every GPU out of this container", _wish(access))


def _hides(access: GpuAccessFacts, what: str, severity: Severity) -> Finding:
    shown = access.visible_devices or '""'
    return Finding(
        severity,
        f"{_because(access) if severity is Severity.ERROR else ''}NVIDIA_VISIBLE_DEVICES={shown} {what}",
        Remediation(
            "Recreate the container; list the host's GPUs with nvidia-smi -L",
            (
                "docker run --gpus all -e NVIDIA_VISIBLE_DEVICES=all ...",
                "# compose: environment: {NVIDIA_VISIBLE_DEVICES: all}",
                "# Kubernetes: remove NVIDIA_VISIBLE_DEVICES from env; the device plugin sets it",
            ),
        ),
        evidence={"NVIDIA_VISIBLE_DEVICES": access.visible_devices},
    )


def _missing_entries(value: str, gpu: GpuFacts) -> list[str]:
    """Entries of NVIDIA_VISIBLE_DEVICES that no GPU here answers to. Indexes are the host's: only counted."""
    entries = [e.strip() for e in value.split(",") if e.strip()]
    if not entries or entries[0] in ("all", "none", "void"):
        return []
    known = [d.uuid for d in gpu.devices] + [m.uuid for d in gpu.devices for m in d.mig_instances]
    if all(e.isdigit() for e in entries):
        return entries[len(gpu.devices) :] if len(set(entries)) > len(gpu.devices) else []
    return [e for e in entries if e.startswith(("GPU-", "MIG-")) and not any(u.startswith(e) for u in known if u)]


def _hidden_by_value(access: GpuAccessFacts) -> bool:
    return access.visible_devices is not None and access.visible_devices.strip() in HIDING_VALUES


def _asked(access: GpuAccessFacts) -> str:
    return f"{access.asked} asks for a GPU" if access.asked else "a GPU is asked for"


def _because(access: GpuAccessFacts) -> str:
    return f"{_asked(access)}; " if access.asked else ""


def _seen(gpu: GpuFacts) -> str:
    return f"{counted(len(gpu.devices), 'GPU')} {'is' if len(gpu.devices) == 1 else 'are'} here"


def _wish(access: GpuAccessFacts) -> Severity:
    """An error where GPUs were asked for; a note where torch is built for the CPU and could use none anyway."""
    if access.asked:
        return Severity.ERROR
    return Severity.NOTE if access.torch_cuda == "" else Severity.WARNING

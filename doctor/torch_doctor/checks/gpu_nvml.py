"""What NVML's answer says about the driver: mismatched, taken away, lost, or silent."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.gpu import GpuDevice, GpuFacts, NvmlStatusFacts
from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.model import Finding, ProbeFailure, Remediation, Severity
from torch_doctor.registry import check

#: nvmlReturn_t. Source: nvml.h; what each means to a user stands in NVML_CODES
NO_PERMISSION, GPU_IS_LOST, RESET_REQUIRED = 4, 15, 16
OPERATING_SYSTEM, LIB_RM_VERSION_MISMATCH, UNKNOWN = 17, 18, 999

#: what open(2) says of a node that a device cgroup denies, and of one whose file mode does
CGROUP_DENIES, MODE_DENIES = "Operation not permitted", "Permission denied"

#: NVML code -> what it means when nvmlInit gives it, and what to do. Source: NVML API reference, nvmlReturn_t
NVML_CODES: dict[int, tuple[str, str]] = {
    8: ("a GPU's external power cables are not connected", "Power the machine off and connect them"),
    10: ("the driver did not answer in its own time limit", "Read dmesg for Xid errors; reset the GPU or reboot"),
    11: (
        "the kernel has an interrupt problem with a GPU",
        "Read dmesg; update the BIOS, or boot without ACPI quirks",
    ),
    12: ("a library that NVML needs cannot be loaded", "Recreate the container, or reinstall the driver's libraries"),
    14: ("a GPU's infoROM is corrupted", "Reset the GPU; replace it where that does not help"),
    20: ("there is not enough host memory", "Free memory, or raise the container's limit"),
    23: ("the driver lacks resources", "Read dmesg; stop other GPU processes"),
}

RECREATE = (
    "docker rm -f CONTAINER && docker run --gpus all ...",
    "docker compose up -d --force-recreate",
    "kubectl delete pod POD      # its controller starts it anew",
)
#: what Python says where nvidia-ml-py is not installed beside torch-doctor
NO_BINDING = "No module named 'pynvml'"
INSTALL_BINDING = Remediation(
    "Install NVML's Python binding where torch-doctor is installed",
    ("python -m pip install nvidia-ml-py", "pipx inject torch-doctor nvidia-ml-py"),
)
UNWEDGE = Remediation(
    "On the host: read the Xid errors, reset the GPU or reboot; try a longer limit on a slow start",
    (
        "sudo dmesg | grep -iE 'xid|nvrm' | tail",
        "ps -eo pid,stat,wchan:32,cmd | grep -i nvidia | grep ' D'",
        "sudo nvidia-smi -pm 1",
        "torch-doctor check --timeout 120",
    ),
)
RESET = (
    "sudo dmesg | grep -i xid | tail",
    "sudo nvidia-smi --gpu-reset -i {index}    # with no process on it; reboot where it refuses",
)


@check("GPU010", "nvml-driver-library-mismatch")
def driver_library_mismatch(nvml: NvmlStatusFacts, access: GpuAccessFacts) -> Iterator[Finding]:
    """The NVIDIA libraries and the loaded kernel module are of different versions.

    What it checks:
        NVML's code 18, "Driver/library version mismatch".
    Why it matters:
        Neither nvidia-smi nor CUDA starts. It follows an upgrade of the driver's packages (unattended-upgrades
        does that) without a reboot: the old module still runs. A container keeps the libraries it started with.
    Example:
        nvidia-smi      # Failed to initialize NVML: Driver/library version mismatch
    Fix:
        Reboot the host, or reload the module with no process on the GPUs; then recreate the containers. Hold the
        driver's packages back from automatic upgrades.
    References:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
    """
    if nvml.code != LIB_RM_VERSION_MISMATCH:
        return
    library = nvml.library.rpartition(".so.")[2]  # libnvidia-ml.so.550.54.15
    versions = (
        f"kernel module {access.kernel_driver or 'unknown'}, library {library if '.' in library else 'unknown'}"
    )
    yield Finding(
        Severity.ERROR,
        f"NVML: driver/library version mismatch: {versions}",
        Remediation(
            "Reboot the host, or reload the module while nothing uses the GPUs; then recreate the container",
            (
                "sudo reboot",
                "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia",
                RECREATE[0],
            ),
        ),
        evidence={"nvml_code": nvml.code, "kernel_driver": access.kernel_driver, "library": nvml.library},
    )


@check("GPU011", "gpu-access-revoked")
def access_revoked(nvml: NvmlStatusFacts, access: GpuAccessFacts) -> Iterator[Finding]:
    """NVML answers "Unknown Error": the container has lost its GPUs, or the driver is in a bad state.

    What it checks:
        NVML's codes 999 and 17, and whether the device nodes can still be opened.
    Why it matters:
        A container that worked for days loses its GPUs while it runs: systemctl daemon-reload on the host, or a
        docker update, rewrites its device cgroup without the GPUs. Processes that hold a CUDA context go on; new
        ones, DataLoader workers and restarts fail. It does not come back by itself.
    Example:
        nvidia-smi      # Failed to initialize NVML: Unknown Error
    Fix:
        Recreate the container. To keep it from coming back: a driver that makes the /dev/char links (nvidia-ctk
        system create-dev-char-symlinks), explicit --device flags, or the cgroupfs driver in daemon.json.
    References:
        https://forums.developer.nvidia.com/t/containers-losing-access-to-gpus-failed-to-initialize-nvml/242308
    """
    denied = [p for p, reason in nvml.closed_nodes.items() if reason == CGROUP_DENIES]
    if nvml.code not in (UNKNOWN, OPERATING_SYSTEM) or _modes_deny(nvml):
        return
    evidence = {"nvml_code": nvml.code, "closed_nodes": dict(nvml.closed_nodes), "container": access.container}
    if not access.container and not denied:
        yield Finding(
            Severity.ERROR,
            f"NVML: {nvml.error} (code {nvml.code}): the driver on this host is in a bad state",
            Remediation(
                "Read what the kernel says; reload the driver or reboot",
                ("sudo dmesg | grep -iE 'nvrm|xid' | tail", "sudo modprobe nvidia", "sudo reboot"),
            ),
            evidence=evidence,
        )
        return
    why = f": the device cgroup denies {denied[0]}" if denied else ""
    yield Finding(
        Severity.ERROR,
        f"NVML: {nvml.error} (code {nvml.code}): this container has lost its GPUs{why}",
        Remediation(
            "Recreate the container: a restart inside it does not help; on the host, keep it from coming back",
            (*RECREATE, "sudo nvidia-ctk system create-dev-char-symlinks --create-all"),
        ),
        evidence=evidence,
    )


@check("GPU012", "gpu-lost")
def gpu_lost(nvml: NvmlStatusFacts, gpu: GpuFacts | ProbeFailure) -> Iterator[Finding]:
    """A GPU does not answer: it has fallen off the bus, or needs a reset.

    What it checks:
        NVML's codes 15 (GPU is lost) and 16 (reset required), and any GPU that fails its first questions.
    Why it matters:
        A lost GPU stays lost until a reset or reboot, hangs NCCL on the whole node, and often comes back lost
        again: power, a loose riser or cable, overheating, or a failing board. dmesg shows Xid 79.
    Example:
        nvidia-smi      # Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost
    Fix:
        Drain the machine; reset the GPU or reboot; check power, seating and temperature; replace it where it
        comes back. Meanwhile CUDA_VISIBLE_DEVICES can leave it out, if CUDA still starts.
    References:
        https://docs.nvidia.com/deploy/xid-errors/
    """
    if nvml.code in (GPU_IS_LOST, RESET_REQUIRED):
        yield _lost(GpuDevice(0, error_code=nvml.code, error=nvml.error), "a GPU")
    if isinstance(gpu, GpuFacts):
        for device in gpu.devices:
            if not device.healthy:
                yield _lost(device, device.label)


def _lost(device: GpuDevice, label: str) -> Finding:
    said = {GPU_IS_LOST: "is lost: it has fallen off the bus", RESET_REQUIRED: "needs a reset"}
    what = said.get(device.error_code or 0, f"does not answer: {device.error}")
    return Finding(
        Severity.ERROR,
        f"{label} {what} (NVML code {device.error_code})",
        Remediation(
            "On the host: read the Xid, reset the GPU or reboot; replace it where it comes back",
            tuple(c.format(index=device.index) for c in RESET),
        ),
        evidence={"index": device.index, "nvml_code": device.error_code, "error": device.error, "uuid": device.uuid},
    )


@check("GPU013", "driver-finds-no-gpu")
def driver_finds_no_gpu(nvml: NvmlStatusFacts, access: GpuAccessFacts) -> Iterator[Finding]:
    """The driver runs, and finds no GPU.

    What it checks:
        NVML starts and counts no GPU, where this is no container that was given none.
    Why it matters:
        A GPU whose initialisation failed is not listed at all ("No devices were found"): dmesg says RmInitAdapter
        failed. In a container its nodes are there and the device cgroup denies them.
    Example:
        nvidia-smi      # No devices were found
    Fix:
        Read dmesg; power-cycle the machine; reseat the GPU; install a driver that knows it.
    References:
        https://docs.nvidia.com/deploy/xid-errors/
    """
    if nvml.count != 0 or (access.container and not access.has_device):
        return
    expected = access.asked or access.pci_gpus or access.device_nodes
    yield Finding(
        Severity.ERROR if expected else Severity.WARNING,
        "the NVIDIA driver runs and finds no GPU",
        Remediation(
            "Recreate the container; where that does not help, read the host's kernel messages and power-cycle it",
            (RECREATE[0], "sudo dmesg | grep -iE 'nvrm|xid|RmInitAdapter' | tail", "lspci -d 10de: -nnk"),
        )
        if access.container
        else Remediation(
            "Read the kernel's messages; power-cycle the machine, or install a driver that knows this GPU",
            ("sudo dmesg | grep -iE 'nvrm|xid|RmInitAdapter' | tail", "lspci -d 10de: -nnk"),
        ),
        evidence={"pci_gpus": list(access.pci_gpus), "device_nodes": list(access.device_nodes)},
    )


@check("GPU014", "nvml-no-answer")
def nvml_no_answer(nvml: NvmlStatusFacts, gpu: GpuFacts | ProbeFailure) -> Iterator[Finding]:
    """NVML hangs or crashes.

    What it checks:
        Whether the child process that asks NVML ends within --timeout, and by itself.
    Why it matters:
        A wedged driver or GPU blocks every process that asks it, nvidia-smi, torch and monitoring agents alike,
        often in a state that no signal ends.
    Example:
        nvidia-smi      # prints nothing and cannot be interrupted
    Fix:
        Read dmesg on the host for Xid errors; reset the GPU that is named, or reboot. A driver that is only slow
        (no persistence mode, eight GPUs) answers within a longer --timeout: turn persistence mode on.
    References:
        https://docs.nvidia.com/deploy/driver-persistence/
    """
    if not nvml.failure or not isinstance(gpu, ProbeFailure):
        return
    yield Finding(
        Severity.ERROR,
        nvml.failure,
        INSTALL_BINDING if NO_BINDING in nvml.failure else UNWEDGE,
        evidence={"kind": nvml.failure_kind, "call": nvml.call},
    )


@check("GPU015", "nvml-error")
def nvml_error(nvml: NvmlStatusFacts, access: GpuAccessFacts) -> Iterator[Finding]:
    """NVML refuses to start, with a code that has no check of its own.

    What it checks:
        Every other code of nvmlInit, in words.
    Why it matters:
        Without NVML no GPU can be judged, and CUDA mostly fails the same way.
    Example:
        nvidia-smi      # Failed to initialize NVML: Insufficient External Power
    Fix:
        As the finding says for its code.
    References:
        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
    """
    judged = {0, GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH, UNKNOWN, OPERATING_SYSTEM, NO_PERMISSION}
    if nvml.code in judged or _modes_deny(nvml):
        return
    if nvml.code == NvmlStatusFacts.DRIVER_NOT_LOADED and not (access.kernel_driver and access.has_device):
        return  # gpu-not-passed-to-container and nvidia-driver-not-loaded say why
    meaning, remedy = NVML_CODES.get(nvml.code, ("", "Read dmesg on the host; reload the driver or reboot"))
    yield Finding(
        Severity.ERROR,
        f"NVML: {nvml.error} (code {nvml.code})" + (f": {meaning}" if meaning else ""),
        Remediation(remedy, ("sudo dmesg | grep -iE 'nvrm|xid' | tail",)),
        evidence={"nvml_code": nvml.code, "closed_nodes": dict(nvml.closed_nodes)},
    )


@check("GPU016", "gpu-node-permission")
def gpu_node_permission(nvml: NvmlStatusFacts) -> Iterator[Finding]:
    """This user may not open the GPU's device nodes.

    What it checks:
        NVML's code 4, and device nodes whose file mode keeps this user out.
    Why it matters:
        CUDA finds no GPU for this user, though root sees it: nodes made with NVreg_DeviceFileMode=0660, a group
        such as video, or a rootless container without that group.
    Example:
        docker run --user 1000:1000 --gpus all ...      # nodes are crw-rw---- root video
    Fix:
        Add the nodes' group to the user, or to the container with --group-add.
    References:
        https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    if nvml.code != NO_PERMISSION and not _modes_deny(nvml):
        return
    closed = next((p for p, reason in nvml.closed_nodes.items() if reason == MODE_DENIES), "/dev/nvidiactl")
    yield Finding(
        Severity.ERROR,
        f"NVML: {nvml.error} (code {nvml.code}): this user may not open {closed}",
        Remediation(
            "Give the user, or the container, the group that owns the device nodes",
            (
                f"ls -l {closed}",
                'docker run --gpus all --group-add "$(stat -c %g /dev/nvidiactl)" ...',
                "# compose: group_add: [video]",
                "# Kubernetes: securityContext: {supplementalGroups: [GID]}",
                "podman run --device nvidia.com/gpu=all --security-opt=label=disable ...    # under SELinux",
                'sudo usermod -aG "$(stat -c %G /dev/nvidiactl)" "$USER"',
            ),
        ),
        evidence={"nvml_code": nvml.code, "closed_nodes": dict(nvml.closed_nodes)},
    )


def _modes_deny(nvml: NvmlStatusFacts) -> bool:
    return nvml.code != 0 and MODE_DENIES in nvml.closed_nodes.values()

"""GPU and driver: NVML, CUDA initialisation, architectures, Xid reports, asserts in kernels."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.tables import XID
from torch_doctor.model import Remediation

_BLOCKING = ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py")


def driver_too_old(seen: Seen, verdict: Verdict) -> Verdict | None:
    """'found version 11040' is what CUDA the driver supports: 1000 x major + 10 x minor."""
    found = seen.groups.get("version")
    if not found:
        return verdict
    number = int(found)
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return with_message(
        verdict,
        f"the host driver supports CUDA up to {cuda} only, and the installed torch is built for a newer one",
        Remediation(
            f"Update the NVIDIA driver of the host, or install a torch that is built for CUDA {number // 1000}",
            (
                "nvidia-smi",
                f"pip install torch --index-url https://download.pytorch.org/whl/cu{number // 1000}8"
                if number // 1000 == 11
                else 'python -c "import torch; print(torch.version.cuda)"',
            ),
        ),
        driver_cuda=cuda,
    )


#: Xids that a cause of their own explains: the bus, and memory that failed
OWN_CAUSE = {48, 63, 64, 79, 92, 94, 95, 119, 120, 171, 172}


def xid(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The number tells what happened, and whose fault it is."""
    number = int(seen.groups["xid"])
    meaning, remedy, commands, kind = XID.get(number, XID[0])
    if kind == "echo" or number in OWN_CAUSE:
        return None
    return with_message(
        verdict,
        f"the driver reported Xid {number}{_where(seen)}: {meaning}",
        Remediation(remedy, commands),
        xid=number,
    )


def _where(seen: Seen) -> str:
    return f" on PCI {seen.groups['pci']}" if seen.groups.get("pci") else ""


_CUBLAS: dict[str, str] = {
    "CUBLAS_STATUS_ALLOC_FAILED": "no GPU memory is left for its handle, or an earlier index error broke the context",
    "CUBLAS_STATUS_NOT_INITIALIZED": "no GPU memory is left for its handle, or an earlier index error broke the "
    "context",
    "CUBLAS_STATUS_EXECUTION_FAILED": "a kernel failed, often after an index out of range or with a mixed install",
    "CUBLAS_STATUS_INVALID_VALUE": "a second cuBLAS on LD_LIBRARY_PATH, or shapes that do not fit",
    "CUBLAS_STATUS_NOT_SUPPORTED": "the data type or shape is not supported on this GPU",
    "CUBLAS_STATUS_ARCH_MISMATCH": "this GPU's architecture is not supported",
    "CUBLAS_STATUS_INTERNAL_ERROR": "an index error before it, a mixed install, or GPU memory",
}


register(
    Cause(
        "GPU201",
        "gpu-lost-after-daemon-reload",
        "A running container lost its GPUs: systemd rewrote the device cgroup.",
        "With the systemd cgroup driver a daemon-reload on the host rewrites the rules for devices without those "
        "of the GPU. The "
        "host's nvidia-smi stays healthy; only a new container has them again.",
        "NVML: Unknown Error inside the container: it lost access to the GPU's device nodes, as after a systemctl "
        "daemon-reload on the "
        "host (systemd cgroup driver)",
        Remediation(
            "Restart the container; to keep it from happening, pass the device nodes explicitly, use CDI, or "
            "create the /dev/char symlinks "
            "on the host",
            (
                "docker restart CONTAINER",
                "docker run --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm --gpus all ...",
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            ),
        ),
        (
            Signature(
                "Failed to initialize NVML: Unknown Error",
                "Failed to initialize NVML: Unknown Error",
                "Failed to initialize NVML: Driver/library version mismatch",
                source="nvidia-smi 470 to 590",
            ),
            Signature(
                "NVMLError_Unknown",
                "pynvml.NVMLError_Unknown: Unknown Error",
                "NVMLError_NotSupported",
                source="nvidia-ml-py 11 to 13",
            ),
            Signature(
                "Can't initialize NVML",
                "UserWarning: Can't initialize NVML\nRuntimeError: No CUDA GPUs are available",
                "NVML initialized",
                also=(r"CUDA error|No CUDA GPUs|no CUDA-capable|Unknown Error",),
                source="torch 1.9 to 2.15, torch/cuda/__init__.py",
            ),
        ),
        explains=("GPU2",),
        decide="nvidia-smi on the host; docker exec CONTAINER ls -l /dev/nvidia0",
        references="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    ),
    Cause(
        "GPU202",
        "driver-library-mismatch",
        "The loaded kernel module and the driver's libraries are of different versions.",
        "An unattended upgrade replaced the libraries; the module in memory is the old one. Jobs that were on the "
        "GPU go on.",
        "the NVIDIA kernel module and the user-space driver library (libnvidia-ml) are of different versions: the "
        "driver was upgraded without "
        "a reboot",
        Remediation(
            "Reboot the host or reload the nvidia modules, and hold the nvidia packages",
            ("sudo reboot", "sudo apt-mark hold 'nvidia-*' 'libnvidia-*'", "cat /proc/driver/nvidia/version"),
        ),
        (
            Signature(
                "Driver/library version mismatch",
                "Failed to initialize NVML: Driver/library version mismatch",
                "Failed to initialize NVML: Unknown Error",
                source="NVML 390 to 590",
            ),
            Signature(
                "API mismatch: the client has the version",
                "NVRM: API mismatch: the client has the version 535.161.07, but this kernel module has the version "
                "535.154.05",
                "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
                source="NVIDIA kernel module",
            ),
            Signature(
                "rror 803",
                "Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / "
                "cuda driver combination",
                "Error 804: forward compatibility was attempted on non supported HW",
                r"[Ee]rror 803: system has unsupported display driver / cuda driver combination",
                source="CUDA 10.1 to 13",
            ),
            Signature(
                "unsupported display driver / cuda driver combination",
                "RuntimeError: CUDA driver initialization failed: system has unsupported display driver / cuda "
                "driver combination",
                "display driver",
                source="CUDA 10.1 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
    Cause(
        "GPU203",
        "forward-compatibility-not-supported",
        "Error 804: the image's CUDA compatibility library is used on a GPU that does not support it.",
        "Forward compatibility is for data-centre GPUs; the image's cuda-compat is newer than the host's driver. A "
        "driver that was updated "
        "without a reboot gives the same. 'Did you run some cuda functions before' is noise.",
        "CUDA error 804: the image needs a newer driver than the host has, and its forward-compatibility library "
        "(cuda-compat) works on "
        "data-centre GPUs only",
        Remediation(
            "Update the host driver (and reboot), or use an image with an older CUDA; keep /usr/local/cuda/compat "
            "out of the loader's path",
            (
                "nvidia-smi",
                "rm /etc/ld.so.conf.d/*compat*; ldconfig",
                "echo $LD_LIBRARY_PATH | tr : '\\n' | grep compat",
            ),
        ),
        (
            Signature(
                "forward compatibility was attempted on non supported HW",
                "Error 804: forward compatibility was attempted on non supported HW",
                "Error 802: system not yet initialized",
                source="CUDA 10 to 13",
            ),
            Signature(
                "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "CUDA_ERROR_NOT_SUPPORTED",
                source="CUDA 10 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
    Cause(
        "GPU204",
        "fabric-manager-not-running",
        "Error 802: an NVSwitch machine without its fabric manager.",
        "A100, H100, H200 and B200 boards with NVSwitch need nvidia-fabricmanager of exactly the driver's version "
        "before CUDA "
        "initialises.",
        "CUDA error 802 (system not yet initialized): on an NVSwitch machine (HGX A100, H100, H200, B200) "
        "nvidia-fabricmanager is not running or "
        "not of the driver's version",
        Remediation(
            "Install and start the fabric manager of the driver's exact version, then reboot if CUDA still refuses",
            (
                "sudo systemctl status nvidia-fabricmanager",
                "sudo apt-get install -y nvidia-fabricmanager-$(nvidia-smi --query-gpu=driver_version "
                "--format=csv,noheader | head -1 | cut -d. -f1)",
                "sudo systemctl enable --now nvidia-fabricmanager",
                "nvidia-smi -q | grep -A2 Fabric",
            ),
        ),
        (
            Signature(
                "system not yet initialized",
                "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
                "Error 804: forward compatibility was attempted on non supported HW",
                r"(?:Error 802: |CUDA error: "
                r"|cudaErrorSystemNotReady\D{0,20}|CUDA_ERROR_SYSTEM_NOT_READY\D{0,20})system not yet initialized",
                source="CUDA 10.1 to 13",
            ),
            Signature(
                "NVLink fabric",
                "Fabric State: In Progress; NVLink fabric is not initialized",
                "fabric initialized",
                r"(?i)NVLink fabric[^\n]*(?:not (?:yet )?initiali[sz]ed|failed)|fabric ?manager[^\n]*(?:not "
                r"running|failed|version mismatch|doesn't match)",
                source="nvidia-fabricmanager 450 to 590",
            ),
        ),
        explains=("GPU2",),
        alternatives=("GPU205",),
        decide="nvidia-smi -q | grep -A2 Fabric; systemctl status nvidia-fabricmanager",
    ),
    Cause(
        "GPU205",
        "kernel-memory-feature-breaks-cuda",
        "CUDA does not initialise under a recent kernel: KASLR with HMM.",
        "Without NVSwitch the same text as a missing fabric manager comes from recent kernels, whose randomised "
        "address space collides with "
        "heterogeneous memory management in the driver.",
        "CUDA 'system not yet initialized' from a program of the driver API: on a machine without NVSwitch a "
        "recent kernel (KASLR with HMM) is the "
        "known reason; with NVSwitch, a fabric manager that is not running",
        Remediation(
            "Apply the workaround of the CUDA release notes (disable HMM in nvidia_uvm, or boot with nokaslr), or "
            "install a newer driver",
            (
                "echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/uvm.conf; sudo reboot",
                "systemctl status nvidia-fabricmanager",
                "uname -r",
            ),
        ),
        (
            Signature(
                "system not yet initialized",
                "Couldn't init CUDA: Error (gpu_burn-drv.cpp:304): system not yet initialized",
                "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
                r"(?:Couldn't init CUDA|cuInit|gpu_burn|-drv\.cpp|deviceQuery)[^\n]*system not yet initialized",
                source="gpu-burn, CUDA 12.2 to 13",
            ),
        ),
        explains=("GPU2",),
        decide="nvidia-smi topo -m | grep -c NV; uname -r",
    ),
    Cause(
        "GPU206",
        "no-kernel-for-this-gpu",
        "The installed torch has no code for this GPU's architecture.",
        "A wheel holds kernels for a list of compute capabilities. The GPU may be newer than the wheel, or older; "
        "is_available() is True either "
        "way.",
        "the installed wheel has no kernels for this GPU's compute capability{arch}",
        Remediation(
            "Compare the GPU's capability with the wheel's list and install a wheel that contains it: a newer CUDA "
            "build (cu128 or later for "
            "Blackwell, sm_100 and sm_120) for a new GPU, an older CUDA build for an old one",
            (
                'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
                "pip install torch --index-url https://download.pytorch.org/whl/cu128",
            ),
        ),
        (
            Signature(
                "is not compatible with the current PyTorch installation",
                "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
                "installation.",
                "is compatible",
                r"(?P<gpu>[^\n:]*?) with CUDA capability (?P<arch>sm_\d+) is not compatible with the current "
                r"PyTorch installation",
                source="torch 1.8 to 2.15, torch/cuda/__init__.py",
            ),
            Signature(
                "no kernel image is available",
                "RuntimeError: CUDA error: no kernel image is available for execution on the device",
                "CUDA error: device-side assert triggered",
                source="CUDA 9 to 13",
            ),
            Signature(
                "which is of cuda capability",
                "Found GPU0 Tesla K80 which is of cuda capability 3.7.\n    PyTorch no longer supports this GPU "
                "because it is too old.",
                "GPU0 of cuda capability",
                r"Found GPU\d+ (?P<gpu>[^\n]*?) which is of (?:cuda capability|compute capability \(CC\)|CUDA "
                r"capability) (?P<arch>\d+\.\d+)[^\n]*\n\s*(?:PyTorch no longer supports|The following list|The "
                r"minimum)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "cudaErrorNoKernelImageForDevice",
                "cudaErrorNoKernelImageForDevice: no kernel image",
                "cudaErrorNoDevice",
                source="CUDA 9 to 13",
            ),
            Signature(
                "the provided PTX was compiled with an unsupported toolchain",
                "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
                "PTX was compiled",
                source="CUDA 11 to 13",
            ),
            Signature(
                "not compiled with -gencode for this architecture",
                "FATAL: kernel `fmha_cutlassF` is for sm80-sm100, but was built for sm37 (not compiled with "
                "-gencode for this architecture)",
                "compiled",
                source="xformers",
            ),
        ),
        explains=("GPU2", "CMP2"),
        judge=lambda seen, verdict: with_message(
            verdict,
            (f"{seen.groups['gpu'].strip()}: " if seen.groups.get("gpu", "").strip() else "")
            + verdict.message.replace("?", "").replace(
                seen.groups.get("arch", "\0"), f" {seen.groups.get('arch', '')}"
            )
            + (
                ""
                if seen.groups.get("arch")
                else ": the GPU is too new for the wheel, or too old for it; the log alone does not tell which"
            ),
        ),
        decide='python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
    ),
    Cause(
        "GPU207",
        "uvm-module-in-bad-state",
        "CUDA: unknown error at initialisation: the nvidia_uvm module is in a bad state, or its device is absent.",
        "After a suspend and resume nvidia_uvm is left unusable, while nvidia-smi works. In a container the same "
        "text means that "
        "/dev/nvidia-uvm is not there. The text's own guess, environment variables, plays no part.",
        "CUDA unknown error at initialisation: the kernel module nvidia_uvm is in a bad state (after suspend and "
        "resume), or /dev/nvidia-uvm is "
        "missing in the container; nvidia-smi works all the same",
        Remediation(
            "Reload nvidia_uvm, or reboot; in a container, check that /dev/nvidia-uvm is there",
            (
                "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
                "ls -l /dev/nvidia-uvm",
                "sudo nvidia-modprobe -u -c=0",
            ),
        ),
        (
            Signature(
                "CUDA unknown error",
                "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up "
                "environment, e.g. changing env "
                "variable CUDA_VISIBLE_DEVICES after program start.",
                "CUDA error: unspecified launch failure",
                source="torch 1.6 to 2.15, c10/cuda/CUDAFunctions.cpp",
            ),
            Signature(
                "CUDA_ERROR_UNKNOWN",
                "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",
                "CUDA_ERROR_NO_DEVICE",
                source="CUDA driver API",
            ),
            Signature(
                "Error 999: unknown error",
                "Unexpected error from cudaGetDeviceCount(). Error 999: unknown error",
                "Error 99: x",
                source="CUDA 10 to 13",
            ),
        ),
        kind=DEGRADED,
        explains=("GPU2",),
        decide="sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm",
    ),
    Cause(
        "GPU208",
        "docker-has-no-gpu-runtime",
        "The Docker daemon has no NVIDIA runtime.",
        "The NVIDIA container toolkit is absent, the daemon was not restarted after it was configured, or the "
        "daemon in use (snap, rootless) reads "
        "another configuration.",
        "the Docker daemon cannot give a container GPUs: the NVIDIA Container Toolkit is not installed, or not "
        "configured in the daemon that is in use",
        Remediation(
            "Install the toolkit, configure Docker for it and restart the daemon that is in use; Docker from snap "
            "does not work with it",
            (
                "sudo apt-get install -y nvidia-container-toolkit",
                "sudo nvidia-ctk runtime configure --runtime=docker",
                "sudo systemctl restart docker",
                "docker info | grep -i -E 'runtimes|root dir'",
            ),
        ),
        (
            Signature(
                "could not select device driver",
                'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
                "could not select database",
                source="Docker 19.03 to 29",
            ),
            Signature(
                "unknown or invalid runtime name: nvidia",
                "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
                "unknown runtime",
                r"(?i)unknown (?:or invalid )?runtime (?:specified|name:?) \"?nvidia",
                source="Docker 19.03 to 29",
            ),
            Signature(
                "Unknown runtime specified nvidia",
                "docker: Error response from daemon: Unknown runtime specified nvidia.",
                "runtime specified",
                source="Docker 17 to 24",
            ),
            Signature(
                "unresolvable CDI devices",
                "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
                "CDI devices",
                source="Docker 25 to 29, Podman",
            ),
        ),
    ),
    Cause(
        "GPU209",
        "gpu-fell-off-the-bus",
        "The GPU is gone: hardware, power, heat or the PCIe link.",
        "No software mends that. Processes hang without an exception, and nvidia-smi fails.",
        "the GPU dropped off the PCIe bus{where}: heat, power supply, seating or firmware",
        Remediation(
            "Drain the node and reset or reboot it; limit the power, check cooling, reseat the card, update the "
            "firmware, replace it if it recurs",
            (
                "sudo nvidia-smi -pl 300",
                "sudo nvidia-smi --gpu-reset -i 0",
                "dmesg -T | grep -i -E 'xid|nvrm|aer|pcie'",
            ),
        ),
        (
            Signature(
                "fallen off the bus",
                "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception",
                r"(?:PCI:(?P<where>[0-9a-fA-F:.]+)\)?[^\n]*)?has fallen off the bus",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                "Unable to determine the device handle",
                "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error",
                "device handle found",
                r"Unable to determine the device handle for (?:GPU|gpu) ?\d*:? ?(?P<where>[0-9a-fA-F:.]*[0-9a-fA-F])",
                source="nvidia-smi 418 to 590",
            ),
            Signature(
                "GPU is lost",
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to "
                "recover this GPU",
                "packet is lost",
                source="NVML 390 to 590",
            ),
            Signature(
                "GPU requires reset",
                "nvidia-smi: GPU requires reset",
                "requires reset of the counter",
                source="NVML 510 to 590",
            ),
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:02:00): 31, pid=1, MMU Fault",
                r"Xid \(PCI:(?P<where>[0-9a-fA-F:.]+)\): (?:79|119|120)\b",
                source="NVIDIA Xid catalogue",
            ),
        ),
        explains=("GPU2", "SES2", "DST", "MEM2"),
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace("?", "")
            if not seen.groups.get("where")
            else verdict.message.replace(seen.groups["where"], f" (PCI {seen.groups['where']})"),
        ),
    ),
    Cause(
        "GPU210",
        "xid-reported",
        "The driver reported an Xid.",
        "The number says what happened: memory faults of the program (13, 31, 43), memory that failed (48, 63, 64, "
        "92, 94, 95), NVLink (74), "
        "the GPU's own processor (119, 120), the bus (79).",
        "the driver reported Xid {xid}",
        Remediation("Look the number up in NVIDIA's Xid catalogue", ("dmesg -T | grep -i xid",)),
        (
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault",
                "Xid count: 0",
                r"Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)\b",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                "XID",
                "GPU 3: XID 94 contained ECC error",
                "xids=0",
                r"(?:GPU \d+|error)[^\n]{0,30}\bX[Ii][Dd](?: error| errors)?:? (?P<xid>\d{2,3})\b",
                source="DCGM, gpud",
            ),
        ),
        explains=("GPU22", "SES2", "DST"),
        judge=xid,
    ),
    Cause(
        "GPU211",
        "driver-older-than-cuda",
        "The host's driver is older than the CUDA that torch was built with.",
        "The number in the text is the CUDA version that the driver supports, in thousands, not the driver's own "
        "version.",
        "the host's NVIDIA driver is too old for the CUDA that the installed torch was built with",
        Remediation(
            "Update the NVIDIA driver of the host, or install a torch built for an older CUDA",
            ("nvidia-smi", 'python -c "import torch; print(torch.version.cuda)"'),
        ),
        (
            Signature(
                "driver on your system is too old",
                "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
                "the driver is too old to be rated",
                r"driver on your system is too old \(found version (?P<version>\d+)\)|driver on your system is too "
                r"old",
                source="torch 1.0 to 2.15, c10/cuda/CUDAFunctions.cpp",
            ),
            Signature(
                "CUDA driver version is insufficient for CUDA runtime version",
                "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
                "driver version is sufficient",
                source="CUDA 9 to 13",
            ),
            Signature(
                "unsatisfied condition: cuda",
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
                "driver to a newer version",
                "unsatisfied condition",
                r"unsatisfied condition: cuda ?>= ?(?P<need>[\d.]+)",
                source="libnvidia-container 1.x",
            ),
        ),
        explains=("GPU2",),
        judge=driver_too_old,
    ),
    Cause(
        "GPU212",
        "no-gpu-visible",
        "CUDA sees no GPU.",
        "The container was started without GPUs, the job was given none, or CUDA_VISIBLE_DEVICES hides them.",
        "CUDA sees no GPU: the container was started without --gpus, the scheduler gave none, or the visible "
        "devices are restricted to none",
        Remediation(
            "Start the container with GPUs, ask the scheduler for one, and look at what is visible",
            (
                "docker run --gpus all ...",
                "nvidia-smi -L",
                "env | grep -E 'CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES'",
                "sbatch --gres=gpu:1 ...",
            ),
        ),
        (
            Signature(
                "No CUDA GPUs are available",
                "RuntimeError: No CUDA GPUs are available",
                "No GPUs needed",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                "Found no NVIDIA driver on your system",
                "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
                "installed a driver",
                "Found NVIDIA driver",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "no CUDA-capable device is detected",
                "RuntimeError: CUDA error: no CUDA-capable device is detected",
                "CUDA-capable device detected",
                source="CUDA 9 to 13",
            ),
            Signature(
                "torch.cuda.is_available() is False",
                "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
                "False.",
                "torch.cuda.is_available() is True",
                r"torch\.cuda\.is_available\(\) (?:is|returned) False(?!\. If you are running on a CPU-only machine)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "NVIDIA-SMI 535",
                source="nvidia-smi 390 to 590",
            ),
        ),
    ),
    Cause(
        "GPU213",
        "torch-without-cuda",
        "The installed torch is a CPU build.",
        "pip resolved to a CPU wheel: another index, another platform, or a dependency that pinned it.",
        "the installed torch has no CUDA: it is a CPU-only build",
        Remediation(
            "Install the CUDA build of torch",
            (
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128",
                'python -c "import torch; print(torch.__version__, torch.version.cuda)"',
            ),
        ),
        (
            Signature(
                "Torch not compiled with CUDA enabled",
                "AssertionError: Torch not compiled with CUDA enabled",
                "Torch compiled with CUDA",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Could not run '",
                "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.",
                "Could not run the script",
                r"Could not run '(?P<op>[\w:.]+)' with arguments from the 'CUDA' backend",
                source="torch 1.5 to 2.15 with a CPU torchvision",
            ),
        ),
    ),
    Cause(
        "GPU214",
        "invalid-device-ordinal",
        "A GPU was named by a number that does not exist here.",
        "More processes than visible GPUs, or a fixed cuda:N on a machine with fewer.",
        "a GPU number beyond what is visible was used (invalid device ordinal): more processes than GPUs, or a "
        "fixed cuda:N",
        Remediation(
            "Use LOCAL_RANK for the device, and no more processes than GPUs",
            (
                "torchrun --nproc-per-node=gpu train.py",
                "nvidia-smi -L",
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
            ),
        ),
        (
            Signature(
                "invalid device ordinal",
                "RuntimeError: CUDA error: invalid device ordinal",
                "ordinal number",
                source="CUDA 9 to 13",
            ),
            Signature(
                "Invalid device id",
                "AssertionError: Invalid device id",
                "device id",
                r"AssertionError: Invalid device id|RuntimeError: [^\n]*device >= 0 && device < num_gpus",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "busy or unavailable",
                "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
                "devices are busy",
                r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or "
                r"unavailable",
                source="CUDA 9 to 13, exclusive-process compute mode",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "the GPU refuses another process (busy or unavailable): exclusive-process mode with a process on "
                "it, or a MIG or failed device",
                Remediation(
                    "See who holds the GPU, and set the default compute mode",
                    ("nvidia-smi", "sudo nvidia-smi -c DEFAULT"),
                ),
            )
            if "busy or unavailable" in seen.log.lines[seen.index].text
            else verdict
        ),
    ),
    Cause(
        "GPU215",
        "no-driver-on-host",
        "The container toolkit found no NVIDIA driver on the host.",
        "The driver is not installed or not loaded, or the daemon (snap, Docker Desktop, rootless) sees another "
        "root file "
        "system than the one that has it.",
        "the NVIDIA container toolkit found no driver on the Docker host ({what}): it is not installed or not "
        "loaded there, or "
        "the daemon in use (snap, Docker Desktop) does not see it",
        Remediation(
            "Install and load the driver on the host, see that nvidia-smi works there, and restart the daemon",
            (
                "nvidia-smi",
                "sudo modprobe nvidia",
                "sudo systemctl restart docker",
                "docker info | grep -i 'root dir'",
            ),
        ),
        (
            Signature(
                "nvml error: ",
                "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
                "nvml error count",
                r"nvidia-container-cli: (?:initialization|detection) error: (?P<what>nvml error: [\w ]+)",
                source="libnvidia-container 1.x",
            ),
            Signature(
                "load library failed: libnvidia-ml.so",
                "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open "
                "shared "
                "object file: no such file or directory: unknown.",
                "load library libnvidia-ml.so",
                r"(?P<what>load library failed: libnvidia-ml\.so[\w.]*)",
                source="libnvidia-container 1.x",
            ),
            Signature(
                "GPU access blocked by the operating system",
                "Failed to initialize NVML: GPU access blocked by the operating system",
                "access blocked",
                r"(?P<what>GPU access blocked by the operating system)",
                source="NVML under WSL 2",
            ),
        ),
        explains=("PKG2", "GPU2"),
    ),
    Cause(
        "GPU225",
        "unsupported-during-graph-capture",
        "A CUDA call that is not allowed while a CUDA graph is captured.",
        "Synchronising, allocating outside the pool, or moving data to the host breaks the capture.",
        "a CUDA call was made that is not allowed while a CUDA graph is captured (item(), a print, a copy to the "
        "host, an allocation)",
        Remediation(
            "Take the call out of the captured part, warm up before the capture, or switch CUDA graphs off",
            (
                "torch.compile(model)  # in place of mode='reduce-overhead'",
                "TORCHINDUCTOR_CUDAGRAPHS=0 python train.py",
            ),
        ),
        (
            Signature(
                "operation not permitted when stream is capturing",
                "RuntimeError: CUDA error: operation not permitted when stream is capturing",
                "stream is capturing video",
                source="CUDA 11 to 13",
            ),
            Signature(
                "accessing tensor output of CUDAGraphs that has been overwritten",
                "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
                "subsequent run.",
                "CUDAGraphs overwritten",
                source="torch 2.1 to 2.15",
            ),
        ),
    ),
    Cause(
        "GPU221",
        "device-side-assert",
        "A kernel's assertion failed: an index, most often a label, is out of range.",
        "Kernels run asynchronously: the Python line of the traceback is any later CUDA call. After the assert "
        "every CUDA call of the process "
        "fails, with other texts, too.",
        "{what}: an index or label is out of range on the GPU; the Python line of the traceback is only where the "
        "error surfaced",
        Remediation(
            "Check the labels' minimum and maximum against the number of classes (mask values such as 255 need "
            "ignore_index), or the indexes "
            "against the embedding's size; run with CUDA_LAUNCH_BLOCKING=1 or on the CPU to get the true line",
            (
                _BLOCKING[0],
                "assert labels.min() >= 0 and labels.max() < num_classes",
                "nn.CrossEntropyLoss(ignore_index=255)",
            ),
        ),
        (
            Signature(
                "Assertion `t >= 0 && t < n_classes` failed",
                "../aten/src/ATen/native/cuda/NLLLoss2d.cu:103: nll_loss2d_forward_kernel: block: [5,0,0], thread: "
                "[996,0,0] Assertion `t >= 0 && t < "
                "n_classes` failed.",
                "assertion passed",
                source="torch 1.0 to 2.15, NLLLoss2d.cu and Loss.cu",
            ),
            Signature(
                "Assertion `",
                "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectSmallIndex: block: [1,0,0], "
                "thread: [32,0,0] Assertion `srcIndex < "
                "srcSelectDimSize` failed.",
                "Assertion `x` in the docs",
                r"\.(?:cu|cuh|cpp|h):\d+: [^\n]*block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion "
                r"`(?P<assertion>[^`]+)`",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "device-side assert triggered",
                "RuntimeError: CUDA error: device-side assert triggered",
                "assert",
                source="CUDA 9 to 13",
            ),
            Signature(
                "Target ",
                "IndexError: Target 3 is out of bounds.",
                "Target 3 reached",
                r"IndexError: Target (?P<target>-?\d+) is out of bounds",
                source="torch 1.3 to 2.15, CPU",
            ),
        ),
        explains=("GPU22", "GPU23", "MEM2", "DST", "LOS"),
        judge=lambda seen, verdict: _assertion(seen, verdict),
    ),
    Cause(
        "GPU222",
        "illegal-memory-access",
        "A kernel read or wrote memory that is not its own.",
        "A custom kernel, a wrong index or stride, or a bug of a library. It is reported at a later call.",
        "a CUDA kernel accessed memory that is not its own ({what}); the Python line is only where it surfaced",
        Remediation(
            "Find the kernel with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; check custom kernels, index ranges "
            "and recently changed extensions",
            _BLOCKING,
        ),
        (
            Signature(
                "an illegal memory access was encountered",
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                "memory access pattern",
                r"(?P<what>an illegal memory access was encountered)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "misaligned address",
                "RuntimeError: CUDA error: misaligned address",
                "aligned address",
                r"CUDA error: (?P<what>misaligned address|an illegal instruction was encountered|invalid program "
                r"counter|operation not supported on global/shared address space)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "illegal instruction was encountered",
                "RuntimeError: CUDA error: an illegal instruction was encountered",
                "illegal instruction",
                r"CUDA error: (?P<what>an illegal instruction was encountered)",
                source="CUDA 9 to 13",
            ),
        ),
        explains=("DST", "GPU23"),
        kind=VAGUE,
        decide="CUDA_LAUNCH_BLOCKING=1 python train.py",
    ),
    Cause(
        "GPU223",
        "launch-failure",
        "A CUDA kernel failed to run.",
        "Unspecified launch failure: a fault in the kernel, or a GPU that failed; dmesg tells which by its Xid.",
        "CUDA reported '{what}': a kernel fault, or the GPU itself; the Xid in dmesg tells which",
        Remediation(
            "Look for an Xid in the host's dmesg; without one, find the kernel",
            ("dmesg -T | grep -i xid", *_BLOCKING),
        ),
        (
            Signature(
                "unspecified launch failure",
                "RuntimeError: CUDA error: unspecified launch failure",
                "launch failed",
                r"(?P<what>unspecified launch failure)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "the launch timed out and was terminated",
                "RuntimeError: CUDA error: the launch timed out and was terminated",
                "the launch timed",
                r"(?P<what>the launch timed out and was terminated)",
                source="CUDA 9 to 13, a display on the GPU",
            ),
            Signature(
                "CUDA error: unknown error",
                "RuntimeError: CUDA error: unknown error",
                "unknown error",
                r"CUDA error: (?P<what>unknown error)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "too many resources requested for launch",
                "RuntimeError: CUDA error: too many resources requested for launch",
                "too many resources",
                r"CUDA error: (?P<what>too many resources requested for launch|invalid configuration "
                r"argument|invalid argument)",
                source="CUDA 9 to 13",
            ),
        ),
        kind=VAGUE,
        decide="dmesg -T | grep -i xid",
    ),
    Cause(
        "GPU224",
        "uncorrectable-ecc-error",
        "The GPU's memory has an error that ECC could not correct.",
        "Hardware. The process is lost; the page is retired or the row remapped at the next reset.",
        "an uncorrectable ECC error of the GPU's memory ended the run: hardware",
        Remediation(
            "Drain the node, reset the GPU, look at retired pages and remapped rows, and replace the GPU if it "
            "recurs",
            ("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER", "sudo nvidia-smi --gpu-reset -i 0"),
        ),
        (
            Signature(
                "uncorrectable ECC error",
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                "ECC errors: 0 (uncorrectable ECC errors: 0)",
                r"uncorrectable ECC error (?:was )?(?:encountered|detected)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "uncorrectable NVLink error",
                "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
                "NVLink error count",
                source="CUDA 10 to 13",
            ),
            Signature(
                "Contained ECC error",
                "NVRM: Xid (PCI:0000:c1:00): 94, pid=12, name=python, Contained: GPC. Contained ECC error",
                "ECC enabled",
                r"Xid \([^)]*\): (?:48|63|64|92|94|95|171|172)\b",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:c1:00): 48, pid=12, name=python, DBE (double bit error)",
                "NVRM: Xid (PCI:0000:c1:00): 13, pid=12",
                r"Xid \([^)]*\): (?:48|63|64|92|94|95|171|172)\b",
                source="NVIDIA Xid catalogue",
            ),
        ),
        explains=("GPU2", "SES2", "DST"),
    ),
    Cause(
        "GPU231",
        "cublas-failed",
        "cuBLAS failed: out of GPU memory for its handle, wrong shapes or labels, or a library of another version.",
        "cuBLAS has few words for many causes.",
        "cuBLAS failed ({what}): {why}",
        Remediation(
            "Run the same batch on the CPU for the true message, check shapes and label ranges, watch the GPU's "
            "free memory, and take other CUDA "
            "libraries out of LD_LIBRARY_PATH",
            ("CUDA_LAUNCH_BLOCKING=1 python train.py", "unset LD_LIBRARY_PATH", "pip list | grep -i nvidia-cublas"),
        ),
        (
            Signature(
                "CUBLAS_STATUS_",
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8",
                r"(?P<what>CUBLAS_STATUS_(?!SUCCESS)\w+)",
                source="torch 1.0 to 2.15",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(
                "?", _CUBLAS.get(seen.groups.get("what", ""), "shapes, labels, GPU memory or a mixed install")
            ),
        ),
        decide="run the batch on the CPU",
    ),
    Cause(
        "GPU232",
        "cudnn-failed",
        "cuDNN failed: no GPU memory for its workspace, another cuDNN in the way, or an unsupported shape.",
        "cuDNN has few words for many causes; a second cuDNN on LD_LIBRARY_PATH is the most frequent for version "
        "texts.",
        "cuDNN failed ({what}): {why}",
        Remediation(
            "Take other CUDA libraries out of LD_LIBRARY_PATH, leave GPU memory for its workspace (a smaller "
            "batch), and retry without it",
            (
                "unset LD_LIBRARY_PATH",
                'python -c "import torch; print(torch.backends.cudnn.version())"',
                "torch.backends.cudnn.enabled = False",
            ),
        ),
        (
            Signature(
                "CUDNN_STATUS_",
                "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                "CUDNN_STATUS_SUCCESS",
                r"(?P<what>CUDNN_STATUS_(?!SUCCESS)\w+)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "cuDNN version incompatibility",
                "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, 1, 0) but found "
                "runtime version (8, 9, 2).",
                "cuDNN version 90100",
                r"(?P<what>cuDNN version incompatibility)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "Unable to find a valid cuDNN algorithm to run convolution",
                "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
                "algorithm to run",
                r"(?P<what>Unable to find a valid cuDNN algorithm to run convolution)",
                source="torch 1.3 to 2.15",
            ),
            Signature(
                "GET was unable to find an engine to execute this computation",
                "RuntimeError: GET was unable to find an engine to execute this computation",
                "find an engine",
                r"(?P<what>GET was unable to find an engine to execute this computation|FIND was unable to find an "
                r"engine)",
                source="torch 2.0 to 2.3",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(
                "?",
                "another cuDNN than torch's is loaded"
                if "version" in seen.groups.get("what", "")
                else "GPU memory for its workspace is short, or another cuDNN is loaded",
            ),
        ),
    ),
)


def _assertion(seen: Seen, verdict: Verdict) -> Verdict | None:
    text = seen.log.lines[seen.index].text
    if "n_classes" in text or "nll_loss" in text:
        what = "a label lies outside 0 to the number of classes (assertion t >= 0 && t < n_classes)"
        rest = "; the Python line of the traceback is only where the error surfaced"
        return with_message(verdict, what + rest)
    if "target" in seen.groups:
        return with_message(verdict, f"label {seen.groups['target']} is outside the range of the classes")
    what = (
        f"assertion {seen.groups['assertion']} failed in a CUDA kernel"
        if "assertion" in seen.groups
        else "a CUDA kernel's assertion failed"
    )
    return with_message(verdict, verdict.message.replace("?", what, 1))

"""The driver: NVML, CUDA initialisation, the container runtime."""

from __future__ import annotations

from dataclasses import replace

from torch_doctor.diagnose.cause import DEGRADED, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: major version of CUDA -> the oldest wheels for it that are still made; they run on each driver of that major version
_WHEELS = {11: "cu118", 12: "cu126"}


def driver_too_old(seen: Seen, verdict: Verdict) -> Verdict | None:
    """'found version 11040' is what CUDA the driver supports: 1000 x major + 10 x minor."""
    found = seen.groups.get("version")
    if "UserWarning" in seen.log.lines[seen.index].text:
        verdict = replace(verdict, kind=DEGRADED)  # the run goes on, on the CPU
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
                f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{_WHEELS[number // 1000]}"
                if number // 1000 in _WHEELS
                else 'python -c "import torch; print(torch.version.cuda)"',
            ),
        ),
        driver_cuda=cuda,
    )


def _daemon(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Kubernetes asks containerd, not Docker."""
    if "no runtime for" not in seen.log.lines[seen.index].text:
        return verdict
    return with_message(
        verdict,
        "containerd on this node has no NVIDIA runtime, which the pod's runtime class asks for",
        Remediation(
            "Configure containerd on the node and restart it, or install the GPU operator",
            (
                "sudo nvidia-ctk runtime configure --runtime=containerd",
                "sudo systemctl restart containerd",
                "kubectl get runtimeclass nvidia",
            ),
        ),
    )


def _module(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A module that loads and cannot start the card is another case than one that does not load."""
    if "RmInitAdapter" not in seen.groups["what"]:
        return verdict
    return with_message(
        verdict,
        f"the NVIDIA driver is loaded and cannot start the GPU ({seen.groups['what']}): the card, its power or slot, its "
        "firmware (GSP), or a driver that does not know it",
        Remediation(
            "Power the machine off and on, reseat the card and check its power, try another driver (the open kernel module for "
            "new GPUs), or without the GSP firmware",
            (
                "sudo poweroff",
                "dmesg -T | grep -i -E 'nvrm|pcie|aer'",
                "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf; sudo reboot",
                "sudo nvidia-bug-report.sh",
            ),
        ),
    )


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
                "abric",
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
            Signature(
                "cuda runtime error (30)",
                "RuntimeError: cuda runtime error (30) : unknown error at /pytorch/aten/src/THC/THCGeneral.cpp:51",
                "cuda runtime error (35)",
                source="torch 0.3 to 1.4",
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
                "nvidia",
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
                "is configured",
                'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured',
                'the runtime "nvidia" is configured',
                r"no runtime for \"nvidia[\w-]*\" is configured",
                source="containerd 1.4 to 2.1",
            ),
        ),
        judge=_daemon,
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
        "GPU216",
        "driver-module-not-loaded",
        "The kernel does not load the NVIDIA module.",
        "It is not built for the running kernel, Secure Boot rejects its signature, or nouveau holds the card.",
        "the NVIDIA kernel module does not load ({what}): it is not built for this kernel, or Secure Boot rejects "
        "its signature",
        Remediation(
            "Install the kernel headers and rebuild the module with DKMS, enrol its key or switch Secure Boot off, "
            "then reboot",
            ("sudo dkms autoinstall", "sudo mokutil --sb-state", "uname -r; dkms status", "sudo modprobe nvidia"),
        ),
        (
            Signature(
                "could not insert 'nvidia",
                "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
                "could not insert the row",
                r"could not insert '(?P<mod>nvidia\w*)': (?P<what>[^\n]+)",
                source="kmod 20 to 34",
            ),
            Signature(
                "Module nvidia",
                "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-45-generic",
                "Module nvidia found",
                r"(?P<what>Module nvidia\S* not found in directory \S+)",
                source="kmod 20 to 34",
            ),
            Signature(
                "RmInitAdapter failed",
                "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
                "RmInitAdapter ok",
                r"(?P<what>RmInitAdapter failed[^\n]*)",
                source="NVIDIA kernel module 470 to 590",
            ),
        ),
        judge=_module,
        explains=("GPU2",),
    ),
    Cause(
        "GPU253",
        "ptx-newer-than-driver",
        "The driver is too old for the PTX in the program.",
        "Code for a GPU that the wheel has no kernels for is compiled from PTX by the driver; a PTX of a newer CUDA than the driver knows is refused.",
        "the driver cannot compile the program's PTX: it was made by a newer CUDA than the driver supports",
        Remediation(
            "Update the NVIDIA driver of the host, or use a build for an older CUDA",
            (
                "nvidia-smi",
                'python -c "import torch; print(torch.version.cuda, torch.cuda.get_arch_list())"',
            ),
        ),
        (
            Signature(
                "the provided PTX was compiled with an unsupported toolchain",
                "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
                "PTX was compiled",
                source="CUDA 10 to 13, error 222",
            ),
        ),
        explains=("GPU206",),
    ),
    Cause(
        "GPU254",
        "nvidia-smi-not-in-container",
        "nvidia-smi is not there: the container was started without the NVIDIA runtime.",
        "The runtime mounts nvidia-smi from the host; without --gpus, or without the utility capability, it is missing. On a host it comes with the driver.",
        "nvidia-smi is not there: the container was started without --gpus, or without the utility capability; on a host the driver is not installed",
        Remediation(
            "Start the container with GPUs and the utility capability",
            (
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                "ls -l /dev/nvidia*",
            ),
        ),
        (
            Signature(
                "nvidia-smi",
                "/bin/sh: 1: nvidia-smi: not found",
                "nvidia-smi -L",
                r"nvidia-smi: (?:command )?not found|\"nvidia-smi\": executable file not found",
                source="sh, bash, runc",
            ),
        ),
        kind=VAGUE,
        explains=("SES254",),
    ),
    Cause(
        "GPU255",
        "no-gpu-to-schedule",
        "No node has the GPUs that the pod or job asks for.",
        "All are taken, the request is larger than a node, a taint keeps the pod off, or the device plugin does not run.",
        "no node has the GPUs that are asked for ({what})",
        Remediation(
            "See what the nodes have and what holds it; look at taints and the device plugin",
            (
                "kubectl describe nodes | grep -A8 -E 'Allocated|nvidia.com/gpu'",
                "kubectl get pods -A -o wide | grep -v Completed",
                "kubectl -n kube-system get pods | grep nvidia",
                "sinfo -o '%N %G %t'",
            ),
        ),
        (
            Signature(
                "nsufficient nvidia.com/",
                "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                "nvidia.com/gpu: 1",
                r"(?P<what>(?:\d+ )?Insufficient nvidia\.com/[\w.-]+)",
                source="Kubernetes scheduler",
            ),
            Signature(
                "Requested node configuration is not available",
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
                "node configuration",
                r"(?P<what>Requested node configuration is not available)",
                source="Slurm",
            ),
            Signature(
                "devices unavailable for nvidia.com/",
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, "
                "Available: 0, which is unexpected",
                "devices for nvidia.com/gpu",
                r"(?P<what>requested number of devices unavailable for nvidia\.com/[\w.-]+\. Requested: \d+, Available: \d+)",
                source="Kubernetes 1.10 to 1.34, kubelet: the device plugin was restarted or sees the GPU as unhealthy",
            ),
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
            Signature(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "NVIDIA-SMI 535",
                source="nvidia-smi 390 to 590",
            ),
        ),
        explains=("PKG2", "GPU2"),
    ),
    Cause(
        "GPU238",
        "cuda-driver-not-initialised",
        "CUDA's driver did not initialise, and the run goes on without a GPU.",
        "The GPU is in MIG mode and has no instance, the container lacks device nodes or the compute capability, or the driver "
        "is a stub. nvidia-smi needs less and works all the same.",
        "CUDA's driver did not initialise, so that torch has no GPU: a GPU in MIG mode without an instance, device nodes that "
        "the container lacks, or a container without the compute capability",
        Remediation(
            "Make a MIG instance or switch MIG off, and start the container with GPUs and the compute capability",
            (
                "nvidia-smi -L; ls -l /dev/nvidia*",
                "sudo nvidia-smi mig -cgi 0 -C  # or: sudo nvidia-smi -mig 0",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
            ),
        ),
        (
            Signature(
                "you might not have a CUDA gpu",
                "UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu.",
                "you might have a CUDA gpu",
                source="torch 1.9 to 2.15, c10/cuda/CUDAFunctions.cpp",
            ),
        ),
        kind=DEGRADED,
        explains=("GPU212", "GPU257"),
        decide="nvidia-smi -L; ls -l /dev/nvidia*",
    ),
    Cause(
        "GPU239",
        "stub-driver-loaded",
        "The stub of libcuda was loaded in place of the driver.",
        "The toolkit's folder stubs holds a libcuda for linking. On LD_LIBRARY_PATH it comes before the driver's.",
        "the toolkit's stub of libcuda is loaded in place of the driver: its folder stubs is on LD_LIBRARY_PATH",
        Remediation(
            "Take the stubs out of LD_LIBRARY_PATH; they are for linking only (LIBRARY_PATH)",
            (
                "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v stubs | paste -sd:)",
                "ldconfig -p | grep libcuda",
            ),
        ),
        (
            Signature(
                "driver is a stub library",
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library",
                "a stub library",
                source="CUDA 11 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
)

"""The driver on the host: modules, the fabric manager, CUDA's initialisation."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


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
                "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee -a /etc/modprobe.d/nvidia-gsp.conf  # then reboot, when no job runs",
                "sudo nvidia-bug-report.sh",
            ),
        ),
    )


register(
    Cause(
        "GPU204",
        "fabric-manager-not-running",
        "Error 802: an NVSwitch machine without its fabric manager.",
        "A100, H100, H200 and B200 boards with NVSwitch need nvidia-fabricmanager of exactly the driver's version "
        "before CUDA initialises.",
        "CUDA error 802 (system not yet initialized): on an NVSwitch machine (HGX A100, H100, H200, B200) "
        "nvidia-fabricmanager is not running or not of the driver's version",
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
        "address space collides with heterogeneous memory management in the driver.",
        "CUDA 'system not yet initialized' from a program of the driver API: on a machine without NVSwitch a recent "
        "kernel (KASLR with HMM) is the known reason; with NVSwitch, a fabric manager that is not running",
        Remediation(
            "Apply the workaround of the CUDA release notes (disable HMM in nvidia_uvm, or boot with nokaslr), or "
            "install a newer driver",
            (
                "echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee -a /etc/modprobe.d/uvm.conf  # then reboot, when no job runs",
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
        "text means that /dev/nvidia-uvm is not there. The text's own guess, environment variables, plays no part.",
        "CUDA unknown error at initialisation: the kernel module nvidia_uvm is in a bad state (after suspend and "
        "resume), or /dev/nvidia-uvm is missing in the container; nvidia-smi works all the same",
        Remediation(
            "Reload nvidia_uvm, or reboot; in a container, check that /dev/nvidia-uvm is there",
            (
                "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # refused while a process uses a GPU",
                "ls -l /dev/nvidia-uvm",
                "sudo nvidia-modprobe -u -c=0",
            ),
        ),
        (
            Signature(
                "CUDA unknown error",
                "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up "
                "environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start.",
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
        decide="ls -l /dev/nvidia-uvm",
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
                "sudo nvidia-smi mig -cgi 0 -C  # or: sudo nvidia-smi -mig 0; both want an idle GPU",
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
)

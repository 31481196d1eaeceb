"""Numbers and names that logs carry, and what they mean. Sources and dates beside each table."""

from __future__ import annotations

import signal

#: Xid -> (what happened, what to do, commands, kind). Source: NVIDIA, "Xid Errors", r570 to r590, read 2026-11.
#: 0 stands for the numbers that are not listed.
_RESET = ("sudo nvidia-smi --gpu-reset -i 0", "nvidia-smi -q -d ECC,ROW_REMAPPER")
_SANITIZE = ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py")
XID: dict[int, tuple[str, str, tuple[str, ...], str]] = {
    0: (
        "see NVIDIA's catalogue of Xid numbers",
        "Look the number up in NVIDIA's Xid catalogue",
        ("dmesg -T | grep -i xid",),
        "hardware",
    ),
    8: ("the GPU stopped processing", "Reset the GPU; look for a hang of the program first", _RESET, "either"),
    13: (
        "a graphics engine exception: the program, an index out of range or a faulty kernel",
        "Find the kernel",
        _SANITIZE,
        "program",
    ),
    31: (
        "a GPU memory page fault (MMU fault): the program accessed memory that is not mapped",
        "Find the kernel",
        _SANITIZE,
        "program",
    ),
    32: (
        "a corrupted push buffer: PCIe quality, the driver or the program",
        "Check the PCIe link, then the program",
        _RESET,
        "either",
    ),
    38: ("a driver firmware error", "Update the driver and reset the GPU", _RESET, "hardware"),
    43: ("the GPU stopped processing because of a fault of the program", "Find the kernel", _SANITIZE, "program"),
    45: (
        "preemptive cleanup after another error or a kill",
        "Look for the first Xid, or for who ended the process",
        ("dmesg -T | grep -i xid",),
        "echo",
    ),
    48: ("a double-bit ECC error", "Reset the GPU, replace it if it recurs", _RESET, "hardware"),
    61: ("an internal micro-controller error", "Reset the GPU", _RESET, "hardware"),
    62: ("an internal micro-controller halt", "Reset the GPU, replace it if it recurs", _RESET, "hardware"),
    63: ("a page retirement or row remapping was recorded", "Reset the GPU at the next pause", _RESET, "hardware"),
    64: ("a page retirement or row remapping failed", "Reset the GPU, replace it if it recurs", _RESET, "hardware"),
    68: ("a video processor exception", "Reset the GPU", _RESET, "either"),
    69: ("a graphics engine class error", "Find the kernel", _SANITIZE, "program"),
    74: (
        "an NVLink error",
        "Reset the GPUs, check the NVLink bridges and the fabric manager",
        ("nvidia-smi nvlink -e", *_RESET),
        "hardware",
    ),
    79: ("the GPU fell off the bus", "Check power, heat and seating; reboot", ("sudo reboot",), "hardware"),
    92: ("a high rate of single-bit ECC errors", "Watch it, replace the GPU if it recurs", _RESET, "hardware"),
    94: (
        "a contained ECC error: only this process is lost",
        "Restart the run; reset the GPU at the next pause",
        _RESET,
        "hardware",
    ),
    95: ("an uncontained ECC error", "Reset the GPU, drain the node", _RESET, "hardware"),
    109: ("a context switch timed out", "Update the driver, find the kernel", _SANITIZE, "either"),
    119: (
        "the GPU system processor (GSP) did not answer",
        "Reset the GPU or reboot; a newer driver, or GSP off",
        ("sudo reboot", "options nvidia NVreg_EnableGpuFirmware=0"),
        "hardware",
    ),
    120: (
        "a GPU system processor (GSP) error",
        "Reset the GPU or reboot; a newer driver",
        ("sudo reboot",),
        "hardware",
    ),
    121: ("an NVLink C2C error", "Reset the GPU", _RESET, "hardware"),
    140: ("an unrecovered ECC error", "Reset the GPU, drain the node", _RESET, "hardware"),
    149: ("an NVLink link error", "Reset the GPU, check NVLink", _RESET, "hardware"),
    154: ("the GPU needs recovery (reset or reboot)", "Do the action that the line names", _RESET, "hardware"),
}

#: exit status -> (signal's name, what usually sends it). Source: signal(7), wait(2), docker and Slurm manuals.
SIGNALS: dict[int, str] = {
    int(signal.SIGHUP): "the terminal or SSH connection closed",
    int(signal.SIGINT): "Ctrl-C",
    int(signal.SIGQUIT): "Ctrl-\\, or a supervisor that wanted a core",
    int(signal.SIGILL): "an instruction that this CPU does not have (a wheel built for AVX-512, for example)",
    int(
        signal.SIGABRT
    ): "abort(): an uncaught C++ exception, a failed assertion, glibc's heap check, or NCCL's watchdog",
    int(
        signal.SIGBUS
    ): "a page of a memory map that could not be had: a full /dev/shm, a full disk, a truncated file",
    int(signal.SIGFPE): "an integer division by zero in native code",
    int(signal.SIGKILL): "the OOM killer, or a stop whose grace period ended",
    int(signal.SIGSEGV): "a native crash in C or C++ code",
    int(signal.SIGPIPE): "the reader of its output went away",
    int(signal.SIGTERM): "a stop: docker stop, Kubernetes, Slurm's time limit, torchrun ending the other ranks",
    int(signal.SIGXCPU): "the limit of CPU time",
    int(signal.SIGSYS): "a system call that seccomp forbids",
}


def signal_of(status: int) -> int:
    """The signal behind an exit status: 137 and -9 are 9; 0 where there is none."""
    if status < 0:
        return -status
    return status - 128 if 128 < status < 160 else 0


def signal_name(number: int) -> str:
    """``9`` as ``SIGKILL``; an unknown number as ``signal N``."""
    names = {int(s): s.name for s in signal.Signals}
    return names.get(number, f"signal {number}")


def signal_number(name: str) -> int:
    """``SIGKILL`` as 9; 0 for an unknown name."""
    return next((int(s) for s in signal.Signals if s.name == name), 0)


#: extension -> the package that holds it; those of PyTorch's own releases go together with torch
_HOLDERS = (
    ("flash_attn", "flash-attn"), ("torchvision", "torchvision"), ("torchaudio", "torchaudio"),
    ("torchtext", "torchtext"), ("xformers", "xformers"), ("detectron2", "detectron2"), ("mmcv", "mmcv"),
    ("apex", "apex"), ("amp_C", "apex"), ("fused_layer_norm", "apex"), ("causal_conv1d", "causal-conv1d"),
    ("selective_scan", "mamba-ssm"), ("vllm", "vllm"), ("exllama", "exllamav2"), ("torch_scatter", "torch-scatter"),
    ("torch_sparse", "torch-sparse"), ("torch_cluster", "torch-cluster"), ("pytorch3d", "pytorch3d"),
    ("bitsandbytes", "bitsandbytes"), ("deepspeed", "deepspeed"), ("transformer_engine", "transformer-engine"),
    ("torchcodec", "torchcodec"), ("torchao", "torchao"), ("natten", "natten"),
)  # fmt: skip
PYTORCHS = {"torchvision", "torchaudio", "torchtext", "torchcodec"}


def holder(text: str) -> str:
    """The package on PyPI that a file or frame belongs to; empty where nobody knows it."""
    return next((package for start, package in _HOLDERS if start in text), "")

"""Which GPU, and whether this torch can use it."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register, with_message
from torch_doctor.model import Remediation

register(
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
                "which is of ",
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
                "not compiled with -gencode for this architecture",
                "FATAL: kernel `fmha_cutlassF` is for sm80-sm100, but was built for sm37 (not compiled with "
                "-gencode for this architecture)",
                "compiled",
                source="xformers",
            ),
            Signature(
                ("device kernel image is invalid", "invalid device function"),
                "RuntimeError: CUDA error: device kernel image is invalid",
                "kernel image loaded",
                r"(?:CUDA|HIP) error: (?:device kernel image is invalid|invalid device function)",
                source="CUDA 9 to 13, ROCm 5 to 7",
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
                "No devices were found",
                "No devices were found",
                "No devices were found in the config of x",
                r"^No devices were found$",
                source="nvidia-smi 390 to 590",
            ),
            Signature(
                "The NVIDIA Driver was not detected",
                "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
                "NVIDIA Driver was detected",
                source="NVIDIA's own containers",
            ),
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
                "torch.cuda.is_available() ",
                "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
                "False.",
                "torch.cuda.is_available() is True",
                r"torch\.cuda\.is_available\(\) (?:is|returned) False(?!\. If you are running on a CPU-only machine)",
                source="torch 1.0 to 2.15",
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
                "NotImplementedError: Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend.",
                "Could not run the script",
                r"Could not run '(?P<op>[\w:.]+)' with arguments from the 'CUDA' backend",
                source="torch 1.5 to 2.15, a CPU build",
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
                ("Invalid device id", "device < num_gpus"),
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
)

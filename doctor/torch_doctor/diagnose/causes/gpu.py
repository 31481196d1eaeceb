"""Which GPU, and whether this torch can use it."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_LIST = 'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"'
#: packages with kernels of their own, and how such kernels are called from Python
_EXTENSION = re.compile(
    r"flash_attn|xformers|bitsandbytes|mmcv|detectron2|pointnet|spconv|apex/|deepspeed|mamba_ssm|causal_conv1d"
    r"|torchsparse|MinkowskiEngine|diff_gaussian|_cuda\.|\b_C\.|_ext\.|_kernels?\.|torch_(?:scatter|sparse|cluster)"
)


def _no_kernel(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Too new, too old, or not torch at all: an extension that was built for other GPUs."""
    arch = seen.groups.get("arch", "")
    if not arch:
        if extension := _raised_in_extension(seen):
            return extension_verdict(verdict, extension)
        text = verdict.message.replace("?", "")
        return with_message(
            verdict, f"{text}: the GPU is too new for the wheel, or too old for it; the log alone does not tell which"
        )
    gpu = seen.groups.get("gpu", "").strip()
    message = (f"{gpu}: " if gpu else "") + verdict.message.replace(arch, f" {arch}")
    number = int(re.sub(r"\D", "", arch))
    if number >= 75:
        return with_message(verdict, message)
    index = "cu126" if number >= 50 else "cu118"
    return with_message(
        verdict,
        f"{message}: the GPU is older than what this build still supports",
        Remediation(
            "Install a build for an older CUDA that still has kernels for this GPU (CUDA 13 needs capability 7.5, "
            "Turing, or later; the CUDA 12.6 wheels go down to 5.0), or use a newer GPU",
            (_LIST, f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{index}"),
        ),
    )


def _raised_in_extension(seen: Seen) -> str:
    """The name of the extension whose frame raised; empty where torch itself did, or the log does not show it."""
    first = max(0, seen.index - 12)
    lines = [line.text for line in seen.log.lines[first : seen.index]]
    starts = [i for i, text in enumerate(lines) if text.lstrip().startswith('File "')]
    if not starts:
        return ""
    last = " ".join(lines[starts[-1] :])
    match = None if re.search(r"/torch/(?:nn|_|optim|autograd)", last) else _EXTENSION.search(last)
    return match[0].strip("._/") or "extension" if match else ""


def extension_verdict(verdict: Verdict, name: str) -> Verdict:
    """A compiled extension has no kernels for this GPU."""
    return with_message(
        verdict,
        f"a compiled extension ({name}) has no kernels for this GPU: it was built for other compute capabilities, "
        "while torch's own kernels may be fine",
        Remediation(
            "Build the extension anew for this GPU's capability, or install a build of it that has it",
            (
                _LIST,
                "TORCH_CUDA_ARCH_LIST=$(python -c \"import torch; print('%d.%d' % torch.cuda.get_device_capability())\") "
                "pip install --no-build-isolation --force-reinstall --no-deps EXTENSION",
            ),
        ),
    )


def _hidden(seen: Seen, verdict: Verdict) -> Verdict | None:
    """An environment that is printed in the log, and hides the GPUs, decides."""
    found = seen.find(
        r"CUDA_VISIBLE_DEVICES\b['\"]?\s*[=:]\s*(?P<value>['\"]?(?:-1|NoDevFiles|void|none)?['\"]?)\s*(?:$|\s\w)"
    )
    if found is None and seen.has(r"\b(?:apptainer|singularity)\b|\.sif\b"):
        return with_message(
            verdict,
            "CUDA sees no GPU: Apptainer (Singularity) mounts the driver only with --nv",
            Remediation(
                "Start the container with --nv, on a node with a GPU",
                ("apptainer exec --nv IMAGE.sif python train.py", "nvidia-smi -L"),
            ),
        )
    if found is None:
        return _capabilities(seen, verdict)
    value = found["value"].strip("'\"") or "empty"
    return with_message(
        verdict,
        f"CUDA_VISIBLE_DEVICES is {value}, which hides all GPUs from CUDA; nvidia-smi shows them all the same",
        Remediation(
            "Unset it, or name the GPUs; where a scheduler set it, ask for a GPU",
            ("unset CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES=0 python train.py", "sbatch --gres=gpu:1 ..."),
        ),
    )


def _capabilities(seen: Seen, verdict: Verdict) -> Verdict:
    """With the utility capability alone nvidia-smi works, and CUDA has no driver."""
    found = seen.find(r"NVIDIA_DRIVER_CAPABILITIES['\"]?\s*[=:]\s*['\"]?(?P<value>[a-z,]+)")
    if found is None or {"all", "compute"} & set(found["value"].split(",")):
        return verdict
    return with_message(
        verdict,
        f"the container has the driver's capabilities {found['value']} only, without compute: nvidia-smi works, and CUDA sees no "
        "GPU",
        Remediation(
            "Ask for the compute capability",
            ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",),
        ),
    )


def _ordinal(seen: Seen, verdict: Verdict) -> Verdict | None:
    if "busy or unavailable" in seen.log.lines[seen.index].text:
        return with_message(
            verdict,
            "the GPU refuses another process (busy or unavailable): exclusive-process mode with a process on "
            "it, or a MIG or failed device",
            Remediation(
                "See who holds the GPU, and set the default compute mode",
                ("nvidia-smi", "sudo nvidia-smi -c DEFAULT"),
            ),
        )
    if "asked" in seen.groups:
        have = seen.groups["have"]
        return with_message(
            verdict,
            f"GPUs {seen.groups['asked']} were asked for and this machine shows {have}: fewer GPUs, or "
            "CUDA_VISIBLE_DEVICES hides the others",
            Remediation(
                "Ask for the GPUs that are there",
                (
                    f"Trainer(accelerator='gpu', devices={len(re.findall(r'[0-9]+', have)) or 1})",
                    "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
                ),
            ),
        )
    return verdict


register(
    Cause(
        "GPU206",
        "no-kernel-for-this-gpu",
        "The installed torch has no code for this GPU's architecture.",
        "A wheel holds kernels for a list of compute capabilities. The GPU may be newer than the wheel, or older; "
        "is_available() is True either way.",
        "the installed wheel has no kernels for this GPU's compute capability{arch}",
        Remediation(
            "Compare the GPU's capability with the wheel's list and install a wheel that contains it: a newer CUDA "
            "build (cu128 or later for "
            "Blackwell, sm_100 and sm_120) for a new GPU, an older CUDA build for an old one",
            (
                'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128",
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
                r"minimum|Minimum and Maximum)",
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
        judge=_no_kernel,
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
            Signature(
                ("NVMLError_LibraryNotFound", "NVML Shared Library Not Found"),
                "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
                "NVML library found",
                r"NVMLError_LibraryNotFound|NVML Shared Library Not Found",
                source="nvidia-ml-py 7 to 13: libnvidia-ml comes from the driver's mount",
            ),
        ),
        judge=_hidden,
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
                "But your machine only has",
                "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n "
                "But your machine only has: [0, 1]",
                "your machine only has one GPU",
                r"You requested (?:gpu|GPU)s?: (?P<asked>\[[^\]]*\])\s*\n?\s*But your machine only has: (?P<have>\[[^\]]*\])",
                source="Lightning 1.0 to 2.6",
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
        judge=_ordinal,
    ),
)

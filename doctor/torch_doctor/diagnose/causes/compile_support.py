"""Where torch.compile cannot work: its triton, the GPU, the Python or the system is not one that it supports."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _arch(seen: Seen, verdict: Verdict) -> Verdict | None:
    """nvcc belongs to the CUDA toolkit, ptxas to triton."""
    arch = seen.groups.get("arch", "")
    if "nvcc" not in seen.log.lines[seen.index].text:
        return with_message(verdict, verdict.message if arch else verdict.message.replace(" ?", ""))
    return with_message(
        verdict,
        f"the CUDA toolkit's nvcc does not know the GPU's architecture {arch}: the toolkit is older than the GPU",
        Remediation(
            "Install a newer toolkit (CUDA 12.8 or later for sm_100 and sm_120) and point CUDA_HOME to it, or take a prebuilt "
            "wheel of the extension",
            (
                "nvcc --version; ls -d /usr/local/cuda*",
                "export CUDA_HOME=/usr/local/cuda-12.8 PATH=/usr/local/cuda-12.8/bin:$PATH",
                'python -c "import torch; print(torch.version.cuda, torch.cuda.get_device_capability())"',
            ),
        ),
    )


def _triton(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A triton that is there and lacks a name is one of another torch."""
    text = seen.log.lines[seen.index].text
    if "'triton.ops" in text:
        return with_message(
            verdict,
            "triton.ops does not exist any more: an old bitsandbytes (or another package) is installed beside a newer triton",
            Remediation(
                "Upgrade what imports it", ("pip install --upgrade bitsandbytes", "pip show triton bitsandbytes")
            ),
        )
    if "cannot import name" not in text and "has no attribute" not in text:
        return verdict
    return with_message(
        verdict,
        "the installed triton is not the one that this torch was made for: a name that torch asks it for does not exist",
        Remediation(
            "Reinstall torch, which pins its triton, and see what replaced it",
            (
                "pip install --force-reinstall torch==VERSION  # that of pip show torch",
                "pip show torch triton; pip check",
            ),
        ),
    )


register(
    Cause(
        "CMP207",
        "compiler-too-old-for-gpu",
        "triton's ptxas does not know this GPU's architecture.",
        "The installed triton is older than the GPU. Older wrappers hide what ptxas says and show only its exit "
        "status 255.",
        "triton's ptxas does not know the GPU's architecture {arch}: this torch and triton are older than the GPU",
        Remediation(
            "Install a newer torch with its triton (CUDA 12.8 or later for sm_100 and sm_120)",
            (
                "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128",
                'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
            ),
        ),
        (
            Signature(
                "ptxas",
                "subprocess.CalledProcessError: Command "
                "'['/opt/venv/lib/python3.10/site-packages/triton/backends/nvidia/bin/ptxas', '-lineinfo', "
                "'-v', '--gpu-name=sm_120', '/tmp/tmpdy7phawp.ptx', '-o', '/tmp/tmpdy7phawp.ptx.o']' returned "
                "non-zero exit status 255.",
                "ptxas info    : Used 32 registers",
                r"ptxas['\"][^\n]*--gpu-name=(?P<arch>sm_\w+)[^\n]*(?:non-zero exit status|died with)",
                source="triton 2.x and 3.0 to 3.2",
            ),
            Signature(
                "is not defined for option 'gpu-name'",
                "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
                "Value 'x' is not defined for option 'y'",
                r"Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'",
                source="ptxas of CUDA 11 and 12",
            ),
            Signature(
                "PTXASError",
                "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` "
                "stderr:\nptxas fatal : Value 'sm_121a' is not defined",
                "PTXAS warning",
                r"PTXASError: PTXAS error[^\n]*\n(?:.*\n){0,8}?[^\n]*(?P<arch>sm_\w+)[^\n]*(?:not "
                r"defined|Unsupported|fatal)",
                source="triton 3.x",
            ),
            Signature(
                "nvcc fatal",
                "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
                "nvcc fatal   : No input files specified",
                r"nvcc fatal\s*: Unsupported gpu architecture '(?P<arch>\w+)'",
                source="nvcc of CUDA 11 and 12",
            ),
            Signature(
                "LLVM ERROR: Cannot select",
                "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
                "LLVM ERROR: out of memory",
                r"LLVM ERROR: Cannot select: intrinsic (?P<arch>)%llvm\.nvvm",
                source="triton 2.x on old or new GPUs",
            ),
        ),
        explains=("CMP22",),
        judge=_arch,
    ),
    Cause(
        "CMP208",
        "triton-missing",
        "No working triton is installed.",
        "triton has wheels for Linux and few Pythons. On another system, or on a brand-new Python, torch.compile "
        "for the GPU has no back end.",
        "no working triton: it has no wheel for this operating system or Python, or is older than this torch needs",
        Remediation(
            "Install the triton of this torch, or run eagerly for now: backend='eager', or suppress_errors",
            (
                "python -c \"import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')\" | grep triton  # the one to install",
                "torch.compile(model, backend='eager')",
                "torch._dynamo.config.suppress_errors = True",
            ),
        ),
        (
            Signature(
                ("from 'triton", "module 'triton"),
                "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'",
                "imported from 'triton'",
                r"cannot import name '\w+' from 'triton[\w.]*'|module 'triton[\w.]*' has no attribute '\w+'",
                source="torch 2.2 to 2.15 with the triton of another torch",
            ),
            Signature(
                "module 'triton",
                "AttributeError: module 'triton.language' has no attribute 'dtype'",
                "module 'tritonclient'",
                r"module 'triton(?:\.[\w.]+)?' has no attribute '\w+'",
                source="torch 2.0 to 2.15 with the triton of another torch",
            ),
            Signature(
                "TritonMissing",
                "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package "
                "is not installed or it is too old.",
                "triton found",
                source="torch 2.4 to 2.15",
            ),
            Signature(
                "Cannot find a working triton installation",
                "RuntimeError: Cannot find a working triton installation. More information on installing Triton "
                "can be found at https://github.com/openai/triton",
                "working triton installation found",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "No module named 'triton",
                "ModuleNotFoundError: No module named 'triton'",
                "No module named 'tritonclient'",
                r"No module named 'triton(?:\.[\w.]+)?'",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=_triton,
    ),
    Cause(
        "CMP231",
        "gpu-too-old-for-triton",
        "The GPU is too old for triton, which torch.compile generates code with.",
        "triton needs compute capability 7.0 (Volta). Pascal and Maxwell run eager code only.",
        "the GPU[[ ({gpu}, compute capability {have})]] is too old for triton, which needs 7.0 or later: "
        "torch.compile cannot generate code for it",
        Remediation(
            "Run without torch.compile on this GPU, or with a back end that needs no triton",
            ("TORCH_COMPILE_DISABLE=1 python train.py", "torch.compile(model, backend='aot_eager')"),
        ),
        (
            Signature(
                "too old to be supported by the triton GPU compiler",
                "RuntimeError: Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is "
                "used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of "
                "CUDA capability 6.0",
                "driver too old",
                r"Found (?P<gpu>[^\n]{1,60}?) which is too old to be supported by the triton GPU compiler"
                r"(?:[^\n]*your device is of CUDA capability (?P<have>[\d.]+))?",
                source="torch 2.0 to 2.15, torch/_inductor/exc.py",
            ),
        ),
        explains=("CMP2",),
    ),
    Cause(
        "CMP213",
        "compile-not-supported-here",
        "torch.compile does not support this Python or system.",
        "dynamo follows new Pythons with a delay.",
        "torch.compile is not supported on this {what}",
        Remediation(
            "Use a Python that this torch supports for torch.compile, or a newer torch",
            (
                'python --version; python -c "import torch; print(torch.__version__)"',
                "TORCH_COMPILE_DISABLE=1 python train.py",
            ),
        ),
        (
            Signature(
                "Dynamo is not supported on",
                "RuntimeError: Dynamo is not supported on Python 3.12+",
                "Dynamo is supported",
                r"Dynamo is not supported on (?P<what>Python [\d.]+\+?|Windows|\w+)",
                source="torch 2.0 to 2.8",
            ),
            Signature(
                "not yet supported for torch.compile",
                "RuntimeError: Windows not yet supported for torch.compile",
                "not yet supported",
                r"(?P<what>[\w. +]+?) not yet supported for torch\.compile",
                source="torch 2.0 to 2.8",
            ),
            Signature(
                "torch.compile is not supported on",
                "RuntimeError: torch.compile is not supported on Python 3.14+",
                "torch.compile is supported",
                r"torch\.compile is not supported on (?P<what>[\w. +]+)",
                source="torch 2.6 to 2.9",
            ),
        ),
    ),
    Cause(
        "CMP236",
        "ptxas-older-than-triton",
        "The ptxas that triton calls is older than the PTX that triton writes.",
        "TRITON_PTXAS_PATH, or a triton that takes the system's CUDA toolkit, points to an old ptxas. It is no matter of "
        "the GPU.",
        "the ptxas that triton calls knows PTX up to {have} and triton writes {want}: it belongs to an older CUDA toolkit",
        Remediation(
            "Use the ptxas that comes with triton, or a newer toolkit's",
            (
                "unset TRITON_PTXAS_PATH",
                "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas; $TRITON_PTXAS_PATH --version",
                "pip install --force-reinstall torch==VERSION  # that of pip show torch: it brings its own triton",
            ),
        ),
        (
            Signature(
                "Unsupported .version",
                "ptxas /tmp/tmpm0q.ptx, line 5; fatal   : Unsupported .version 8.7; current version is '8.3'",
                "Unsupported .version of the format",
                r"Unsupported \.version (?P<want>[\d.]+); current version is '(?P<have>[\d.]+)'",
                source="ptxas of CUDA 11 to 13",
            ),
        ),
        explains=("CMP2",),
    ),
)

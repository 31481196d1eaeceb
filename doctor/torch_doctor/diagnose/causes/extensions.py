"""Compiled extensions: built for another torch, CUDA or Python, or not to be built here."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.tables import PYTORCHS, holder
from torch_doctor.model import Remediation


def extension(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Whose extension it is decides what to install; one built at run time lies in a cache."""
    file = seen.groups.get("file", "")
    package = holder(file or seen.log.lines[seen.index].text)
    symbol = seen.groups.get("symbol", "")
    versions = verdict.remedy.commands[0]
    if package in PYTORCHS:
        message = f"the installed {package} was built for another torch" + (
            f" ({symbol} is missing)" if symbol else ""
        )
        remedy = Remediation(
            f"Install the {package} of the same release as torch, in one command",
            (
                "pip list | grep -i -E '^torch'",
                "pip install --force-reinstall --no-cache-dir torch==VERSION torchvision torchaudio  # VERSION of pip show torch",
                f"pip install --force-reinstall --no-deps '{package}==VERSION_FOR_THIS_TORCH'",
            ),
        )
        return with_message(verdict, message, remedy)
    if "torch_extensions" in file:
        remedy = Remediation(
            "Delete the extension that was built for the earlier torch; it is built anew",
            ("rm -rf ~/.cache/torch_extensions", versions),
        )
        return with_message(verdict, verdict.message, remedy)
    install = f"pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation {package or 'PACKAGE'}"
    message = verdict.message.replace(" (its symbol ? does not exist in the installed one)", "").replace(
        "?", package or "an extension"
    )
    return with_message(verdict, message, Remediation(verdict.remedy.text, (versions, install)))


register(
    Cause(
        "PKG202",
        "extension-built-for-another-torch",
        "A compiled extension was built for another torch: a symbol is undefined.",
        "flash-attn, torchvision, xformers, detectron2 and others are bound to one torch version and C++ ABI.",
        "{file} was built for another torch (its symbol {symbol} does not exist in the installed one)",
        Remediation(
            "Install the build of the extension that belongs to this torch, or build it anew",
            (
                'python -c "import torch; print(torch.__version__, torch.version.cuda, '
                'torch.compiled_with_cxx11_abi())"',
                "pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation PACKAGE",
            ),
        ),
        (
            Signature(
                "undefined symbol: ",
                "ImportError: /opt/venv/lib/python3.11/site-packages/flash_attn_2_cuda.so: "
                "undefined symbol: _ZN3c104cuda9SetDeviceEi",
                "ImportError: /tmp/torchinductor_user/triton/0/d5/__triton_launcher.so: undefined symbol: "
                "cuLaunchKernel",
                r"(?P<file>(?!\S*(?:torchinductor|/triton/|\.triton))/?\S+\.so[\w.]*): undefined symbol: "
                r"(?P<symbol>(?!nccl|iJIT|mkl_|cudnn|cublas|__nv|cu[A-Z])\w+)",
                source="glibc",
            ),
            Signature(
                "operator torchvision::",
                "RuntimeError: operator torchvision::nms does not exist",
                "operator exists",
                r"operator (?P<file>torchvision)::(?P<symbol>\w+) does not exist",
                source="torchvision of another torch",
            ),
            Signature(
                "Couldn't load custom C++ ops",
                "RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and torchvision "
                "versions are incompatible",
                "C++ ops",
                source="torchvision 0.6 to 0.30",
            ),
            Signature(
                "were compiled with different CUDA",
                "RuntimeError: Detected that PyTorch and torchaudio were compiled with different CUDA versions.",
                "compiled with",
                r"PyTorch and (?P<file>\w+) were compiled with different CUDA",
                source="torchvision, torchaudio",
            ),
            Signature(
                "xFormers can't load C++/CUDA extensions",
                "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for: PyTorch 2.1.0",
                "xFormers",
                source="xformers 0.0.16 to 0.0.33",
            ),
        ),
        judge=extension,
        explains=("PKG2",),
    ),
    Cause(
        "PKG232",
        "torchvision-without-cuda",
        "torchvision is a CPU build beside a CUDA torch.",
        "Its operators (nms, roi_align) have no CUDA kernels then; pip or conda took it from another index than torch.",
        "the installed {package} is a CPU-only build ({op} has no CUDA kernel), beside a torch that uses CUDA",
        Remediation(
            "Install it from the same index and release as torch",
            (
                "pip list | grep -i -E '^torch'",
                "pip install --force-reinstall --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cu128",
                'python -c "import torchvision; print(torchvision.__version__, torchvision.version.cuda)"',
            ),
        ),
        (
            Signature(
                "Could not run 'torch",
                "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend. This could "
                "be because the operator doesn't exist for this backend",
                "NotImplementedError: Could not run 'aten::empty_strided' with arguments from the 'CUDA' backend.",
                r"Could not run '(?P<op>(?P<package>torchvision|torchaudio)::\w+)' with arguments from the 'CUDA' backend",
                source="torch 1.5 to 2.15",
            ),
        ),
        explains=("GPU213", "PKG202"),
    ),
    Cause(
        "PKG208",
        "cuda-toolkit-mismatch",
        "The CUDA toolkit that builds an extension is not that of the installed torch.",
        "nvcc of the system and torch.version.cuda must have the same major version.",
        "the CUDA toolkit for building extensions ({have}) is not the one that torch was built with ({want})",
        Remediation(
            "Install the toolkit of torch.version.cuda, or the torch built for the toolkit, and set CUDA_HOME",
            (
                'python -c "import torch; print(torch.version.cuda)"; nvcc --version',
                "export CUDA_HOME=/usr/local/cuda-12.8",
            ),
        ),
        (
            Signature(
                "mismatches the version that was used to compile",
                "RuntimeError: The detected CUDA version (12.1) mismatches the version that was used to compile "
                "PyTorch (11.8). Please make sure to use the same CUDA versions.",
                "version mismatches",
                r"detected CUDA version \((?P<have>[\d.]+)\) mismatches the version that was used to "
                r"compile\s+PyTorch \((?P<want>[\d.]+)\)",
                source="torch 1.3 to 2.15, torch/utils/cpp_extension.py",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG209",
        "cuda-toolkit-missing",
        "An extension is to be built and there is no CUDA toolkit.",
        "The wheels of torch carry the run time, not nvcc.",
        "there is no CUDA toolkit (nvcc) to build an extension with{what}",
        Remediation(
            "Install a prebuilt wheel of the extension, or the CUDA toolkit, and set CUDA_HOME",
            ("apt-get install -y cuda-nvcc-12-8", "export CUDA_HOME=/usr/local/cuda"),
        ),
        (
            Signature(
                "CUDA_HOME environment variable is not set",
                "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
                "CUDA_HOME set",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "No such file or directory: '",
                "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
                "No such file or directory: 'x'",
                r"No such file or directory: '(?:[^']*/)?nvcc'",
                source="torch 1.0 to 2.15",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "")),
        explains=("PKG2", "FS208"),
    ),
    Cause(
        "PKG240",
        "bitsandbytes-without-cuda",
        "bitsandbytes found no library for this CUDA, has no kernels for this GPU, or is a CPU build.",
        "It picks a binary by torch's CUDA version and looks for libcudart; older releases know no newer CUDA, or lack this "
        "GPU's architecture, and then end the process without a Python exception.",
        "bitsandbytes has no working CUDA library here: it does not know torch's CUDA version, finds no libcudart, or has no "
        "kernels for this GPU",
        Remediation(
            "Upgrade bitsandbytes beside this torch, and let it say what it finds",
            ("python -m bitsandbytes", "pip install -U bitsandbytes", "unset BNB_CUDA_VERSION LD_LIBRARY_PATH"),
        ),
        (
            Signature(
                (
                    "CUDA Setup failed despite",
                    "CUDA SETUP: CUDA detection failed",
                    "bitsandbytes was compiled without GPU support",
                    "python -m bitsandbytes",
                ),
                "RuntimeError: \n        CUDA Setup failed despite GPU being available. Please run the following command to get more "
                "information:\n\n        python -m bitsandbytes",
                "CUDA SETUP: Loading binary libbitsandbytes_cuda118.so...",
                r"CUDA Setup failed despite|CUDA SETUP: CUDA detection failed|^[^\n]*Error[^\n]*bitsandbytes was compiled without GPU support"
                r"|^\s*python -m bitsandbytes$",
                source="bitsandbytes 0.35 to 0.48",
            ),
            Signature(
                "csrc/ops.cu",
                "Error named symbol not found at line 74 in file /mmfs1/git/bitsandbytes/csrc/ops.cu",
                "nvcc -c csrc/ops.cu",
                r"Error (?:named symbol not found|no kernel image is available for execution on the device|invalid device "
                r"function)[^\n]*csrc/ops\.cu",
                source="bitsandbytes 0.35 to 0.48",
            ),
        ),
        explains=("GPU2",),
    ),
    Cause(
        "PKG251",
        "extension-of-another-python",
        "A compiled extension was built for another Python.",
        "Its interface changes with each minor version, unless it was built for the stable one.",
        "a compiled extension was built for Python {built}, and {have} runs",
        Remediation(
            "Install it anew with the Python that runs",
            (
                "python -m pip install --force-reinstall --no-cache-dir PACKAGE",
                "find . -name '*.so'; rm -r build  # setuptools' own build folder, in the project that is built",
            ),
        ),
        (
            Signature(
                "Python version mismatch: module was compiled for",
                "ImportError: Python version mismatch: module was compiled for Python 3.8, but the interpreter version is incompatible: 3.10.12 (main, Nov 20 2023).",
                "Python version mismatch",
                r"Python version mismatch: module was compiled for (?:version )?(?:Python )?(?P<built>[\d.]+\d)[^\n]*?(?:incompatible: |version: )(?P<have>[\d.]+)",
                source="pybind11 2.x",
            ),
        ),
        explains=("PKG2",),
    ),
)

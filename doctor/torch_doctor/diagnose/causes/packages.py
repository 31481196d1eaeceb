"""Packages of other versions: NumPy, torch for transformers, protobuf, setuptools."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def abi(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Which module it is, and which of the two is older."""
    if most := seen.groups.get("most"):
        return with_message(
            verdict,
            f"Numba works with NumPy up to {most}, and a newer one is installed",
            Remediation("Upgrade Numba, or hold NumPy", ("pip install -U numba", f"pip install 'numpy<={most}.99'")),
        )
    module = seen.near(r"\bin init ([\w.]+)", 12, 0)
    name = module[1] if module else ""
    sizes = re.search(
        r"numpy\.(\w+) size changed[^\n]*Expected (\d+)[^\n]*got (\d+)", seen.log.lines[seen.index].text
    )
    if sizes is None:
        return verdict
    what = f"{name} " if name else "a compiled module "
    package = name.split(".")[0] or "MODULE"
    if sizes[1] == "dtype" and (sizes[2], sizes[3]) == ("96", "88"):
        message = f"{what}was built for NumPy 1, and NumPy 2 is installed"
        commands = ("pip install 'numpy<2'", f"pip install -U --force-reinstall --no-deps --no-cache-dir {package}")
        return with_message(verdict, message, Remediation(verdict.remedy.text, commands))
    return with_message(
        verdict,
        f"{what}was built for a newer NumPy than the one that is installed (size {sizes[2]} against {sizes[3]})",
        Remediation(
            "Upgrade NumPy, or build the module anew against this one",
            (
                "pip install -U numpy",
                f"pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir --no-binary {package} {package}",
            ),
        ),
    )


def switched_off(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A line before it says which version was wanted, and which is there."""
    line = seen.told(
        r"Disabling PyTorch because PyTorch ?>= ?(?P<want>[\d.]+) is required but found (?P<have>[\w.+]+)"
    )
    if line is None:
        return verdict
    return with_message(
        verdict,
        f"torch {line['have']} is too old for this transformers, which needs {line['want']} and therefore behaves as if "
        "there were no torch",
        Remediation(
            verdict.remedy.text,
            (
                f"pip install -U 'torch>={line['want']}' torchvision torchaudio",
                "pip install 'transformers<5'",
                'python -c "import torch, transformers; print(torch.__version__, transformers.__version__)"',
            ),
        ),
    )


register(
    Cause(
        "PKG201",
        "numpy-built-for-another-abi",
        "A module built for NumPy 1 runs with NumPy 2, or the other way round.",
        "The C interface changed with NumPy 2. torch before 2.3 and many extensions were built for NumPy 1.",
        "a compiled module was built against another NumPy than the one that is installed (NumPy 1 against 2)",
        Remediation(
            "Hold NumPy below 2, or upgrade the module (and torch to 2.3 or later) to a build for NumPy 2",
            ("pip install 'numpy<2'", "pip list | grep -i -E 'numpy|torch'"),
        ),
        (
            Signature(
                "A module that was compiled using NumPy 1.x cannot be run in",
                "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.1 as it may crash.",
                "NumPy 1.x",
                source="NumPy 2.0 to 2.4",
            ),
            Signature(
                "numpy.dtype size changed",
                "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C "
                "header, got 88 from PyObject",
                "dtype size",
                source="Cython modules",
            ),
            Signature(
                "numpy.ndarray size changed",
                "ValueError: numpy.ndarray size changed, may indicate binary incompatibility. Expected 96 from C header, "
                "got 80 from PyObject",
                "ndarray size",
                source="Cython modules",
            ),
            Signature(
                "Numba needs NumPy",
                "ImportError: Numba needs NumPy 2.0 or less. Got NumPy 2.2.",
                "Numba uses NumPy",
                r"Numba needs NumPy (?P<most>[\d.]+) or less",
                source="Numba 0.53 to 0.62",
            ),
            Signature(
                "Numpy is not available",
                "RuntimeError: Numpy is not available",
                "Numpy is here",
                source="torch 1.0 to 2.2 with NumPy 2",
            ),
            Signature(
                "compiled against",
                "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xe",
                "API version",
                r"module (?:was )?compiled against (?:NumPy C-)?API version 0x",
                source="NumPy 1.x",
            ),
            Signature(
                "failed to import",
                "ImportError: numpy.core.multiarray failed to import",
                "multiarray",
                r"numpy\.(?:_?core)\.(?:multiarray|umath) failed to import",
                source="NumPy 1.x and 2.x",
            ),
        ),
        judge=abi,
        explains=("PKG2",),
    ),
    Cause(
        "PKG235",
        "torch-too-old-for-package",
        "A package does not see the installed torch, since it is too old for it.",
        "transformers switches PyTorch off when it is older than it supports, and then says that torch was not "
        "found, though it is there.",
        "transformers says that it finds no PyTorch: torch is missing in this environment, or older than it supports",
        Remediation(
            "Upgrade torch with its torchvision and torchaudio, or hold transformers at a version for this torch",
            (
                'python -c "import sys, torch; print(sys.executable, torch.__version__)"; pip show transformers | head -2',
                "pip install -U torch torchvision torchaudio",
                "pip install 'transformers<5'",
            ),
        ),
        (
            Signature(
                "requires the PyTorch library but it was not found",
                "ImportError: \nAutoModelForCausalLM requires the PyTorch library but it was not found in your environment.",
                "it requires the PyTorch library",
                source="transformers 4.x and 5.x",
            ),
        ),
        judge=switched_off,
        explains=("PKG206",),
    ),
    Cause(
        "PKG238",
        "protobuf-too-new",
        "Generated protobuf code is older than the installed protobuf.",
        "protobuf 4 refuses code of protoc before 3.19; TensorBoard, wandb, onnx and sentencepiece's models bring such code.",
        "a package's generated protobuf code is too old for the installed protobuf",
        Remediation(
            "Upgrade the package whose _pb2.py the traceback names, or hold protobuf below 3.21",
            (
                "pip install 'protobuf<3.21'",
                "pip install -U tensorboard wandb onnx",
                "export PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python  # slow",
            ),
        ),
        (
            Signature(
                ("Descriptors cannot be created directly", "Descriptors cannot not be created directly"),
                "TypeError: Descriptors cannot be created directly.\nIf this call came from a _pb2.py file, your generated code is "
                "out of date",
                "Descriptors can be created directly",
                source="protobuf 4.21 to 6",
            ),
        ),
    ),
    Cause(
        "PKG246",
        "dependency-of-another-version",
        "A package found another version of a dependency than it works with.",
        "transformers and others check their dependencies when they are imported.",
        "{what} is required, and {have} is installed",
        Remediation(
            "Install the required version, or the release of the package that works with the installed one",
            ("pip install '{what}'", "pip install -U transformers tokenizers huggingface_hub", "pip check"),
        ),
        (
            Signature(
                "is required for a normal functioning of this module, but found",
                "ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.15.2.",
                "is required for this module",
                r"(?P<what>[\w.-]+[<>=!~][^\s]*) is required for a normal functioning of this module, but found (?P<have>\S+?)\.?(?:\s|$)",
                source="transformers 4.x and 5.x",
            ),
        ),
    ),
    Cause(
        "PKG247",
        "optional-package-missing",
        "A feature needs a package that is not installed.",
        "Libraries keep large dependencies optional, and name them when they are needed.",
        "a feature that the code asks for needs {what}, which is not installed",
        Remediation("Install it", ("python -m pip install {what}",)),
        (
            Signature(
                ("`pip install ",),
                "ImportError: Using `low_cpu_mem_usage=True`, a `device_map` or a `tp_plan` requires Accelerate: `pip install 'accelerate>=0.26.0'`",
                "run `pip install x`",
                r"^ImportError: [^\n]*`pip install (?:-U |--upgrade )?(?P<what>[^`\n]+)`",
                source="transformers, diffusers, datasets",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "PKG248",
        "distutils-version-gone",
        "torch up to 1.10 looks for distutils.version in a way that newer setuptools broke.",
        "setuptools 59.6 and later replace distutils; Python 3.12 dropped it.",
        "distutils.version is not there: torch up to 1.10 (its tensorboard module) does not work with this setuptools",
        Remediation(
            "Upgrade torch, or hold setuptools at 59.5",
            ("pip install setuptools==59.5.0", "pip install -U torch torchvision"),
        ),
        (
            Signature(
                "module 'distutils' has no attribute 'version'",
                "AttributeError: module 'distutils' has no attribute 'version'",
                "module 'distutils' is here",
                source="torch 1.8 to 1.10, setuptools 59.6 and later",
            ),
        ),
        explains=("PKG207",),
    ),
    Cause(
        "PKG253",
        "numpy-install-broken",
        "NumPy's own extension modules cannot be loaded.",
        "Two installations in one folder (pip over conda), an upgrade that was cut, or a folder of another Python version.",
        "NumPy's extension modules cannot be loaded: its installation is broken or mixed (pip over conda, another Python)",
        Remediation(
            "Remove all of NumPy and install it once",
            (
                "pip uninstall -y numpy; pip uninstall -y numpy; pip install --no-cache-dir numpy",
                'python -c "import sys; print(sys.executable, sys.path)"',
            ),
        ),
        (
            Signature(
                "Importing the numpy C-extensions failed",
                "Importing the numpy C-extensions failed. This error can happen for many reasons",
                "the numpy C-extensions",
                source="NumPy 1.17 to 2.4",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG255",
        "mkl-install-broken",
        "Intel's MKL cannot load its parts, or its threading layer does not fit.",
        "conda's MKL is updated in part, pip's numpy is mixed with it, or libgomp is loaded before MKL chose its threads.",
        "Intel's MKL is broken or mixed here ({what})",
        Remediation(
            "Install MKL and NumPy anew from one source; for the threading layer, import numpy first or choose GNU's",
            (
                "export MKL_THREADING_LAYER=GNU",
                "conda install --force-reinstall mkl numpy",
                "pip install --force-reinstall --no-cache-dir numpy",
            ),
        ),
        (
            Signature(
                ("Intel MKL FATAL ERROR", "INTEL MKL ERROR"),
                "Intel MKL FATAL ERROR: Cannot load libmkl_avx2.so.1 or libmkl_def.so.1.",
                "Intel MKL version 2024",
                r"(?P<what>(?:Intel MKL FATAL ERROR|INTEL MKL ERROR): [^\n]{0,80})",
                source="MKL 2018 to 2024",
            ),
            Signature(
                "is incompatible with libgomp",
                "Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp.so.1 library.",
                "compatible with libgomp",
                r"(?P<what>MKL_THREADING_LAYER=\w+ is incompatible with libgomp\S*)",
                source="mkl-service 2.x",
            ),
        ),
        explains=("PKG2", "SES21"),
    ),
)

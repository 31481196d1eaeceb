"""Packages: binary compatibility, missing libraries, modules that are not there."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: import name -> name on PyPI, where they differ. Source: the packages' own pages, 2026-11.
DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "pkg_resources": "'setuptools<81'",
    "distutils": "setuptools",
    "google": "protobuf",
    "Crypto": "pycryptodome",
    "attr": "attrs",
    "dateutil": "python-dateutil",
    "git": "gitpython",
    "dotenv": "python-dotenv",
    "flash_attn": "flash-attn --no-build-isolation",
    "pytorch_lightning": "pytorch-lightning",
    "faiss": "faiss-cpu",
    "torch_geometric": "torch-geometric",
}
#: top-level names that are a project's own folders, hardly ever a package
_OWN = re.compile(
    r"(?:models?|utils?|src|lib|core|data|dataset|dataloaders?|configs?|train|trainer|engine|losses|networks?"
    r"|modules|common|helpers?|tools|scripts|options)(?:\.|$)"
)


def module_missing(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A project's own folder is not on the path; a package may have another name than its import."""
    module = seen.groups["module"]
    top = module.split(".")[0]
    if _OWN.match(module):
        return with_message(
            verdict,
            f"the module {module} is not on Python's path: by its name it is a folder of the project, and the run was "
            "started from another one",
            Remediation(
                "Start in the project's root, or put that on the path",
                ("cd PROJECT && python -m package.train", "export PYTHONPATH=PROJECT"),
            ),
        )
    remedy = Remediation(verdict.remedy.text, (f"python -m pip install {DISTRIBUTIONS.get(top, top)}", _WHICH))
    return with_message(verdict, verdict.message, remedy)


_WHICH = 'python -c "import sys; print(sys.executable)"'


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
        explains=("PKG2",),
    ),
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
                "pip install --force-reinstall --no-build-isolation flash-attn",
                "pip install torch torchvision --upgrade",
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
                r"(?P<symbol>(?!nccl|iJIT|cudnn|cublas|__nv|cu[A-Z])\w+)",
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
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(" (its symbol ? does not exist in the installed one)", "").replace(
                "?", "an extension"
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG231",
        "mkl-too-new-for-torch",
        "The conda MKL is newer than the one that torch was linked against.",
        "MKL 2024.1 dropped iJIT_NotifyEvent, which conda builds of torch up to 2.2 need.",
        "torch needs an older MKL: iJIT_NotifyEvent was dropped in MKL 2024.1",
        Remediation(
            "Install MKL 2024.0 beside this torch, or a newer torch",
            ("conda install 'mkl<2024.1'", "pip install mkl==2024.0"),
        ),
        (
            Signature(
                "undefined symbol: iJIT_",
                "ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cpu.so: undefined symbol: "
                "iJIT_NotifyEvent",
                "undefined symbol: ncclCommSplit",
                r"undefined symbol: iJIT_\w+",
                source="torch 1.13 to 2.2 from conda, MKL 2024.1 and later",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG203",
        "cuda-libraries-mixed",
        "A CUDA library of another version is loaded in place of torch's own.",
        "LD_LIBRARY_PATH or ldconfig leads to a system CUDA, or the nvidia-* wheels do not belong to this torch.",
        "a CUDA library of another version than torch's is loaded ({symbol} is undefined): LD_LIBRARY_PATH or "
        "mixed nvidia-* wheels",
        Remediation(
            "Take other CUDA folders out of LD_LIBRARY_PATH, and reinstall torch with the wheels that it pins",
            ("unset LD_LIBRARY_PATH", "pip install --force-reinstall torch", "pip check; pip list | grep nvidia-"),
        ),
        (
            Signature(
                "undefined symbol: ",
                "ImportError: /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: "
                "ncclCommRegister",
                "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
                r"\.so[\w.]*: undefined symbol: "
                r"(?P<symbol>(?:nccl|cudnn|cublas|cusparse|__nvJitLink|nvJitLink|__nv|cusolver)\w*)",
                source="glibc",
            ),
            Signature(
                "undefined symbol: __nvJitLink",
                "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
                "nvJitLink",
                r"undefined symbol: (?P<symbol>__nvJitLink\w+)",
                source="CUDA 12",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG204",
        "shared-library-missing",
        "A shared library is not there.",
        "The package that holds it is not installed, or the loader does not look there.",
        "the shared library {lib} is missing{why}",
        Remediation("Install the package that holds it", ("ldd FILE | grep 'not found'", "{install}")),
        (
            Signature(
                "cannot open shared object file",
                "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
                "cannot open file",
                r"(?P<lib>lib[\w.+-]+\.so[\w.]*): cannot open shared object file: No such file",
                source="glibc",
            ),
            Signature(
                "libcudnn",
                "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
                "libcudnn found",
                r"(?:Could not load library|Unable to load any of \{) ?(?P<lib>libcudnn[\w.]*)",
                source="cuDNN 8 and 9",
            ),
            Signature(
                "Unable to load any of",
                "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, "
                "libcudnn_ops.so}",
                "load any",
                r"Unable to load any of \{(?P<lib>libcudnn[\w.]*)",
                source="cuDNN 9",
            ),
        ),
        judge=lambda seen, verdict: _library(seen, verdict),
        explains=("PKG2",),
    ),
    Cause(
        "PKG205",
        "glibc-too-old",
        "The system's C or C++ library is older than a wheel needs.",
        "A wheel was built on a newer system; GLIBC cannot be upgraded within a release.",
        "{lib} lacks version {version}: the system is older than what the package was built on",
        Remediation(
            "Use a newer base system or an older build of the package; for GLIBCXX a newer libstdc++ (conda's "
            "comes first on LD_LIBRARY_PATH in many cases)",
            (
                "ldd --version",
                "strings $(gcc -print-file-name=libstdc++.so.6) | grep GLIBCXX",
                "conda install -c conda-forge libstdcxx-ng",
            ),
        ),
        (
            Signature(
                "' not found",
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by "
                "/opt/venv/lib/python3.11/site-packages/x.so)",
                "module 'x' not found",
                r"(?P<lib>\S*lib[\w.+-]+\.so[\w.]*): version "
                r"`(?P<version>(?:GLIBC|GLIBCXX|CXXABI|GOMP|OPENSSL)_[\w.]+)' not found",
                source="glibc",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG206",
        "module-not-installed",
        "A module is not installed in the Python that runs.",
        "Another environment than the one that pip installed into, or a missing dependency.",
        "the module {module} is not installed in the Python that ran",
        Remediation(
            "Install it into that interpreter's environment",
            ("python -m pip install {module}", _WHICH),
        ),
        (
            Signature(
                "No module named '",
                "ModuleNotFoundError: No module named 'einops'",
                "No module named 'triton'",
                r"^[^\n]*ModuleNotFoundError: No module named '(?P<module>(?!triton\b|numpy\._core)[\w.]+)'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "No module named ",
                "/usr/bin/python: No module named torch",
                "No module named 'x'",
                r"python[\d.]*: No module named (?P<module>\w+)",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=module_missing,
    ),
    Cause(
        "PKG207",
        "api-removed-or-missing",
        "An attribute or name is not in the installed version of a package.",
        "The code was written for another version.",
        "{what} is not in the installed version: the code was written for another one",
        Remediation(
            "Compare the versions that the code names with those that are installed",
            ("pip list | grep -i -E 'torch|numpy|transformers'", "pip install -r requirements.txt"),
        ),
        (
            Signature(
                "has no attribute",
                "AttributeError: module 'numpy' has no attribute 'float'",
                "AttributeError: 'Net' object has no attribute 'x'",
                r"AttributeError: (?P<what>module '(?!__)[\w.]+' has no attribute '\w+')",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "cannot import name",
                "ImportError: cannot import name 'container_abcs' from 'torch._six'",
                "cannot import",
                r"ImportError: (?P<what>cannot import name '\w+' from '[\w.]+')",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "partially initialized module",
                "AttributeError: partially initialized module 'torch' has no attribute 'Tensor' (most likely due "
                "to a circular import)",
                "circular",
                r"(?P<what>partially initialized module '\w+' has no attribute '\w+')",
                source="python 3.8 to 3.14: a file of one's own named torch.py",
            ),
        ),
        kind=VAGUE,
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
                "PyTorch (11.8). Please make sure to "
                "use the same CUDA versions.",
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
)

_LIBRARIES = (
    (
        "libcudart",
        ": the CUDA runtime of another CUDA version than the installed torch's, for which a package was built",
        "pip install nvidia-cuda-runtime-cu12",
    ),
    ("libcudnn", ": cuDNN is not installed where the loader looks", "pip install nvidia-cudnn-cu12"),
    ("libcublas", ": cuBLAS is not installed where the loader looks", "pip install nvidia-cublas-cu12"),
    ("libnccl", ": NCCL is not installed where the loader looks", "pip install nvidia-nccl-cu12"),
    (
        "libcuda.so",
        ": the driver is not mounted into the container",
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
    ),
    (
        "libnvidia-ml",
        ": the driver is not mounted into the container",
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
    ),
    ("libGL.so", ": OpenCV's graphics build needs it", "pip install opencv-python-headless"),
    ("libgthread", ": OpenCV's graphics build needs it", "pip install opencv-python-headless"),
    ("libgomp", ": the OpenMP run time is not in this image", "apt-get install -y libgomp1"),
    (
        "libpython",
        ": this Python was built without a shared library, or it is not on the loader's path",
        "apt-get install -y libpython3-dev",
    ),
    ("libsndfile", ": an audio library is not in this image", "apt-get install -y libsndfile1"),
)


def _library(seen: Seen, verdict: Verdict) -> Verdict | None:
    name = seen.groups.get("lib", "")
    for start, why, command in _LIBRARIES:
        if name.startswith(start):
            remedy = Remediation(verdict.remedy.text, (verdict.remedy.commands[0], command))
            return with_message(verdict, verdict.message.replace("?", why), remedy)
    return with_message(
        verdict, verdict.message.replace("?", ""), Remediation(verdict.remedy.text, verdict.remedy.commands[:1])
    )

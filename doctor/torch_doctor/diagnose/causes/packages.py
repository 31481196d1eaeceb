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
#: packages of which a missing submodule means another version, since their top is there or the text named it alone
_KNOWN = {
    "torch", "torchvision", "torchaudio", "torchtext", "transformers", "numpy", "scipy", "diffusers", "huggingface_hub",
    "datasets", "accelerate", "peft", "timm", "pytorch_lightning", "lightning", "triton", "deepspeed", "mmcv", "sklearn",
    "torchmetrics", "xformers", "keras", "tensorflow", "pkg_resources",
}  # fmt: skip
#: submodule -> what became of it. Source: the packages' release notes, 2026-11.
_GONE = {
    "torch._six": "torch 2.0 removed it",
    "torchvision.transforms.functional_tensor": "torchvision 0.17 removed it (basicsr, gfpgan and others import it)",
    "torchvision.models.utils": "torchvision 0.12 removed it",
    "torchtext.legacy": "torchtext 0.12 removed it",
    "pytorch_lightning.metrics": "Lightning 1.5 moved it to torchmetrics",
    "torch.fx.experimental.optimization": "newer torch moved it",
}


def _submodule_gone(module: str, top: str, verdict: Verdict) -> Verdict:
    said = next((f"; {why}" for name, why in _GONE.items() if module.startswith(name)), "")
    return with_message(
        verdict,
        f"the installed {top} has no module {module}{said}: what imports it was written for another version",
        Remediation(
            f"Upgrade the package that imports it (the frame above), or install the {top} that it was written for",
            (f"pip show {top} | head -2", "pip install -U PACKAGE_THAT_IMPORTS_IT", f"pip install '{top}==VERSION'"),
        ),
    )


#: extension -> the package that holds it; those of PyTorch's own releases go together with torch
_HOLDERS = (
    ("flash_attn", "flash-attn"), ("torchvision", "torchvision"), ("torchaudio", "torchaudio"), ("torchtext", "torchtext"),
    ("xformers", "xformers"), ("detectron2", "detectron2"), ("mmcv", "mmcv"), ("apex", "apex"), ("amp_C", "apex"),
    ("fused_layer_norm", "apex"), ("causal_conv1d", "causal-conv1d"), ("selective_scan", "mamba-ssm"),
    ("vllm", "vllm"), ("exllama", "exllamav2"), ("torch_scatter", "torch-scatter"), ("torch_sparse", "torch-sparse"),
    ("torch_cluster", "torch-cluster"), ("pytorch3d", "pytorch3d"), ("bitsandbytes", "bitsandbytes"), ("deepspeed", "deepspeed"),
    ("transformer_engine", "transformer-engine"), ("torchcodec", "torchcodec"), ("torchao", "torchao"), ("natten", "natten"),
)  # fmt: skip
_PYTORCHS = {"torchvision", "torchaudio", "torchtext", "torchcodec"}


def _holder(text: str) -> str:
    """The package on PyPI that a file or frame belongs to; empty where nobody knows it."""
    return next((package for start, package in _HOLDERS if start in text), "")


def extension(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Whose extension it is decides what to install; one built at run time lies in a cache."""
    file = seen.groups.get("file", "")
    package = _holder(file or seen.log.lines[seen.index].text)
    symbol = seen.groups.get("symbol", "")
    versions = verdict.remedy.commands[0]
    if package in _PYTORCHS:
        message = f"the installed {package} was built for another torch" + (
            f" ({symbol} is missing)" if symbol else ""
        )
        remedy = Remediation(
            f"Install the {package} of the same release as torch, in one command",
            (
                "pip list | grep -i -E '^torch'",
                "pip install --force-reinstall --no-cache-dir torch torchvision torchaudio",
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


def abi(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Which module it is, and which of the two is older."""
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
        commands = ("pip install 'numpy<2'", f"pip install -U --force-reinstall --no-cache-dir {package}")
        return with_message(verdict, message, Remediation(verdict.remedy.text, commands))
    return with_message(
        verdict,
        f"{what}was built for a newer NumPy than the one that is installed (size {sizes[2]} against {sizes[3]})",
        Remediation(
            "Upgrade NumPy, or build the module anew against this one",
            ("pip install -U numpy", f"pip install --force-reinstall --no-cache-dir --no-binary {package} {package}"),
        ),
    )


def removed(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The package that lacks the name; a circular import of one's own files is no matter of versions."""
    line = seen.log.lines[seen.index].text
    package = seen.groups.get("package", "").split(".")[0] or "PACKAGE"
    if "circular import" in line:
        return with_message(
            verdict,
            f"{seen.groups['what']}: two modules import each other, and the name was asked for before it existed",
            Remediation(
                "Move the import into the function that needs it, or the shared part into a third module; see that no "
                "file of yours has the name of a package",
                (
                    f'python -c "import {package}; print({package}.__file__)"',
                    "python -X importtime train.py 2>&1 | tail",
                ),
            ),
        )
    return with_message(
        verdict,
        f"{seen.groups['what']}: the installed {package} has no such name, and the code was written for another version",
        Remediation(
            f"Upgrade the package whose frame stands above (it asks for the name), or install the {package} that it was "
            "written for",
            (
                f"pip show {package} | head -2",
                "pip install -U PACKAGE_THAT_ASKS",
                f"pip install '{package}==VERSION'",
            ),
        ),
    )


#: top-level names that are a project's own folders, hardly ever a package
_OWN = re.compile(
    r"(?:models?|utils?|src|lib|core|data|dataset|dataloaders?|configs?|train|trainer|engine|losses|networks?"
    r"|modules|common|helpers?|tools|scripts|options)(?:\.|$)"
)


def module_missing(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A project's own folder is not on the path; a package may have another name than its import."""
    module = seen.groups["module"]
    top = module.split(".")[0]
    if "." in module and top in _KNOWN:
        return _submodule_gone(module, top, verdict)
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


def numpy_name(seen: Seen, verdict: Verdict) -> Verdict | None:
    """1.24 removed the aliases of Python's types, 2.0 those with an underscore."""
    version = "2" if "2.0 release" in seen.log.lines[seen.index].text else "1.24"
    text = verdict.remedy.text
    commands = tuple(c.replace("?", version) for c in verdict.remedy.commands)
    return with_message(verdict, verdict.message.replace("?", version), Remediation(text, commands))


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
                "numpy.ndarray size changed",
                "ValueError: numpy.ndarray size changed, may indicate binary incompatibility. Expected 96 from C header, "
                "got 80 from PyObject",
                "ndarray size",
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
        judge=abi,
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
        "PKG233",
        "numpy-name-removed",
        "A name of NumPy was used that the installed version has no more.",
        "NumPy 1.24 removed np.float, np.int, np.bool and np.object; 2.0 removed np.float_, np.Inf and others; old code and "
        "old packages still use them.",
        "np.{name} was removed in NumPy {version}, and the code or a package above still uses it",
        Remediation(
            "Replace the name, upgrade the package whose file the traceback names, or hold NumPy below that version",
            ("pip install 'numpy<{version}'", "grep -rn 'np\\.{name}\\b' ."),
        ),
        (
            Signature(
                "module 'numpy' has no attribute '",
                "AttributeError: module 'numpy' has no attribute 'float'.",
                "AttributeError: module 'numpy' has no attribute 'mynewthing'",
                r"module 'numpy' has no attribute '(?P<name>float|int|bool|object|complex|str|long|unicode|typeDict)'",
                source="NumPy 1.24 to 2.4",
            ),
            Signature(
                "was removed in the NumPy 2.0 release",
                "AttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.",
                "removed in the release",
                r"`np\.(?P<name>\w+)` was removed in the NumPy 2\.0 release",
                source="NumPy 2.0 to 2.4",
            ),
        ),
        judge=numpy_name,
        explains=("PKG207",),
    ),
    Cause(
        "PKG234",
        "package-shadowed-by-own-file",
        "A file of one's own has the name of a package and is imported in its place.",
        "The folder of the script stands first on the path: torch.py, random.py, tokenize.py or a folder datasets/ beside "
        "the script hides the package.",
        "a file or folder of your own named like the package {name} is imported in its place[[: {file}]]",
        Remediation(
            "Rename it, and delete its compiled copy",
            (
                'python -c "import {name}; print({name}.__file__)"',
                "mv {name}.py my_{name}.py; rm -rf __pycache__",
            ),
        ),
        (
            Signature(
                "it has the same name as the ",
                "AttributeError: module 'random' has no attribute 'shuffle' (consider renaming '/app/random.py' since it has "
                "the same name as the standard library module named 'random' and prevents importing that standard library "
                "module)",
                "it has the same name as the file",
                r"consider renaming '(?P<file>[^']+)' (?:since|if) it has the same name as the (?:standard library|third-party|library)"
                r"[^\n]*?module named '(?P<name>\w+)'",
                source="python 3.13 and 3.14",
            ),
            Signature(
                "partially initialized module '",
                '  File "/app/torch.py", line 3, in <module>\n    x = torch.zeros(3)\nAttributeError: partially initialized '
                "module 'torch' has no attribute 'zeros' (most likely due to a circular import)",
                "  File \"/app/model.py\", line 3, in <module>\nAttributeError: partially initialized module 'torch' has no "
                "attribute 'zeros' (most likely due to a circular import)",
                r'File "(?P<file>(?![^"\n]*(?:site|dist)-packages)[^"\n]*?(?P<name>\w+)\.py)", line[^\n]*\n(?:.*\n){0,12}?'
                r"\w*Error: (?:cannot import name '\w+' from )?partially initialized module '(?P=name)'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "is not a package",
                "ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package",
                "ModuleNotFoundError: No module named 'torch.nn'",
                r"No module named '[\w.]+'; '(?P<name>\w+)' is not a package",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("PKG20",),
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
                "AttributeError: module 'torch' has no attribute 'compile'",
                "AttributeError: 'Net' object has no attribute 'x'",
                r"AttributeError: (?P<what>module '(?P<package>(?!__)[\w.]+)' has no attribute '\w+')",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "cannot import name",
                "ImportError: cannot import name 'container_abcs' from 'torch._six'",
                "cannot import",
                r"ImportError: (?P<what>cannot import name '\w+' from (?:partially initialized module )?'(?P<package>[\w.]+)')",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "partially initialized module",
                "AttributeError: partially initialized module 'torch' has no attribute 'Tensor' (most likely due "
                "to a circular import)",
                "circular",
                r"(?P<what>partially initialized module '(?P<package>[\w.]+)' has no attribute '\w+')",
                source="python 3.8 to 3.14: a file of one's own named torch.py",
            ),
        ),
        judge=removed,
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

#: libraries whose names carry the version of CUDA
_OF_CUDA = ("libcudart", "libcublas", "libcufft", "libcusparse", "libcusolver", "libcurand", "libnvrtc", "libcupti")
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
    frame = seen.near(r"site-packages/(\w+)[/.]", 12, 0)
    package = _holder(frame[1]) if frame else ""
    if package and name.startswith(_OF_CUDA):
        return with_message(
            verdict,
            f"{package} was built for another CUDA than the installed torch: {name} is missing, which the CUDA version of "
            "that build brings",
            Remediation(
                f"Install the {package} that belongs to this torch",
                (
                    'python -c "import torch; print(torch.__version__, torch.version.cuda)"',
                    "pip install --force-reinstall --no-cache-dir torch torchvision torchaudio"
                    if package in _PYTORCHS
                    else f"pip install --force-reinstall --no-cache-dir --no-build-isolation {package}",
                ),
            ),
        )
    for start, why, command in _LIBRARIES:
        if name.startswith(start):
            remedy = Remediation(verdict.remedy.text, (verdict.remedy.commands[0], command))
            return with_message(verdict, verdict.message.replace("?", why), remedy)
    return with_message(
        verdict, verdict.message.replace("?", ""), Remediation(verdict.remedy.text, verdict.remedy.commands[:1])
    )

"""Imports: modules and names that are not there, or hidden by a file of one's own."""

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


#: compiled module -> the package that builds it, where it is built with CUDA
_COMPILED = {
    "fused_layer_norm_cuda": "apex", "amp_C": "apex", "fused_weight_gradient_mlp_cuda": "apex", "xentropy_cuda": "apex",
    "flash_attn_2_cuda": "flash-attn", "flash_attn_cuda": "flash-attn", "selective_scan_cuda": "mamba-ssm",
    "causal_conv1d_cuda": "causal-conv1d", "MultiScaleDeformableAttention": "MultiScaleDeformableAttention",
    "exllamav2_ext": "exllamav2", "rotary_emb": "rotary-emb", "dropout_layer_norm": "flash-attn", "_raymarching": "raymarching",
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


#: attribute of torch -> the release that brought it. Source: torch's release notes, 2026-11.
_SINCE = {
    "compile": "2.0", "compiler": "2.1", "inference_mode": "1.9", "float8_e4m3fn": "2.1", "float8_e5m2": "2.1",
    "float8_e8m0fnu": "2.7", "float4_e2m1fn_x2": "2.8", "uint16": "2.3", "uint32": "2.3", "int1": "2.6",
    "get_default_device": "2.3", "set_default_device": "2.0", "accelerator": "2.6", "vmap": "2.0", "func": "2.0",
    "_dynamo": "2.0", "xpu": "2.4", "mtia": "2.4", "library": "1.11", "autocast": "1.10", "nested": "1.13",
    "register_fake": "2.4", "custom_op": "2.4", "scaled_dot_product_attention": "2.0", "register_pytree_node": "2.2",
    "DeviceMesh": "2.2", "init_device_mesh": "2.2", "OutOfMemoryError": "1.13", "sym_int": "2.0",
}  # fmt: skip


def removed(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The package that lacks the name; a circular import of one's own files is no matter of versions."""
    what = seen.groups["what"]
    package = seen.groups.get("package", "").split(".")[0] or "PACKAGE"
    if "circular import" in seen.log.lines[seen.index].text:
        return _circular(verdict, what, package)
    frames = seen.near(r"(?:.*\n)*.*(?:site|dist)-packages/(\w+)[/.]", 12, 0)
    asks = frames[1] if frames and frames[1] != package else "PACKAGE_THAT_ASKS"
    name = re.search(r"'(\w+)'$", what)
    if name and package == "torch" and name[1] in _SINCE:
        return _torch_too_old(verdict, what, _SINCE[name[1]], asks)
    return with_message(
        verdict,
        f"{what}: the installed {package} has no such name, and the code was written for another version",
        Remediation(
            f"Upgrade the package whose frame stands above (it asks for the name), or install the {package} that it was written for",
            (f"pip show {package} | head -2", f"pip install -U {asks}", f"pip install '{package}==VERSION'"),
        ),
    )


def _circular(verdict: Verdict, what: str, package: str) -> Verdict:
    return with_message(
        verdict,
        f"{what}: two modules import each other, and the name was asked for before it existed",
        Remediation(
            "Move the import into the function that needs it, or the shared part into a third module; see that no file of yours "
            "has the name of a package",
            (
                f'python -c "import {package}; print({package}.__file__)"',
                "python -X importtime train.py 2>&1 | tail",
            ),
        ),
    )


def _torch_too_old(verdict: Verdict, what: str, since: str, asks: str) -> Verdict:
    who = "the package that asks for it" if asks == "PACKAGE_THAT_ASKS" else asks
    return with_message(
        verdict,
        f"{what}: torch has it from {since} on, and the installed one is older than {who} needs",
        Remediation(
            f"Upgrade torch with torchvision and torchaudio, or hold {who} at a version for this torch",
            (
                f"pip install -U 'torch>={since}' torchvision torchaudio",
                "pip list | grep -i -E '^torch|transformers|diffusers|accelerate'",
                f"pip install '{asks}<VERSION'",
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
    if found := _not_seen_there(seen, verdict, module) or _not_compiled(verdict, module, top):
        return found
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


def _not_seen_there(seen: Seen, verdict: Verdict, module: str) -> Verdict | None:
    """A build of pip and a spawned child look in other places than the run."""
    top = module.split(".")[0]
    if seen.near(_BUILD, 20, 12):
        return with_message(
            verdict,
            f"the build of a package needs {module} and does not see the installed one: pip builds in an environment of its own",
            Remediation(
                f"Install {top} first, and build without isolation",
                (
                    f"pip install {DISTRIBUTIONS.get(top, top)} ninja packaging wheel",
                    "pip install --no-build-isolation PACKAGE",
                ),
            ),
        )
    if seen.near(r"multiprocessing/(?:spawn|forkserver)\.py", 8, 0):
        return with_message(
            verdict,
            f"the child that spawn or forkserver started cannot import {module}: the parent found it through sys.path as "
            "changed at run time, or the working directory",
            Remediation(
                "Put its folder on PYTHONPATH before Python starts, or install it; the child takes over no changes of sys.path",
                ("export PYTHONPATH=PROJECT:$PYTHONPATH", "python -m pip install -e ."),
            ),
        )
    return None


def _not_compiled(verdict: Verdict, module: str, top: str) -> Verdict | None:
    """The compiled part of a package that is there."""
    if module == "torch._C":
        return with_message(
            verdict,
            "a torch folder without its compiled part is imported: torch's source tree as working directory, or an install that was cut",
            Remediation(
                "Start from another folder, and reinstall torch if that does not help",
                (
                    "cd / && python -c 'import torch; print(torch.__file__)'",
                    "pip install --force-reinstall --no-cache-dir torch==VERSION  # that of pip show torch",
                ),
            ),
        )
    holder = _COMPILED.get(top) or (top if re.search(r"\.(?:_ext|_C|\w+_cuda)$", module) else "")
    if not holder:
        return None
    return with_message(
        verdict,
        f"the compiled part {module} of {holder} is missing: {holder} was installed without its CUDA extensions",
        Remediation(
            f"Install a full build of {holder} that belongs to this torch",
            (
                f"pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation {holder}",
                'python -c "import torch; print(torch.__version__, torch.version.cuda)"; nvcc --version',
            ),
        ),
    )


#: what pip prints around a build that failed
_BUILD = r"to build wheel did not run|subprocess-exited-with-error|Preparing metadata|\[end of output\]"


def numpy_name(seen: Seen, verdict: Verdict) -> Verdict | None:
    """1.24 removed the aliases of Python's types, 2.0 those with an underscore."""
    version = "2" if "2.0 release" in seen.log.lines[seen.index].text else "1.24"
    text = verdict.remedy.text
    commands = tuple(c.replace("?", version) for c in verdict.remedy.commands)
    return with_message(verdict, verdict.message.replace("?", version), Remediation(text, commands))


_WHICH = 'python -c "import sys; print(sys.executable)"'


register(
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
                "has no attribute '",
                "AttributeError: module 'torch' has no attribute 'nn'",
                "AttributeError: module 'torch' has no attribute 'compile'",
                r"(?<!initialized )module '(?P<name>torch|numpy|torchvision)' has no attribute '(?:nn|Tensor|tensor|zeros|device|__version__|float32"
                r"|no_grad|load|save|array|ndarray|transforms|models)'",
                source="python 3.8 to 3.14: a folder torch/ beside the script, or an install that was cut",
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
        "PKG254",
        "relative-import-in-script",
        "A file that uses relative imports was run as a script.",
        "python folder/file.py runs it as __main__, outside of its package.",
        "a file with relative imports was run as a script, outside of its package",
        Remediation(
            "Run it as a module from the folder above the package",
            ("cd PROJECT && python -m package.train", "torchrun --nproc-per-node=8 -m package.train"),
        ),
        (
            Signature(
                "attempted relative import",
                "ImportError: attempted relative import with no known parent package",
                "a relative import",
                r"attempted relative import (?:with no known parent package|beyond top-level package)",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
)

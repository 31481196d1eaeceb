"""Copies that hide each other, and what has changed under a run: duplicates, leftovers, files that stand in front."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from torch_doctor.checks.packages import pip
from torch_doctor.facts.packages import PackagesFacts
from torch_doctor.model import Finding, Remediation, Severity, counted
from torch_doctor.registry import check

#: what decides the run; other packages may be changed at will
_DECIDING = re.compile(r"torch(vision|audio)?|triton|cuda-.*|nvidia-(?!ml-py).*")


@check("PKG007", "cuda-libraries-hidden", tags={"torch", "gpu"})
def cuda_libraries_hidden(packages: PackagesFacts) -> Iterator[Finding]:
    """LD_LIBRARY_PATH puts other CUDA libraries before those that torch came with.

    What it checks:
        Libraries in the folders of LD_LIBRARY_PATH that have the name of one in torch/lib or the nvidia wheels,
        and are another file.
    Why it matters:
        Libraries that the wheels load on demand come from that folder: undefined symbols (__nvJitLinkComplete),
        "Could not load library libcudnn", or a slower version.
    Example:
        export LD_LIBRARY_PATH=/usr/local/cuda/lib64
    Fix:
        Leave LD_LIBRARY_PATH out; the wheels find their libraries without it.
    References:
        https://man7.org/linux/man-pages/man8/ld.so.8.html
    """
    if not packages.libraries:
        return
    folders = sorted({_parent(item.path) for item in packages.libraries})
    names = sorted({item.name for item in packages.libraries})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    yield Finding(
        Severity.WARNING,
        f"LD_LIBRARY_PATH hides libraries of torch: {shown} in {', '.join(folders)}",
        Remediation("Take the folder out of it for training", ("unset LD_LIBRARY_PATH",)),
        evidence={"libraries": [item.path for item in packages.libraries], "folders": folders},
    )


@check("PKG008", "torch-installed-twice", tags={"torch"})
def torch_installed_twice(packages: PackagesFacts) -> Iterator[Finding]:
    """There are two copies of torch, or of a package that belongs to it, on the import path.

    What it checks:
        torch, torchvision, torchaudio and triton: metadata in more than one folder of sys.path, or of two versions
        in one folder.
    Why it matters:
        Which one runs depends on the order of sys.path; pip changes the one, the run takes the other. ~/.local and
        PYTHONPATH come before the system's packages.
    Example:
        pip install --user torch        # in an image that has one
    Fix:
        Remove the copy that is not meant, or run with python -s (no ~/.local).
    References:
        https://docs.python.org/3/library/site.html
    """
    for name in ("torch", "torchvision", "torchaudio", "triton"):
        copies = packages.all(name)
        if len({item.folder for item in copies}) < 2:
            continue
        first = copies[0]
        user = packages.user_site and first.folder.startswith(packages.user_site)
        yield Finding(
            Severity.WARNING,
            f"{name} is installed {len(copies)} times; {first.version} in {_parent(first.folder)} is what runs, "
            f"before {', '.join(f'{item.version} in {_parent(item.folder)}' for item in copies[1:])}",
            Remediation(
                "Remove the copy that is not meant",
                (pip(packages, f"uninstall -y {name}"), *(("export PYTHONNOUSERSITE=1",) if user else ())),
            ),
            evidence={"copies": [{"version": item.version, "folder": item.folder} for item in copies]},
        )


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]


@check("PKG009", "install-interrupted")
def install_interrupted(packages: PackagesFacts) -> Iterator[Finding]:
    """pip left folders behind when an install or removal did not end.

    What it checks:
        Entries of the site folders whose name starts with ~.
    Why it matters:
        What they belonged to may be half replaced; pip warns "Ignoring invalid distribution" from then on, and a
        torch kept so takes gigabytes.
    Example:
        Ctrl-C, or a full disk, during pip install --upgrade torch
    Fix:
        Remove the folders, and install the package again.
    References:
        https://pip.pypa.io/en/stable/
    """
    if not packages.leftovers:
        return
    paths = " ".join(shlex.quote(path) for path in packages.leftovers)
    yield Finding(
        Severity.WARNING,
        f"{counted(len(packages.leftovers), 'folder')} of an interrupted install: {', '.join(packages.leftovers)}",
        Remediation("Remove them, then install the package again", (f"rm -rf -- {paths}",)),
        evidence={"folders": list(packages.leftovers)},
    )


@check("PKG010", "differs-from-image", tags={"container"})
def differs_from_image(packages: PackagesFacts) -> Iterator[Finding]:
    """Packages are not those that the image was built and tested with.

    What it checks:
        The image's manifest against what the interpreter finds: torch, triton and the CUDA libraries (a warning);
        others that the image came with (a note). Packages added to it are no fault.
    Why it matters:
        A later pip install, a mounted ~/.local or PYTHONPATH has replaced what was tested together.
    Example:
        pip install --user torch==2.9.1         # in an image with another one
    Fix:
        Take the replacement away, or build an image with the version that is meant.
    References:
        https://pip.pypa.io/en/stable/user_guide/#constraints-files
    """
    manifest = packages.manifest
    if manifest is None:
        return
    groups: dict[Severity, list[str]] = {}
    for name, version in manifest.packages.items():
        item = packages.find(name)
        if item is None or item.version != version:
            severity = Severity.WARNING if _DECIDING.fullmatch(name) else Severity.NOTE
            now = item.version if item else "not installed"
            groups.setdefault(severity, []).append(f"{name} {now} (built with {version})")
    for severity, changes in groups.items():
        yield Finding(
            severity,
            f"changed since the image was built: {', '.join(changes)}",
            Remediation(
                "Start a container without the packages that were added, or build the image with these versions",
                ("docker run -e PYTHONNOUSERSITE=1 -e PYTHONPATH= ...",),
            ),
            evidence={"changes": changes, "manifest": manifest.path, "python": packages.python},
        )


@check("PKG012", "module-hidden-by-file", tags={"torch"})
def module_hidden_by_file(packages: PackagesFacts) -> Iterator[Finding]:
    """A file beside the script has the name of a module that torch needs, and is imported instead.

    What it checks:
        The script's folder (or the working folder) for torch.py, numpy.py, random.py, typing.py, queue.py and
        others that torch's import or a loader's start reaches, as a file or as a package.
    Why it matters:
        "partially initialized module 'torch' has no attribute", "cannot import name", far from the cause.
    Example:
        A first experiment saved as torch.py
    Fix:
        Rename the file, and remove its .pyc; or start Python with -P (from 3.11 on).
    References:
        https://docs.python.org/3/library/sys.html#sys.path
    """
    for shadow in packages.shadows:
        kept = shadow.path.removesuffix("/__init__.py")
        yield Finding(
            Severity.ERROR if packages.script else Severity.WARNING,
            f"{shadow.path} hides the module {shadow.name} from a script in that folder",
            Remediation("Rename it", (f"mv {shlex.quote(kept)} {shlex.quote(_renamed(kept))}",)),
            evidence={"module": shadow.name, "path": shadow.path},
        )


def _renamed(path: str) -> str:
    return path.removesuffix(".py") + "_.py" if path.endswith(".py") else path + "_"

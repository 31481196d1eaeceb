"""Installed packages: builds and versions that do not fit together."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from torch_doctor.facts.packages import Distribution, PackagesFacts, release, satisfies
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import Finding, Remediation, Severity
from torch_doctor.registry import check

#: wheels of CUDA 12 and 13 that put the same files into one folder: what was installed last has overwritten the other
SHARED_FOLDERS = {
    "nvidia-cudnn": "nvidia/cudnn",
    "nvidia-nccl": "nvidia/nccl",
    "nvidia-nvshmem": "nvidia/nvshmem",
    "nvidia-cusparselt": "nvidia/cusparselt",
}

#: the first torch whose wheels work with NumPy 2: https://github.com/pytorch/pytorch/issues/107302
NUMPY_2_FROM = (2, 3)

_SUFFIX = re.compile(r"(nvidia-.+)-cu(\d\d)")


def pip(packages: PackagesFacts, arguments: str) -> str:
    """A pip command for the interpreter that was looked at."""
    return f"{shlex.quote(packages.python)} -m pip {arguments}"


def _cuda_major(packages: PackagesFacts) -> int | None:
    return int(packages.torch_cuda.split(".")[0]) if packages.torch_cuda else None


def _wheel_major(item: Distribution) -> tuple[str, int] | None:
    """(name without its suffix, CUDA major) of an NVIDIA wheel; None for what belongs to no CUDA version."""
    match = _SUFFIX.fullmatch(item.name)
    if match:
        return match[1], int(match[2])
    # from CUDA 13 on the runtime's own wheels have no suffix, and CUDA's version
    if item.name == "nvidia-cuda-runtime" and release(item.version):
        return item.name, release(item.version)[0]
    return None


@check("PKG003", "cpu-build-on-gpu-machine", tags={"torch", "gpu"})
def cpu_build_on_gpu_machine(packages: PackagesFacts) -> Iterator[Finding]:
    """The installed torch has no GPU support, and there is a GPU.

    What it checks:
        torch/version.py (cuda, hip) against the device files of NVIDIA and AMD GPUs.
    Why it matters:
        torch.cuda.is_available() is False, and a script that falls back to the CPU runs a hundred times slower.
    Example:
        An index for CPU builds in pip.conf; a lock file that was made on a laptop.
    Fix:
        Remove torch and install the CUDA build of the same version.
    References:
        https://pytorch.org/get-started/locally/
    """
    torch = packages.find("torch")
    if torch is None or not packages.torch_file or packages.torch_cuda or packages.torch_hip:
        return
    if not packages.gpu_devices:
        return
    plain = torch.version.partition("+")[0]
    yield Finding(
        Severity.ERROR,
        f"torch {torch.version} has no GPU support, and this machine has an {_brand(packages)} GPU",
        Remediation(
            "Install the build with CUDA (pytorch.org, Get Started, names the index for each)",
            (pip(packages, "uninstall -y torch"), pip(packages, f"install torch=={plain}")),
        ),
        evidence={"torch": torch.version, "devices": sorted(packages.gpu_devices), "python": packages.python},
    )


def _brand(packages: PackagesFacts) -> str:
    return "NVIDIA" if "nvidia" in packages.gpu_devices else "AMD"


@check("PKG004", "cuda-wheels-mixed", tags={"torch", "gpu"})
def cuda_wheels_mixed(packages: PackagesFacts) -> Iterator[Finding]:
    """NVIDIA libraries for two versions of CUDA are installed beside each other.

    What it checks:
        The CUDA version of each nvidia-* wheel (-cu12, -cu13, or none from CUDA 13 on) against that of torch. Where
        both wheels write into one folder, such as nvidia/cudnn, it is an error: one has overwritten the other.
    Why it matters:
        The loader takes what it finds first: undefined symbols at import, or a cuDNN of the wrong CUDA that fails
        in the first convolution.
    Example:
        pip install nvidia-cudnn-cu12       # beside a torch for CUDA 13
    Fix:
        Remove the wheels of the other version, and install torch again.
    References:
        https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#pip-wheels-installation-linux
    """
    wheels = [(item, found) for item in packages.distributions if (found := _wheel_major(item))]
    majors = {major for _, (_, major) in wheels}
    own = _cuda_major(packages)
    if own is None or not majors - {own}:
        return
    strangers = [item.name for item, (_, major) in wheels if major != own]
    kept = {name for _, (name, major) in wheels if major == own}
    clash = sorted({name for _, (name, major) in wheels if major != own and name in kept and name in SHARED_FOLDERS})
    torch = packages.find("torch")
    message = f"torch is built for CUDA {packages.torch_cuda}, and {', '.join(strangers)} belong to another version"
    if clash:
        message += f"; both write into {', '.join(SHARED_FOLDERS[name] for name in clash)}"
    again = f"torch=={torch.version}" if torch else "torch"
    yield Finding(
        Severity.ERROR if clash else Severity.WARNING,
        message.replace("belong to", "belongs to") if len(strangers) == 1 else message,
        Remediation(
            "Remove the wheels of the other version, then install torch's own again",
            (
                pip(packages, f"uninstall -y {' '.join(strangers)}"),
                pip(packages, f"install --force-reinstall {again}"),
            ),
        ),
        evidence={"torch_cuda": packages.torch_cuda, "wheels": strangers, "shared_folders": clash},
    )


@check("PKG005", "numpy-abi-mismatch", tags={"torch"})
def numpy_abi_mismatch(torch: TorchFacts, packages: PackagesFacts) -> Iterator[Finding]:
    """torch cannot exchange arrays with the installed NumPy.

    What it checks:
        torch.from_numpy(array).numpy() in the child process that imports torch; NumPy 2 with a torch before 2.3.
    Why it matters:
        "Numpy is not available" or "A module that was compiled using NumPy 1.x cannot be run in NumPy 2": every
        data set that gives arrays fails.
    Example:
        pip install 'torch<2.3' numpy
    Fix:
        pip install 'numpy<2', or a newer torch.
    References:
        https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
    """
    numpy = packages.find("numpy")
    if not torch.numpy_error and not (numpy and release(numpy.version) >= (2,) and torch.release < NUMPY_2_FROM):
        return
    version = torch.numpy or (numpy.version if numpy else "")
    why = f": {torch.numpy_error}" if torch.numpy_error else ""
    old = torch.release < NUMPY_2_FROM and release(version) >= (2,)
    command = "install 'numpy<2'" if old else "install --force-reinstall numpy"
    yield Finding(
        Severity.ERROR,
        f"torch {torch.version} cannot use NumPy {version}{why}",
        Remediation(
            f"Install NumPy 1, or torch {'.'.join(map(str, NUMPY_2_FROM))} or later"
            if old
            else "Install NumPy again",
            (pip(packages, command),),
        ),
        evidence={"torch": torch.version, "numpy": version, "error": torch.numpy_error},
    )


@check("PKG006", "companion-versions-differ", tags={"torch"})
def companion_versions_differ(packages: PackagesFacts) -> Iterator[Finding]:
    """torchvision or torchaudio was built for another torch than the installed one.

    What it checks:
        The == requirement of torchvision and torchaudio on torch, and that all are builds for the same CUDA
        (+cpu, +cu128), where their versions say so.
    Why it matters:
        "operator torchvision::nms does not exist", undefined symbols, or wrong results.
    Example:
        pip install --upgrade torch         # torchvision stays
    Fix:
        Install them together.
    References:
        https://github.com/pytorch/vision#installation
    """
    torch = packages.find("torch")
    if torch is None:
        return
    for name in ("torchvision", "torchaudio"):
        item = packages.find(name)
        if item is None:
            continue
        pin = dict(packages.pins(name)).get("torch")
        tags = [version.partition("+")[2] for version in (torch.version, item.version)]
        if pin is not None and not satisfies(torch.version, pin):
            why = f"is built for torch {pin}; torch {torch.version} is installed"
        elif all(tags) and tags[0] != tags[1]:
            why = f"is a build for {tags[1]}; torch {torch.version} is one for {tags[0]}"
        else:
            continue
        yield Finding(
            Severity.ERROR,
            f"{name} {item.version} {why}",
            Remediation(
                "Install the two together",
                (pip(packages, f"install --force-reinstall torch=={torch.version} {name}"),),
            ),
            evidence={"torch": torch.version, name: item.version, "built_for": pin},
        )


@check("PKG011", "pinned-versions-differ", tags={"torch"})
def pinned_versions_differ(packages: PackagesFacts) -> Iterator[Finding]:
    """A library that torch pins is installed in another version.

    What it checks:
        The == requirements of torch, and of cuda-toolkit where torch needs it, against what is installed.
    Why it matters:
        torch's wheels are built and tested with exactly these. A newer NCCL or cuDNN may work; an older one ends
        in undefined symbols or "version mismatch, this is not supported".
    Example:
        pip install --no-deps nvidia-cudnn-cu12==8.9.7.29
    Fix:
        Install torch again, with its dependencies.
    References:
        https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    torch = packages.find("torch")
    if torch is None:
        return
    wrong = []
    for name, pin in packages.pins_of_torch().items():
        item = packages.find(name)
        # one that is not there may be meant for another platform: the import tells
        if item is not None and not satisfies(item.version, pin):
            wrong.append((name, item.version, pin))
    if not wrong:
        return
    names = " ".join(shlex.quote(f"{name}=={pin}") for name, _, pin in wrong)
    yield Finding(
        Severity.WARNING,
        f"torch {torch.version} pins {', '.join(f'{n} {pin}, installed is {v}' for n, v, pin in wrong)}",
        Remediation("Install the versions that it pins", (pip(packages, f"install {names}"),)),
        evidence={"pins": {name: {"pinned": pin, "installed": version} for name, version, pin in wrong}},
    )

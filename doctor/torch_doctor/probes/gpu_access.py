"""Looks for NVIDIA's device nodes, libraries and variables, without calling into the driver."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import container
from torch_doctor.probes.once import once

NO_GPU = "no NVIDIA GPU, driver or library here"

_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_LIBRARY_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_KERNEL_VERSION = re.compile(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s")
_TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(?:None|'([\d.]+)')", re.MULTILINE)


@once
def probe(request: Request) -> GpuAccessFacts | ProbeFailure:
    """What is here of NVIDIA's; ProbeFailure(UNAVAILABLE) where nothing is and nobody asked for a GPU."""
    facts = look(request, os.environ, Path("/"))
    if facts.host_has_gpu or facts.nvml_library or facts.asked:
        return facts
    built = {"": "a torch without CUDA", None: "an unknown torch"}.get(facts.torch_cuda, "a torch with CUDA")
    return ProbeFailure(NO_GPU, evidence={"torch": built, "container": facts.container})


def look(request: Request, environment: Mapping[str, str], root: Path) -> GpuAccessFacts:
    """The same for another environment and root folder."""
    dev = root / "dev"
    requirements = request.requirements
    return GpuAccessFacts(
        device_nodes=gpu_nodes(dev),
        control_node=(dev / "nvidiactl").exists(),
        uvm_node=(dev / "nvidia-uvm").exists(),
        wsl=(dev / "dxg").exists(),
        kernel_driver=kernel_driver(root / "proc"),
        pci_gpus=pci_gpus(root / "sys/bus/pci/devices"),
        nvml_library=next(libraries("libnvidia-ml.so.1", environment, root), None),
        cuda_library=next(libraries("libcuda.so.1", environment, root), None),
        container=container.is_container(environment, root),
        kubernetes="KUBERNETES_SERVICE_HOST" in environment,
        visible_devices=environment.get("NVIDIA_VISIBLE_DEVICES"),
        cuda_visible_devices=environment.get("CUDA_VISIBLE_DEVICES"),
        driver_capabilities=environment.get("NVIDIA_DRIVER_CAPABILITIES"),
        torch_cuda=torch_cuda(request.python),
        asked=asked(requirements, environment),
        wanted=requirements.gpus,
        wanted_memory_bytes=requirements.gpu_memory_bytes,
        wanted_capability=requirements.min_compute_capability,
        capability_stated="compute-capability" in requirements.stated,
        wanted_by=requirements.gpus_asked or requirements.script,
    )


def asked(requirements: Requirements, environment: Mapping[str, str]) -> str:
    """Who asked for a GPU.

    Images set NVIDIA_VISIBLE_DEVICES for themselves: "all", or "void" in the one without CUDA. Ours say what they
    set in TORCH_DOCTOR_VISIBLE_DEVICES; another value is the user's. In other images "all" is nobody's wish.
    """
    stated, value = requirements.gpus_asked, environment.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if stated and not stated.startswith("NVIDIA_VISIBLE_DEVICES"):
        return stated
    if requirements.gpus == 0:
        return ""
    if requirements.gpus:
        return f"--need gpus={requirements.gpus}"
    if requirements.gpu_memory_bytes:
        return "--need gpu-memory"
    if value in ("", "none", "void", environment.get("TORCH_DOCTOR_VISIBLE_DEVICES", "all")):
        return ""
    return f"NVIDIA_VISIBLE_DEVICES={value}"


def gpu_nodes(dev: Path) -> tuple[str, ...]:
    """/dev/nvidia0, /dev/nvidia1, ... by number."""
    numbers = sorted(int(p.name[6:]) for p in dev.glob("nvidia[0-9]*") if p.name[6:].isdigit())
    return tuple(f"/dev/nvidia{n}" for n in numbers)


def kernel_driver(proc: Path) -> str | None:
    """Version of the loaded kernel module, from /proc/driver/nvidia/version or sysfs' own file."""
    try:
        match = _KERNEL_VERSION.search((proc / "driver/nvidia/version").read_text())
    except OSError:
        return None
    return match[1] if match else ""


def pci_gpus(devices: Path) -> tuple[str, ...]:
    """PCI addresses of NVIDIA's display and 3D controllers."""
    try:
        entries = sorted(devices.iterdir())
    except OSError:
        return ()
    return tuple(p.name for p in entries if _word(p / "vendor") == _NVIDIA and _is_display(p))


def _is_display(entry: Path) -> bool:
    # a GPU that vfio-pci holds belongs to a virtual machine
    return _word(entry / "class").startswith(_DISPLAY_CLASS) and (entry / "driver").resolve().name != "vfio-pci"


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def libraries(name: str, environment: Mapping[str, str], root: Path = Path("/")) -> Iterator[str]:
    """Paths under which the loader would look for ``name`` and find it, first match first.

    Source of the order: ld.so(8): LD_LIBRARY_PATH, /etc/ld.so.cache, the default folders.
    """
    seen: set[Path] = set()
    for path in _candidates(name, environment, root):
        real = path.resolve()
        if real not in seen and path.is_file():
            seen.add(real)
            yield str(path)


def _candidates(name: str, environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    for folder in environment.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if folder:
            yield Path(folder) / name
    yield from _cached(name, root)
    for pattern in ("lib", "usr/lib"):
        yield from sorted(root.glob(f"{pattern}/*-linux-gnu/{name}"))
    yield from (root / folder.lstrip("/") / name for folder in _LIBRARY_FOLDERS)


def _cached(name: str, root: Path) -> Iterator[Path]:
    # the cache holds its paths as NUL-terminated strings: reading them needs no subprocess
    try:
        data = (root / "etc/ld.so.cache").read_bytes()
    except OSError:
        return
    for found in re.findall(rb"[^\0]*/" + re.escape(name.encode()) + rb"(?=\0)", data):
        yield root / os.fsdecode(found).lstrip("/")


def torch_cuda(python: str) -> str | None:
    """CUDA version of the torch that ``python`` has, from torch/version.py; it is not imported.

    Returns:
        ``12.8``; an empty string for a build without CUDA; None where no torch is found.
    """
    for folder in _package_folders(python):
        try:
            match = _TORCH_CUDA.search((folder / "torch/version.py").read_text())
        except OSError:
            continue
        return (match[1] or "") if match else None
    return None


def _package_folders(python: str) -> Iterator[Path]:
    program = Path(shutil.which(python) or python)
    if program.parent == Path(sys.executable).parent:
        yield from (Path(entry) for entry in sys.path if entry)
        return
    for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages"):
        yield from sorted(program.parent.parent.glob(pattern))


PROBES = {GpuAccessFacts: probe}

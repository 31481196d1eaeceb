"""What of NVIDIA's is here: read from a root folder made for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.facts.gpu_access import GpuAccessFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import gpu_access

VERSION = """NVRM version: NVIDIA UNIX {flavour}Kernel Module for x86_64  {version}  Release Build  (dvs-builder)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty machine."""
    for folder in ("dev", "proc/driver/nvidia", "sys/bus/pci/devices", "etc", "usr/lib/x86_64-linux-gnu"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def look(root: Path, requirements: Requirements | None = None, **environment: str) -> GpuAccessFacts:
    return gpu_access.look(Request(requirements=requirements or Requirements()), environment, root)


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_an_empty_machine(root: Path) -> None:
    facts = look(root)
    assert not facts.host_has_gpu and not facts.container
    assert (facts.nvml_library, facts.kernel_driver, facts.asked) == (None, None, "")


def test_nodes_are_counted_by_number(root: Path) -> None:
    names = ["nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset"]
    touch(*(root / "dev" / n for n in names))
    facts = look(root)
    assert facts.device_nodes == ("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia10")
    assert facts.control_node and facts.uvm_node and facts.has_device


@pytest.mark.parametrize(("flavour", "version"), [("", "535.183.01"), ("Open ", "580.65.06"), ("", "390.157")])
def test_the_kernel_driver(root: Path, flavour: str, version: str) -> None:
    (root / "proc/driver/nvidia/version").write_text(VERSION.format(flavour=flavour, version=version))
    assert look(root).kernel_driver == version


def pci(root: Path, address: str, vendor: str, kind: str, driver: str = "") -> None:
    entry = root / "sys/bus/pci/devices" / address
    touch(entry / "vendor")
    (entry / "vendor").write_text(f"{vendor}\n")
    (entry / "class").write_text(f"{kind}\n")
    if driver:
        (root / "drivers" / driver).mkdir(parents=True)
        (entry / "driver").symlink_to(root / "drivers" / driver)


def test_gpus_on_the_pci_bus(root: Path) -> None:
    pci(root, "0000:01:00.0", "0x10de", "0x030000")
    pci(root, "0000:02:00.0", "0x10de", "0x030200", "nouveau")
    pci(root, "0000:01:00.1", "0x10de", "0x040300")  # its sound device
    pci(root, "0000:03:00.0", "0x1002", "0x030000")  # another vendor's
    pci(root, "0000:04:00.0", "0x10de", "0x030200", "vfio-pci")  # passed on to a virtual machine
    assert look(root).pci_gpus == ("0000:01:00.0", "0000:02:00.0")


def test_the_loaders_order(root: Path) -> None:
    own, cached = root / "opt/own", root / "usr/lib64/nvidia"
    default = root / "usr/lib/x86_64-linux-gnu"
    for folder in (own, cached, default):
        touch(folder / "libcuda.so.1")
        (folder / "libcuda.so.1").write_text(str(folder))
    inside = "/" + str((cached / "libcuda.so.1").relative_to(root))
    (root / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\0\1\0libcuda.so.1\0" + inside.encode() + b"\0x")
    found = list(gpu_access.libraries("libcuda.so.1", {"LD_LIBRARY_PATH": f"/none:{own}"}, root))
    assert found == [str(folder / "libcuda.so.1") for folder in (own, cached, default)]


def test_a_link_to_the_same_file_counts_once(root: Path) -> None:
    default = root / "usr/lib/x86_64-linux-gnu"
    touch(default / "libcuda.so.580.65.06")
    (default / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    (root / "lib").symlink_to("usr/lib")
    assert len(list(gpu_access.libraries("libcuda.so.1", {}, root))) == 1


def test_a_dangling_link_is_no_library(root: Path) -> None:
    (root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("libcuda.so.470.0")
    assert look(root).cuda_library is None


@pytest.mark.parametrize(
    ("requirements", "visible", "asked"),
    [
        (Requirements(), None, ""),
        (Requirements(), "all", ""),  # the image's own default: nobody's wish
        (Requirements(), "", ""),
        (Requirements(), "void", ""),
        (Requirements(), "none", ""),
        (Requirements(), "0,1", "NVIDIA_VISIBLE_DEVICES=0,1"),
        (Requirements(), "GPU-fef8089b", "NVIDIA_VISIBLE_DEVICES=GPU-fef8089b"),
        (Requirements(gpus=2), "all", "--need gpus=2"),
        (Requirements(gpus=2, gpus_asked="train.py (torchrun)"), None, "train.py (torchrun)"),
        (Requirements(gpus_asked="NVIDIA_VISIBLE_DEVICES=all"), "all", ""),
        (Requirements(gpus_asked="--gpus all"), None, "--gpus all"),
        (Requirements(gpus=0), "0", ""),
        (Requirements(gpu_memory_bytes=1 << 30), None, "--need gpu-memory"),
    ],
)
def test_who_asked_for_a_gpu(requirements: Requirements, visible: str | None, asked: str) -> None:
    environment = {} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible}
    assert gpu_access.asked(requirements, environment) == asked


@pytest.mark.parametrize(
    ("default", "value", "asked"),
    [
        ("all", "all", ""),
        ("void", "void", ""),
        ("void", "all", "NVIDIA_VISIBLE_DEVICES=all"),  # the CPU image, and its user wants GPUs
        ("all", "0", "NVIDIA_VISIBLE_DEVICES=0"),
        ("all", "none", ""),
    ],
)
def test_what_our_image_sets_for_itself_is_nobodys_wish(default: str, value: str, asked: str) -> None:
    environment = {"NVIDIA_VISIBLE_DEVICES": value, "TORCH_DOCTOR_VISIBLE_DEVICES": default}
    assert gpu_access.asked(Requirements(), environment) == asked


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("cuda: Optional[str] = '12.8'", "12.8"),
        ("cuda: Optional[str] = None", ""),
        ("cuda = '11.8'", "11.8"),
        ("cuda = None", ""),
        ("hip = None", None),
    ],
)
def test_the_builds_cuda_is_read_without_an_import(tmp_path: Path, line: str, cuda: str | None) -> None:
    folder = tmp_path / "lib/python3.12/site-packages/torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text(f"__version__ = '2.9.1'\ndebug = False\n{line}\n")
    assert gpu_access.torch_cuda(str(tmp_path / "bin/python")) == cuda


def test_without_torch_nothing_is_known(tmp_path: Path) -> None:
    assert gpu_access.torch_cuda(str(tmp_path / "bin/python")) is None


def test_nothing_here_and_nobody_asked_is_nothing_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = GpuAccessFacts(torch_cuda="", container=True)
    monkeypatch.setattr(gpu_access, "look", lambda *_: nothing)
    failure = gpu_access.probe(Request())
    assert isinstance(failure, ProbeFailure)
    assert (failure.kind, failure.reason) == (FailureKind.UNAVAILABLE, gpu_access.NO_GPU)
    assert failure.evidence == {"torch": "a torch without CUDA", "container": True}

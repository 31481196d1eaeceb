"""What of NVIDIA's driver this system, or this container, was given; read without calling into the driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuAccessFacts:
    """Device nodes, libraries and variables that decide whether a program here can reach a GPU.

    Args:
        device_nodes: ``/dev/nvidia0`` ... of GPUs, by number.
        control_node: whether /dev/nvidiactl exists.
        uvm_node: whether /dev/nvidia-uvm exists; CUDA needs it, NVML does not.
        wsl: whether the GPU is reached through /dev/dxg (Windows Subsystem for Linux).
        kernel_driver: version of the loaded kernel module, ``580.65.06``; None where none is loaded. A
            container without a GPU sees the host's, too.
        pci_gpus: PCI addresses of NVIDIA's display and 3D controllers.
        nvml_library: path of libnvidia-ml.so.1; None where the loader finds none.
        cuda_library: path of the libcuda.so.1 that the loader finds; None without one.
        container: whether this runs in a container.
        kubernetes: whether that container is a Kubernetes pod's.
        visible_devices: NVIDIA_VISIBLE_DEVICES, read by the container runtime; None where unset.
        cuda_visible_devices: CUDA_VISIBLE_DEVICES, read by CUDA; None where unset.
        driver_capabilities: NVIDIA_DRIVER_CAPABILITIES; None where unset.
        torch_cuda: CUDA version that the installed torch was built for, ``12.8``; empty for a build without
            CUDA; None where that cannot be told without importing it.
        asked: who asked for GPUs (``--need gpus=``, the script, NVIDIA_VISIBLE_DEVICES); empty where nobody did.
        wanted: how many GPUs the run needs; None where it did not say.
        wanted_memory_bytes: memory that each GPU needs; None where nothing was said.
        wanted_capability: compute capability that each GPU needs; None where nothing was said.
        capability_stated: whether the user stated that capability; otherwise the script's dtypes suggest it.
        wanted_by: what the need comes from, as a user typed it.
    """

    device_nodes: tuple[str, ...] = ()
    control_node: bool = False
    uvm_node: bool = False
    wsl: bool = False
    kernel_driver: str | None = None
    pci_gpus: tuple[str, ...] = ()
    nvml_library: str | None = None
    cuda_library: str | None = None
    container: bool = False
    kubernetes: bool = False
    visible_devices: str | None = None
    cuda_visible_devices: str | None = None
    driver_capabilities: str | None = None
    torch_cuda: str | None = None
    asked: str = ""
    wanted: int | None = None
    wanted_memory_bytes: int | None = None
    wanted_capability: tuple[int, int] | None = None
    capability_stated: bool = False
    wanted_by: str = ""

    @property
    def has_device(self) -> bool:
        """Whether a GPU's device node is here."""
        return bool(self.device_nodes) or self.wsl

    @property
    def host_has_gpu(self) -> bool:
        """Whether the machine has an NVIDIA GPU or its driver, given to this container or not."""
        return self.has_device or self.kernel_driver is not None or bool(self.pci_gpus)

"""The driver's version against its own libraries, the image's and torch's CUDA."""

from __future__ import annotations

from dataclasses import replace

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: major version of CUDA -> the oldest wheels for it that are still made; they run on each driver of that major version
_WHEELS = {11: "cu118", 12: "cu126"}


def driver_too_old(seen: Seen, verdict: Verdict) -> Verdict | None:
    """'found version 11040' is what CUDA the driver supports: 1000 x major + 10 x minor."""
    found = seen.groups.get("version")
    if "UserWarning" in seen.log.lines[seen.index].text:
        verdict = replace(verdict, kind=DEGRADED)  # the run goes on, on the CPU
    if not found:
        return verdict
    number = int(found)
    cuda = f"{number // 1000}.{number % 1000 // 10}"
    return with_message(
        verdict,
        f"the host driver supports CUDA up to {cuda} only, and the installed torch is built for a newer one",
        Remediation(
            f"Update the NVIDIA driver of the host, or install a torch that is built for CUDA {number // 1000}",
            (
                "nvidia-smi",
                f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{_WHEELS[number // 1000]}"
                if number // 1000 in _WHEELS
                else 'python -c "import torch; print(torch.version.cuda)"',
            ),
        ),
        driver_cuda=cuda,
    )


register(
    Cause(
        "GPU202",
        "driver-library-mismatch",
        "The loaded kernel module and the driver's libraries are of different versions.",
        "An unattended upgrade replaced the libraries; the module in memory is the old one. Jobs that were on the "
        "GPU go on.",
        "the NVIDIA kernel module and the user-space driver library (libnvidia-ml) are of different versions: the "
        "driver was upgraded without a reboot",
        Remediation(
            "Reboot the host or reload the nvidia modules, and hold the nvidia packages",
            (
                "sudo reboot  # when the jobs on its GPUs have ended: they go on until then",
                "sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
                "cat /proc/driver/nvidia/version",
            ),
        ),
        (
            Signature(
                "Driver/library version mismatch",
                "Failed to initialize NVML: Driver/library version mismatch",
                "Failed to initialize NVML: Unknown Error",
                source="NVML 390 to 590",
            ),
            Signature(
                "API mismatch: the client has the version",
                "NVRM: API mismatch: the client has the version 535.161.07, but this kernel module has the version "
                "535.154.05",
                "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
                source="NVIDIA kernel module",
            ),
            Signature(
                "rror 803",
                "Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / "
                "cuda driver combination",
                "Error 804: forward compatibility was attempted on non supported HW",
                r"[Ee]rror 803: system has unsupported display driver / cuda driver combination",
                source="CUDA 10.1 to 13",
            ),
            Signature(
                "unsupported display driver / cuda driver combination",
                "RuntimeError: CUDA driver initialization failed: system has unsupported display driver / cuda "
                "driver combination",
                "display driver",
                source="CUDA 10.1 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
    Cause(
        "GPU203",
        "forward-compatibility-not-supported",
        "Error 804: the image's CUDA compatibility library is used on a GPU that does not support it.",
        "Forward compatibility is for data-centre GPUs; the image's cuda-compat is newer than the host's driver. A "
        "driver that was updated without a reboot gives the same. 'Did you run some cuda functions before' is noise.",
        "CUDA error 804: the image needs a newer driver than the host has, and its forward-compatibility library "
        "(cuda-compat) works on data-centre GPUs only",
        Remediation(
            "Update the host driver (and reboot), or use an image with an older CUDA; keep /usr/local/cuda/compat "
            "out of the loader's path",
            (
                "nvidia-smi",
                "ls /etc/ld.so.conf.d/*compat*  # in a Dockerfile: RUN rm these files && ldconfig",
                "echo $LD_LIBRARY_PATH | tr : '\\n' | grep compat",
            ),
        ),
        (
            Signature(
                "forward compatibility was attempted on non supported HW",
                "Error 804: forward compatibility was attempted on non supported HW",
                "Error 802: system not yet initialized",
                source="CUDA 10 to 13",
            ),
            Signature(
                "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "cuInit: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "CUDA_ERROR_NOT_SUPPORTED",
                source="CUDA 10 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
    Cause(
        "GPU211",
        "driver-older-than-cuda",
        "The host's driver is older than the CUDA that torch was built with.",
        "The number in the text is the CUDA version that the driver supports, in thousands, not the driver's own "
        "version.",
        "the host's NVIDIA driver is too old for the CUDA that the installed torch was built with",
        Remediation(
            "Update the NVIDIA driver of the host, or install a torch built for an older CUDA",
            ("nvidia-smi", 'python -c "import torch; print(torch.version.cuda)"'),
        ),
        (
            Signature(
                "driver on your system is too old",
                "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
                "the driver is too old to be rated",
                r"driver on your system is too old \(found version (?P<version>\d+)\)|driver on your system is too "
                r"old",
                source="torch 1.0 to 2.15, c10/cuda/CUDAFunctions.cpp",
            ),
            Signature(
                "CUDA driver version is insufficient for CUDA runtime version",
                "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
                "driver version is sufficient",
                source="CUDA 9 to 13",
            ),
            Signature(
                "unsatisfied condition: cuda",
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
                "driver to a newer version",
                "unsatisfied condition",
                r"unsatisfied condition: cuda ?>= ?(?P<need>[\d.]+)",
                source="libnvidia-container 1.x",
            ),
        ),
        explains=("GPU2",),
        judge=driver_too_old,
    ),
    Cause(
        "GPU253",
        "ptx-newer-than-driver",
        "The driver is too old for the PTX in the program.",
        "Code for a GPU that the wheel has no kernels for is compiled from PTX by the driver; a PTX of a newer CUDA than the driver knows is refused.",
        "the driver cannot compile the program's PTX: it was made by a newer CUDA than the driver supports",
        Remediation(
            "Update the NVIDIA driver of the host, or use a build for an older CUDA",
            (
                "nvidia-smi",
                'python -c "import torch; print(torch.version.cuda, torch.cuda.get_arch_list())"',
            ),
        ),
        (
            Signature(
                "the provided PTX was compiled with an unsupported toolchain",
                "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
                "PTX was compiled",
                source="CUDA 10 to 13, error 222",
            ),
        ),
        explains=("GPU206",),
    ),
    Cause(
        "GPU239",
        "stub-driver-loaded",
        "The stub of libcuda was loaded in place of the driver.",
        "The toolkit's folder stubs holds a libcuda for linking. On LD_LIBRARY_PATH it comes before the driver's.",
        "the toolkit's stub of libcuda is loaded in place of the driver: its folder stubs is on LD_LIBRARY_PATH",
        Remediation(
            "Take the stubs out of LD_LIBRARY_PATH; they are for linking only (LIBRARY_PATH)",
            (
                "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v stubs | paste -sd:)",
                "ldconfig -p | grep libcuda",
            ),
        ),
        (
            Signature(
                "driver is a stub library",
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library",
                "a stub library",
                source="CUDA 11 to 13",
            ),
        ),
        explains=("GPU2",),
    ),
)

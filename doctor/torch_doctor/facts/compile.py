"""What torch.compile finds on this machine: compilers, headers, caches, triton, libcuda."""

from __future__ import annotations

from dataclasses import dataclass

from torch_doctor.facts.filesystem import Place


@dataclass(frozen=True)
class Compiler:
    """A compiler as torch and triton look for it.

    Args:
        wanted: the program asked for: CC or CXX as set, else the default names.
        path: where it was found; empty where it was not.
        variable: ``CC`` or ``CXX`` where that chose it; empty otherwise.
        error: why a small program with the Python headers does not compile; empty where it does, or was not tried.
    """

    wanted: str
    path: str = ""
    variable: str = ""
    error: str = ""


@dataclass(frozen=True)
class CacheFolder:
    """A cache of compiled kernels.

    Args:
        name: "inductor" or "triton".
        place: the folder, as the FS checks look at one.
        variable: what names it; empty for the default.
        made_by: what its entries say of who made them, one text per kind that is not this installation
            (``triton 3.4.0``, ``torch 2.9.0``, ``driver 550.54``, ``sm_70``).
        foreign_uid: the owner of a part of it that this user cannot write; None where there is none.
    """

    name: str
    place: Place
    variable: str = ""
    made_by: tuple[str, ...] = ()
    foreign_uid: int | None = None


@dataclass(frozen=True)
class CompileFacts:
    """What a compile would use. The child that looks runs in the user's interpreter and imports nothing of torch.

    Args:
        python: the interpreter; ``python_version`` is ``3.11``.
        include: its header folder, as sysconfig gives it; ``has_headers`` is whether Python.h is there.
        caches: inductor's and triton's.
        torch_version: as torch's version file says; empty without torch.
        cuda: CUDA version of the build; None for one without. ``hip``: the same for ROCm.
        user_error: why getpass.getuser() fails; empty where it gives a name.
        triton: the installed version; None without one.
        triton_required: what torch's metadata asks for, ``==3.5.0``; empty where it asks for none.
        triton_matches: whether the installed one is that.
        has_driver: whether an NVIDIA driver shows on this machine (/dev/nvidiactl, /dev/dxg, /proc/driver/nvidia).
        libcuda: folders where triton's linker finds libcuda.so.1; empty where it finds none.
        libcuda_error: what its search would die of: no /sbin/ldconfig; empty otherwise.
        libcuda_elsewhere: folders that hold libcuda.so.1 and that the search does not look into.
        system: ID and ID_LIKE of os-release, ``debian``.
        is_root: whether this user can install packages.
        uid: effective user.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    python: str
    python_version: str
    include: str
    has_headers: bool
    c: Compiler
    cxx: Compiler
    caches: tuple[CacheFolder, ...] = ()
    user_error: str = ""
    torch_version: str = ""
    cuda: str | None = None
    hip: str | None = None
    triton: str | None = None
    triton_required: str = ""
    triton_matches: bool = True
    has_driver: bool = False
    libcuda: tuple[str, ...] = ()
    libcuda_error: str = ""
    libcuda_elsewhere: tuple[str, ...] = ()
    system: str = ""
    is_root: bool = False
    uid: int = 0
    manager: str = ""

    @property
    def is_gpu_build(self) -> bool:
        """True where torch compiles for a GPU, which takes triton and a C compiler."""
        return self.cuda is not None or self.hip is not None

    @property
    def torch_release(self) -> tuple[int, ...]:
        """``(2, 9)`` of ``2.9.1+cu128``; empty without torch."""
        parts = self.torch_version.split("+")[0].split(".")[:2]
        return tuple(int(part) for part in parts if part.isdecimal())


@dataclass(frozen=True)
class CompileRun:
    """A real torch.compile on one device: seconds of the first call, and what went wrong."""

    device: str
    ok: bool
    seconds: float = 0.0
    error: str = ""
    traceback_tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeepCompileFacts:
    """What ``--deep`` compiled, the CPU first."""

    runs: tuple[CompileRun, ...]

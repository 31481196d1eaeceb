"""The torch that the run will use, as it is after ``import torch``; CUDA is not initialised for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TorchFacts:
    """An imported torch. Where the import fails, the probe gives a ProbeFailure instead.

    Args:
        version: ``2.9.1+cu128``.
        path: folder of the package.
        python: interpreter that imported it.
        python_version: ``3.13.1``.
        cuda: CUDA version of the build, ``12.8``; None for a build without CUDA.
        hip: ROCm version of the build; None for one without.
        arch_list: what the binaries hold code for: ``sm_80``, ``sm_90a``, ``compute_90`` (PTX).
        git_version: commit of the build.
        triton: version of the installed triton distribution; None without one.
        numpy: version of the NumPy that was imported; None without one.
        numpy_error: why torch cannot exchange arrays with NumPy; empty where it can.
        num_threads: intra-op threads.
        interop_threads: inter-op threads.
        sharing_strategy: ``file_descriptor`` or ``file_system``.
        start_method: multiprocessing's default start method of this Python.
        import_seconds: wall clock of ``import torch``.
        warnings: what the import printed to stderr or warned about, a line each.
    """

    version: str
    path: str
    python: str
    python_version: str
    cuda: str | None = None
    hip: str | None = None
    arch_list: tuple[str, ...] = ()
    git_version: str = ""
    triton: str | None = None
    numpy: str | None = None
    numpy_error: str = ""
    num_threads: int | None = None
    interop_threads: int | None = None
    sharing_strategy: str = ""
    start_method: str = ""
    import_seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, ...]:
        """``(2, 9, 1)`` of ``2.9.1+cu128`` and of ``2.9.1rc2``."""
        return _numbers(self.version)

    @property
    def cuda_release(self) -> tuple[int, ...] | None:
        """``(12, 8)``; None for a build without CUDA."""
        return _numbers(self.cuda) if self.cuda else None


def _numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)

"""Imports torch and says what it is. CUDA is never initialised here: that may hang, and has its own probe."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any


def main() -> None:
    """Write what was found to the descriptor in the last argument."""
    json.load(sys.stdin)
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(look(), stream)


def look() -> dict[str, object]:
    """TorchFacts as a dictionary; or ``missing``, or ``error`` with what is known of the broken install."""
    python = {"python": sys.executable, "python_version": sys.version.split()[0]}
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return {**python, "missing": True}
    start = time.perf_counter()
    try:
        said = import_torch()
    except BaseException as error:
        return {**python, **broken(error, spec.origin)}
    return {**python, **describe(), "import_seconds": round(time.perf_counter() - start, 3), "warnings": said}


def import_torch() -> list[str]:
    """Import torch; what it printed to stderr, or warned about, a line each."""
    # in memory: with --read-only there is no folder for temporary files, and torch itself needs none
    with os.fdopen(os.memfd_create("stderr"), "w+b") as caught, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            import torch  # noqa: F401
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            printed = caught.read(1 << 16).decode(errors="replace")
            sys.stderr.write(printed)
    lines = [line for line in printed.splitlines() if line.strip()]
    return [*lines, *(f"{w.category.__name__}: {w.message}" for w in warned)][:50]


def broken(error: BaseException, origin: str | None) -> dict[str, object]:
    """What is known of a torch whose import raised ``error``."""
    return {
        "error_type": type(error).__name__,
        "error": (str(error).strip().splitlines() or [""])[0],
        "error_text": str(error)[:4000],
        "traceback_tail": traceback.format_exc().rstrip().splitlines()[-12:],
        "installed_version": installed("torch"),
        "path": str(Path(origin).parent) if origin else "",
    }


def installed(name: str) -> str | None:
    """Version of an installed distribution; None without one."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, object]:
    """What the imported torch says of itself; every field stands alone, so that an odd build gives the rest."""
    import torch

    sharing: Any = torch.multiprocessing
    numpy_version, numpy_error = numpy_bridge()
    return {
        "version": str(torch.__version__),
        "path": str(Path(torch.__file__).parent),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "git_version": str(getattr(torch.version, "git_version", "") or ""),
        "arch_list": arch_list(),
        "triton": installed("triton") or installed("pytorch-triton") or installed("triton-rocm"),
        "numpy": numpy_version,
        "numpy_error": numpy_error,
        "num_threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "sharing_strategy": sharing.get_sharing_strategy(),
        "start_method": multiprocessing.get_start_method(),
    }


def arch_list() -> list[str]:
    """The build's architectures. torch.cuda.get_arch_list() says nothing without a usable GPU; its source does."""
    import torch

    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    return (flags() or "").split() if flags is not None else []


def numpy_bridge() -> tuple[str | None, str]:
    """NumPy's version, and why torch cannot exchange arrays with it."""
    try:
        import numpy
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numpy"
        return installed("numpy"), "" if missing else f"{type(error).__name__}: {error}"
    try:
        import torch

        torch.from_numpy(numpy.zeros(1)).numpy()
    except Exception as error:
        return numpy.__version__, f"{type(error).__name__}: {error}"
    return numpy.__version__, ""


if __name__ == "__main__":  # torch_session imports this file
    main()

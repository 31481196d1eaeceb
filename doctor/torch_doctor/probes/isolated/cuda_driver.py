"""Calls cuInit of the libcuda.so.1 that the loader finds, as every CUDA program does first. It may hang or crash."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Write what CUDA said to the descriptor in the last argument."""
    json.load(sys.stdin)
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(look(), stream)


def look() -> dict[str, Any]:
    """``load_error`` where there is no usable library; else its path, cuInit's code, version and device count."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"load_error": str(error)}
    print("cuInit(0)", file=sys.stderr, flush=True)
    code = int(cuda.cuInit(0))
    found: dict[str, Any] = {"library": mapped(), "init_code": code, "init_name": name_of(cuda, code)}
    number = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        found["driver_version"] = [number.value // 1000, number.value % 1000 // 10]
    print("cuDeviceGetCount", file=sys.stderr, flush=True)
    if code == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
        found["device_count"] = number.value
    return found


def name_of(cuda: Any, code: int) -> str:
    """``CUDA_ERROR_NO_DEVICE`` for 100; empty where the library does not know the code."""
    answer = ctypes.c_char_p()
    known = cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(answer)) == 0
    return answer.value.decode() if known and answer.value else ""


def mapped() -> str:
    """Path of the loaded libcuda, symlinks resolved."""
    with Path("/proc/self/maps").open() as stream:
        paths = {line.split(maxsplit=5)[5].strip() for line in stream if "libcuda.so" in line}
    return min(paths, default="")


main()

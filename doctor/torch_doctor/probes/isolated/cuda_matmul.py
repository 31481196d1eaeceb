"""Multiplies matrices on each GPU with torch and compares with the CPU: wrong results, errors and hangs show here."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SIZE = 1024
#: rounding of a 1024-term sum, with the TF32 tensor cores that matmul may use off
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}


def main() -> None:
    """Write one result per device and dtype to the descriptor in the last argument."""
    payload = json.load(sys.stdin)
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(look(payload.get("devices")), stream)


def look(devices: list[str] | None) -> dict[str, Any]:
    """Results for ``devices``, all GPUs without one; ``failure`` where torch cannot start CUDA."""
    # TF32 forced from outside would look like wrong numbers
    os.environ.update(TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="0", NVIDIA_TF32_OVERRIDE="0")
    say("import torch")
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    if devices is None:
        say("torch.cuda.init")
        cuda: Any = torch.cuda
        try:
            cuda.init()  # device_count() alone answers 0 whatever is wrong
        except (RuntimeError, AssertionError) as error:
            return {"results": [], "failure": one_line(error)}
        devices = [f"cuda:{index}" for index in range(cuda.device_count())]
    cases = {dtype: on_cpu(torch, getattr(torch, dtype)) for dtype in TOLERANCES}
    return {"results": [one(torch, place, dtype, cases[dtype]) for place in devices for dtype in TOLERANCES]}


def on_cpu(torch: Any, kind: Any) -> tuple[Any, Any, Any]:
    """Two matrices and their product, in double precision."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, generator=generator).to(kind) for _ in range(2))
    return a, b, a.double() @ b.double()


def one(torch: Any, place: str, dtype: str, case: tuple[Any, Any, Any]) -> dict[str, Any]:
    """One multiplication; an exception is a result, too."""
    say(f"{place} {dtype}")
    device = torch.device(place)
    found = {"index": device.index or 0, "dtype": dtype, "tolerance": TOLERANCES[dtype]}
    a, b, expected = case
    try:
        found["name"] = torch.cuda.get_device_name(device) if device.type == "cuda" else place
        there = (a.to(device), b.to(device))
        (there[0] @ there[1]).cpu()  # loads the kernels
        start = time.perf_counter()
        answer = (there[0] @ there[1]).cpu()
        found["seconds"] = round(time.perf_counter() - start, 6)
        found["relative_error"] = difference(torch, answer, expected)
    except (RuntimeError, AssertionError) as error:
        found["error"] = one_line(error)
    return found


def one_line(error: BaseException) -> str:
    """``RuntimeError: CUDA error: ...``: type and first line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def difference(torch: Any, answer: Any, expected: Any) -> float:
    """Largest difference as a share of the largest value; 1e9 where the answer holds NaN or infinity."""
    if not bool(torch.isfinite(answer).all()):
        return 1e9
    return float((answer.double() - expected).abs().max() / expected.abs().max())


def say(step: str) -> None:
    """Name the step on stderr: the last line tells where a hang was."""
    print(step, file=sys.stderr, flush=True)


main()

"""Compiles a small function with torch.compile on the CPU and on a GPU, and compares the results.

Out: {"runs": [{"device", "ok", "seconds", "error", "traceback_tail"}]}, or {"skipped": reason}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Write one run per device."""
    json.load(sys.stdin)
    # a kernel from the cache would prove nothing
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    answer = look()
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(answer, stream)
    sys.stderr.flush()
    os._exit(0)


def look() -> dict[str, Any]:
    """The runs; ``skipped`` where torch cannot be imported, which other checks judge."""
    try:
        import torch
    except Exception as error:
        return {"skipped": f"import torch fails: {type(error).__name__}: {error}"}
    if not hasattr(torch, "compile"):
        return {"skipped": f"torch {torch.__version__} has no torch.compile"}
    devices = ["cpu", *(["cuda"] if torch.version.cuda and torch.cuda.is_available() else [])]
    runs = [attempt(device) for device in devices]
    if all(run["ok"] for run in runs):
        mark()
    return {"runs": runs}


def attempt(device: str) -> dict[str, Any]:
    """One compile: seconds of the first call, which compiles; the error where it fails."""
    start = time.perf_counter()
    try:
        error = compare(device)
        tail: list[str] = []
    except Exception as failure:
        lines = str(failure).strip().splitlines() or [""]
        telling = next((line for line in lines if "rror" in line or "No such file" in line), lines[0])
        error = f"{type(failure).__name__}: {telling.strip()}"[:500]
        tail = traceback.format_exc().rstrip().splitlines()[-15:]
    seconds = round(time.perf_counter() - start, 2)
    return {"device": device, "ok": not error, "seconds": seconds, "error": error, "traceback_tail": tail}


def compare(device: str) -> str:
    """What differs from eager; empty where nothing does."""
    import torch

    def function(x: Any) -> Any:
        return torch.nn.functional.gelu(x * 2 + 1).softmax(dim=-1).sum(dim=0)

    x = torch.randn(64, 64, device=device)
    came = torch.compile(function)(x)
    expected = function(x)
    if device == "cuda":
        torch.cuda.synchronize()
    difference = float((came - expected).abs().max())
    return "" if difference < 1e-3 else f"the compiled result differs from eager by {difference:g}"


def mark() -> None:
    """Say in the cache who used it, so that a later check sees it when torch or the driver changed."""
    import torch
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    try:
        driver = Path("/proc/driver/nvidia/version").read_text().split()
        version = next((w for w in driver if w[0].isdigit() and w.count(".") in (1, 2)), "")
    except OSError:
        version = ""
    try:
        Path(cache_dir(), ".torch-doctor.json").write_text(
            json.dumps({"torch": torch.__version__, "driver": version})
        )
    except OSError:
        return  # a cache that cannot be written has its own check


if __name__ == "__main__":
    main()

"""One import of torch for two looks: what torch is, and whether a DataLoader's workers hand tensors over.

Importing torch is what takes the time of a preflight, so it is done once. The forkserver imports it at the same time
on another CPU. Nothing here touches CUDA.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROWS, WIDTH, BATCH = 4, 16, 2  # one page of shared memory a batch: fits where hardly anything does


class Rows:
    """A data set whose every row is known. It imports torch in the worker, where the worker has it anyway."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((WIDTH,), float(index))


def main() -> None:
    """Write ``torch`` (as torch_info gives it) and ``methods`` (start method -> what came of it)."""
    payload = json.load(sys.stdin)
    methods = chosen(payload["methods"])
    if "forkserver" in methods:
        start_forkserver()
    answer: dict[str, Any] = {"torch": sibling("torch_info").look(), "methods": {}}
    stream = os.fdopen(int(sys.argv[-1]), "w")
    stream.write("\n")  # blank in JSON; it tells that what dies from here on did not die of the import
    stream.flush()
    if "version" in answer["torch"]:
        for method in methods:
            answer["methods"][method] = attempt(method, float(payload["limit_s"]))
    json.dump(answer, stream)
    stream.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a worker that hangs must not keep us at exit; the parent kills the whole group


def sibling(name: str) -> Any:
    """The script beside this one as a module; with PYTHONSAFEPATH its folder is not on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen(wanted: list[str]) -> list[str]:
    """The start methods by name, each once; ``default`` is what this Python takes where nobody chooses."""
    available = multiprocessing.get_all_start_methods()
    names = [available[0] if name == "default" else name for name in wanted]
    return [name for name in dict.fromkeys(names) if name in available]


def start_forkserver() -> None:
    """Start it now, so that its import of torch runs beside ours."""
    multiprocessing.set_forkserver_preload(["torch"])
    try:
        multiprocessing.forkserver.ensure_running()
    except OSError:
        return  # the loader under forkserver will say what is wrong


def attempt(method: str, limit_s: float) -> dict[str, Any]:
    """Hand known tensors over under one start method; ``ok``, ``seconds``, and the error where it failed."""
    start = time.perf_counter()
    try:
        # a worker hands its sockets over in the temporary folder; without one it would hang until the limit
        tempfile.gettempdir()
        with time_limit(limit_s):
            wrong = hand_over(method, limit_s)
    except BaseException as error:
        found = {"ok": False, **describe(error)}
    else:
        found = {"ok": not wrong, "error_type": "" if not wrong else "WrongData", "error": wrong}
    return {**found, "seconds": round(time.perf_counter() - start, 3)}


def hand_over(method: str, limit_s: float) -> str:
    """What differs between the rows that came and those that are expected; empty where none does."""
    import torch
    from torch.utils.data import DataLoader

    rows: Any = Rows()
    loader = DataLoader(rows, batch_size=BATCH, num_workers=1, multiprocessing_context=method, timeout=limit_s)
    came = torch.cat(list(loader))
    expected = torch.arange(ROWS, dtype=torch.float32).unsqueeze(1).expand(ROWS, WIDTH)
    return "" if torch.equal(came, expected) else f"rows {came[:, 0].tolist()} came instead of 0 to {ROWS - 1}"


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in this thread after ``seconds``."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"no batch within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)  # the loader's own limit, which says more, comes first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def describe(error: BaseException) -> dict[str, Any]:
    """Type and text of an error, of its cause too, and the end of its traceback."""
    lines = str(error).strip().splitlines()
    cause = error.__cause__
    return {
        "error_type": type(error).__name__,
        "error": lines[0] if lines else "",
        "errno": getattr(error, "errno", None) or getattr(cause, "errno", None),
        "cause": f"{type(cause).__name__}: {cause}" if cause is not None else "",
        "traceback_tail": traceback.format_exc().rstrip().splitlines()[-12:],
    }


if __name__ == "__main__":  # spawn and forkserver import this file again
    main()

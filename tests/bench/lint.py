"""Seconds that ``torch-doctor lint`` takes on a tree, against torch-preflight on the same machine in the same run.

    make bench BENCH=lint          BENCH_TREE=FOLDER lints another tree than torch.nn

A folder of real training code says more: an unpacked source package of timm or accelerate. CPU seconds of
the process and its children are compared, so that a busy machine does not decide. One process each.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Row

DOCTOR = Path(__file__).parents[2] / "doctor"
#: the budgets of the design: times faster than torch-preflight, and seconds for one file beyond interpreter start
MINIMUM_RATIO = 30
ONE_FILE_SECONDS = 0.1
SECTION = """
def train_{n}(model, loader, opt, loss_fn):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
        total += loss.item()
    return total
"""


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds, user and system, of a command and its children."""
    before = os.times()
    environment = {**os.environ, "PYTHONPATH": str(DOCTOR)}
    subprocess.run(command, env=environment, capture_output=True, timeout=1800, check=False)
    after = os.times()
    return (after.children_user - before.children_user) + (after.children_system - before.children_system)


def lint(target: Path) -> list[str]:
    """The command that lints a path."""
    return [
        sys.executable,
        "-m",
        "torch_doctor",
        "lint",
        "--format",
        "json",
        "--fail-on",
        "never",
        "--jobs",
        "1",
        str(target),
    ]


def lines_in(tree: Path) -> int:
    """Lines of Python below a folder."""
    return sum(path.read_bytes().count(b"\n") for path in tree.rglob("*.py"))


def one_file() -> float:
    """Median CPU seconds for a file of 200 lines, less those of an interpreter that starts and does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text("import torch\n" + "".join(SECTION.format(n=n) for n in range(20)))
        taken = statistics.median(cpu_seconds(lint(script)) for _ in range(5))
    start = statistics.median(cpu_seconds([sys.executable, "-c", "pass"]) for _ in range(5))
    return taken - start


def rows() -> Iterator[Row]:
    spec = importlib.util.find_spec("torch")
    default = Path(spec.origin).parent / "nn" if spec and spec.origin else None
    tree = Path(os.environ["BENCH_TREE"]) if "BENCH_TREE" in os.environ else default
    seconds = one_file()
    yield Row(
        "`lint` of one file of 200 lines, CPU time beyond the interpreter's start",
        f"at most {ONE_FILE_SECONDS:g} s",
        f"{seconds:.3f} s",
        seconds <= ONE_FILE_SECONDS,
    )
    if tree is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        # a copy: both pass over what lies in a virtual environment
        copy = shutil.copytree(tree, Path(folder) / tree.name, ignore=shutil.ignore_patterns("__pycache__"))
        own = min(cpu_seconds(lint(copy)) for _ in range(2))
        what = f"`lint` of {tree.name}, {lines_in(copy)} lines, CPU time against torch-preflight, one process"
        peer_command = shutil.which(
            "torch-preflight", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        if peer_command is None:
            yield Row(
                what, f"at least {MINIMUM_RATIO} x faster", f"{own:.2f} s; torch-preflight is not installed", None
            )
            return
        peer = cpu_seconds([peer_command, "check", str(copy)])
        measured = f"{peer / own:.1f} x ({own:.2f} s / {peer:.2f} s)"
        yield Row(what, f"at least {MINIMUM_RATIO} x faster", measured, peer / own >= MINIMUM_RATIO)

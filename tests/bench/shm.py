"""What the shared-memory fallback costs, and what workers bring: ratios measured in one run.

    make bench BENCH=shm

Two loaders run in two containers, and take turns of a second or two: whatever else the machine does
falls on both. The ratio is the median over the turns.
"""

from __future__ import annotations

import statistics
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import Row
from support import containers

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "images" / "shm" / "programs"
SMALL: list[str] = []  # Docker's own 64 MiB: the fallback is active
LARGE = ["--shm-size=8g"]  # it is not
TURNS = 12
TURN_SECONDS = 1.5


class Loader:
    """A loader in a container, which runs when it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def turn(self) -> float:
        """Batches a second over one turn."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{TURN_SECONDS}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def loader(task: str, strategy: str, workers: int, options: list[str]) -> Iterator[Loader]:
    name = f"td-bench-{uuid.uuid4().hex[:12]}"
    common = [f"--name={name}", f"--volume={PROGRAMS}:/programs:ro", "--env=TORCH_DOCTOR_PREFLIGHT=off"]
    program = ["python", "-W", "ignore", "/programs/bench.py", task, strategy, str(workers)]
    command = [
        containers.client(),
        "run",
        "--rm",
        "--interactive",
        *common,
        *options,
        containers.image("cpu"),
        *program,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Loader(process)
    finally:
        containers.docker("rm", "--force", name, check=False)
        process.wait(timeout=60)


def compare(first: Loader, second: Loader) -> float:
    """Median of first over second; who begins changes from turn to turn."""
    ratios = []
    first.turn(), second.turn()
    for number in range(TURNS):
        if number % 2:
            above, below = first.turn(), second.turn()
        else:
            below, above = second.turn(), first.turn()
        ratios.append(above / below)
    return statistics.median(ratios)


def fallback(strategy: str) -> float:
    with loader("memory", strategy, 2, SMALL) as small, loader("memory", strategy, 2, LARGE) as large:
        return compare(small, large)


def workers() -> float:
    with (
        loader("image", "file_descriptor", 4, SMALL) as four,
        loader("image", "file_descriptor", 0, SMALL) as none,
    ):
        return compare(four, none)


def row(what: str, ratio: float, least: float | None = None) -> Row:
    budget = "" if least is None else f"at least {least:g} x"
    return Row(what, budget, f"{ratio:.2f} x", None if least is None else ratio >= least)


def rows() -> Iterator[Row]:
    yield row("DataLoader, 64 MiB and the fallback / --shm-size=8g", fallback("file_descriptor"), 0.95)
    yield row("the same with the file_system strategy", fallback("file_system"))
    yield row("workers=4 / workers=0, image task, 64 MiB and the fallback", workers())

"""What the shared-memory fallback costs, and what workers bring: ratios measured in one run.

    python tests/bench/shm.py

Two loaders run in two containers, and take turns of a second or two: whatever else the machine does
falls on both. The ratio is the median over the turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support import containers  # noqa: E402 - found through the line above

PROGRAMS = ROOT / "tests" / "images" / "shm" / "programs"
SMALL: list[str] = []  # Docker's own 64 MiB: the fallback is active
LARGE = ["--shm-size=8g"]  # it is not
TURNS = 12
TURN_SECONDS = 1.5


@dataclass(frozen=True)
class Row:
    """One line of the table. A budget of None is a figure without a promise."""

    name: str
    ratio: float
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        return self.at_least is None or self.ratio >= self.at_least


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


def rows() -> Iterator[Row]:
    yield Row("loader, 64 MiB and the fallback over --shm-size=8g", fallback("file_descriptor"), 0.95)
    yield Row("the same with the file_system strategy", fallback("file_system"))
    yield Row("workers=4 over workers=0, image task, 64 MiB and the fallback", workers())


def main() -> int:
    kept = True
    for row in rows():
        kept &= row.kept
        print(json.dumps({**asdict(row), "ratio": round(row.ratio, 3), "kept": row.kept}), flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

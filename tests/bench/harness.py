"""What every benchmark stands on: rows with a budget, and commands timed in turns.

A module of this folder has ``rows() -> Iterable[Row]``; `make bench` finds it. Standard library only: this file
also runs inside containers, as ``python harness.py`` with a task as JSON on stdin.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: what was measured, with what it is compared to.
        budget: the limit as the design states it.
        measured: what came out, with units.
        met: whether the limit holds; None where the row only informs.
    """

    what: str
    budget: str
    measured: str
    met: bool | None


def ratio(what: str, medians: Mapping[str, float], name: str, base: str, most: float) -> Row:
    """A row whose budget is a ratio of two medians of one run."""
    value = medians[name] / medians[base]
    measured = f"{value:.2f} x ({medians[name] * 1000:.0f} ms / {medians[base] * 1000:.0f} ms)"
    return Row(what, f"at most {most:g} x", measured, value <= most)


def medians(commands: Mapping[str, Sequence[str]], rounds: int, warm_up: int = 1) -> dict[str, float]:
    """Median wall time in seconds of each command; they take turns, so that a busy moment meets all alike.

    A command may end with any status; CalledProcessError only where a signal ended it.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(warm_up + rounds):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if done.returncode < 0:
                raise subprocess.CalledProcessError(done.returncode, list(command))
            if number >= warm_up:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def machine() -> str:
    """The machine in one line: processor, CPUs, memory, kernel, load."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{cpu}, {len(os.sched_getaffinity(0))} CPUs, {pages:.0f} GiB, Linux {platform.release()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    task = json.load(sys.stdin)
    print(json.dumps(medians(task["commands"], task["rounds"])))

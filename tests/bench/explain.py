"""explain against grep on a log of 100 MB: time as a ratio, memory as a difference."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Row, medians, ratio

ROOT = Path(__file__).resolve().parents[2]
SIZE_BYTES = 100_000_000
#: what a person would grep a training log for
EXPRESSION = (
    r"out of memory|killed by signal: .*|Bus error|Segmentation fault|No space left on device"
    r"|Permission denied"
    r"|NCCL (WARN|error)|Watchdog caught .* timeout|EADDRINUSE|cannot pickle .*|inflate\(\) failed"
    r"|unable to lock file"
    r"|no kernel image|device-side assert|(Missing|Unexpected) key|invalid load key|driver .* too old|oom-kill"
    r"|Expected all tensors|second time"
)
#: MiB that a log twenty times as long may add
CONSTANT_MIB = 8


def write(path: Path, size: int) -> None:
    """A log of a run with eight ranks that dies at its end."""
    dice = random.Random(1)
    with path.open("w", encoding="utf-8") as stream:
        written = i = 0
        while written < size:
            step = f"it={i} loss={3 * dice.random():.4f} grad_norm {dice.random():.4f} {400 + i % 90} img/s"
            line = f"[rank{i % 8}]: 2026-11-30 09:12:18 INFO trainer - [ep {i // 1000}] {step}\n"
            if i % 50 == 9:
                line = f"node1:880:901 [{i % 8}] NCCL INFO Channel 0{i % 4}/0 : {i % 8}[0] -> 1[1] via SHM/direct\n"
            stream.write(line)
            written += len(line)
            i += 1
        stream.write("[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n")


def peak_mib(command: list[str]) -> float:
    """The peak of the resident memory of a command, in MiB."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_maxrss / 1024


def rows() -> Iterator[Row]:
    os.environ["PYTHONPATH"] = str(ROOT / "doctor")
    explain = [sys.executable, "-m", "torch_doctor", "explain", "--format", "json"]
    with tempfile.TemporaryDirectory() as folder:
        long, short = Path(folder, "long.log"), Path(folder, "short.log")
        write(long, SIZE_BYTES)
        write(short, SIZE_BYTES // 20)
        # to /dev/null grep stops at the first match, so its output goes through a pipe
        grep = ["sh", "-c", 'grep -c -E "$0" "$1" | cat', EXPRESSION, str(long)]
        times = medians({"grep": grep, "explain": [*explain, str(long)], "start": [*explain, str(short)]}, rounds=7)
        yield ratio("`explain` on a 100 MB log / `grep -c -E` with 20 alternatives", times, "explain", "grep", 3)
        read = times["explain"] - times["start"]
        yield Row(
            "the reading alone, over `explain` on 5 MB, / the same",
            "",
            f"{read / times['grep'] / 0.95:.2f} x ({read * 1000:.0f} ms)",
            None,
        )
        peaks = [peak_mib([*explain, str(path)]) for path in (short, long)]
        yield Row(
            "memory of `explain`, 100 MB over 5 MB",
            f"at most {CONSTANT_MIB} MiB more",
            f"{peaks[1] - peaks[0]:+.1f} MiB ({peaks[1]:.0f} MiB in all)",
            peaks[1] - peaks[0] <= CONSTANT_MIB,
        )

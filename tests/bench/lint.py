"""Seconds that ``torch-doctor lint`` takes on a tree, against torch-preflight on the same machine in the same run.

    python tests/bench/lint.py TREE [--preflight COMMAND] [--minimum 30]

TREE is a folder of real training code, an unpacked source package of timm or accelerate for example. CPU seconds of
the process and its children are compared, so that a busy machine does not decide. One process each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

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
    return [sys.executable, "-m", "torch_doctor", "lint", "--format", "json", "--fail-on", "never", str(target)]


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


def main() -> int:
    """0 where the budgets are kept, 1 where one is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--preflight", default=shutil.which("torch-preflight"), help="the command to compare with")
    parser.add_argument("--minimum", type=float, default=MINIMUM_RATIO)
    options = parser.parse_args()
    own = min(cpu_seconds(lint(options.tree)) for _ in range(2))
    result = {"lines": lines_in(options.tree), "own_s": round(own, 2), "one_file_s": round(one_file(), 3)}
    kept = result["one_file_s"] < ONE_FILE_SECONDS
    if options.preflight:
        peer = cpu_seconds([options.preflight, "check", str(options.tree)])
        result |= {"torch_preflight_s": round(peer, 2), "ratio": round(peer / own, 1)}
        kept = kept and result["ratio"] >= options.minimum
    print(json.dumps(result))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

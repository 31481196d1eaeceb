"""Prints every budget with what was measured here: `make bench`, or `make bench BENCH="size start"`.

Ends with status 1 where a budget is not met.
"""

from __future__ import annotations

import compileall
import importlib
import sys
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import Row, machine  # noqa: E402 - found through the line above


def modules() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("run", "harness", "__init__"))


def line(row: Row) -> str:
    verdict = {True: "met", False: "NOT MET", None: ""}[row.met]
    return f"| {row.what} | {row.budget} | {row.measured} | {verdict} |"


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(modules()))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(modules())}", file=sys.stderr)
        return 2
    # an installed command has its bytecode; a checkout may not
    compileall.compile_dir(HERE.parents[1] / "doctor" / "torch_doctor", quiet=1)
    print(f"{datetime.now(timezone.utc):%Y-%m-%d}, {machine()}\n\n| what | budget | measured | |\n|---|---|---|---|")
    missed = False
    for name in names or modules():
        print(f"bench: {name}", file=sys.stderr)
        for row in importlib.import_module(name).rows():
            print(line(row), flush=True)
            missed |= row.met is False
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

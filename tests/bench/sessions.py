"""Sessions: what the launch costs, how fast output goes through, `ps` with many sessions, the supervisor's memory."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Row, medians, ratio
from support.sessions import Sessions, sessions, until

from torch_doctor.sessions import store

ROUNDS = 9
OUTPUT_BYTES = 256 << 20
FINISHED = 200
MOST_MEMORY_MB = 40
IMPORTS = [sys.executable, "-c", "import typer, rich.console"]
#: lines as a training prints them, as fast as a process can
WRITER = [
    sys.executable,
    "-c",
    "import os\nblock = (b'epoch 1 step 000 loss 0.1234' + b'.' * 60 + b'\\n') * 700\n"
    f"left = {OUTPUT_BYTES}\nwhile left > 0: left -= os.write(1, block)\n",
]


def launch_seconds(doctor: Sessions, name: str) -> float:
    """From the start of ``run`` to the first instruction of the command."""
    before = time.time()
    doctor("run", "--detach", "--check", "off", "--no-postmortem", "--name", name, "--", "date", "+%s.%N")
    return float(until(lambda: doctor.log(name))) - before


def pipe_seconds(folder: Path) -> float:
    """The same output through a plain pipe into a file."""
    start = time.perf_counter()
    with (folder / "plain").open("wb") as out, subprocess.Popen(WRITER, stdout=subprocess.PIPE) as writer:
        subprocess.run(["cat"], stdin=writer.stdout, stdout=out, check=True)
    return time.perf_counter() - start


def session_seconds(doctor: Sessions, name: str) -> tuple[float, float]:
    """The same output as a session: seconds, and the supervisor's peak memory in MB."""
    doctor.start(name, *WRITER, options=("--no-postmortem",))
    peak = 0
    while doctor.state(name).live:
        peak = max(peak, high_water(doctor.supervisor(name)))
        time.sleep(0.05)
    how = doctor.state(name).exit
    assert how is not None and (doctor.folder(name) / store.LOG).stat().st_size >= OUTPUT_BYTES
    return how.duration, peak / 1e6


def high_water(pid: int) -> int:
    """VmHWM in bytes; 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def fill(doctor: Sessions) -> None:
    """Many finished sessions, from one that really ran."""
    doctor("run", "--check", "off", "--name", "done", "--", "sh", "-c", "seq 1 2000")
    first = doctor.folder("done")
    values = json.loads((first / store.STATE).read_text(encoding="utf-8"))
    for number in range(FINISHED - 1):
        copy = first.with_name(f"done-{number}")
        shutil.copytree(first, copy)
        (copy / store.STATE).write_text(json.dumps({**values, "name": copy.name}), encoding="utf-8")


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        with sessions(Path(folder) / "launch") as doctor:
            launch = statistics.median(launch_seconds(doctor, f"l{n}") for n in range(ROUNDS))
            imports = medians({"imports": IMPORTS}, ROUNDS)["imports"]
        what = '`run --check off` to the first instruction / `python -c "import typer, rich.console"`'
        yield Row(what, "", f"{launch / imports:.2f} x ({launch * 1000:.0f} ms / {imports * 1000:.0f} ms)", None)
        with sessions(Path(folder) / "output") as doctor:
            plain, through, memory = [], [], 0.0
            for number in range(3):
                plain.append(pipe_seconds(Path(folder)))
                seconds, peak = session_seconds(doctor, f"o{number}")
                through.append(seconds)
                memory = max(memory, peak)
        slower, rate = (
            statistics.median(through) / statistics.median(plain),
            OUTPUT_BYTES / 1e6 / statistics.median(through),
        )
        yield Row(
            "output through a session / through a plain pipe", "", f"{slower:.2f} x the time ({rate:.0f} MB/s)", None
        )
        yield Row(
            "the supervisor's memory",
            f"at most {MOST_MEMORY_MB} MB",
            f"{memory:.0f} MB",
            0 < memory <= MOST_MEMORY_MB,
        )
        with sessions(Path(folder) / "ps") as doctor:
            fill(doctor)
            listing = medians({"ps": ["env", *settings(doctor), *doctor.command("ps")], "imports": IMPORTS}, ROUNDS)
            yield ratio(f"`ps` with {FINISHED} finished sessions / the same imports", listing, "ps", "imports", 4)


def settings(doctor: Sessions) -> list[str]:
    """The environment of a Sessions as arguments of env."""
    return [f"{key}={value}" for key, value in doctor.environment.items()]

"""The one subprocess helper: a limit that holds, the whole group gone, signals named."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from torch_doctor import process
from torch_doctor.model import FailureKind, ProbeFailure


def python(code: str, timeout: float = 30) -> process.Completed | ProbeFailure:
    return process.run([sys.executable, "-c", code], timeout=timeout)


def test_status_output_and_input() -> None:
    done = process.run(["cat"], timeout=30, input="a 'b' $c\n")
    assert done == process.Completed(0, "a 'b' $c\n", "")


def test_a_signal_is_named() -> None:
    done = python("import os; os.kill(os.getpid(), 11)")
    assert isinstance(done, process.Completed)
    assert (done.status, done.signal_name) == (-11, "SIGSEGV")


def test_a_missing_program_is_a_failure_that_names_it() -> None:
    assert process.run(["/no/such/program"], timeout=1) == ProbeFailure("/no/such/program: No such file or directory")


def test_the_limit_kills_the_whole_group_even_if_it_ignores_sigterm(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "print('partial', file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    start = time.monotonic()
    done = python(code, timeout=3)
    assert isinstance(done, ProbeFailure) and done.kind is FailureKind.TIMEOUT
    assert "within 3 s" in done.reason and done.evidence["stderr_tail"]
    assert time.monotonic() - start < 60
    for pid in map(int, pids.read_text().split()):
        assert _gone(pid)


def test_what_the_child_leaves_running_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import os, time\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.close(1); os.close(2); time.sleep(600)\n"
        f"open({str(pid)!r}, 'w').write(str(child))\n"
    )
    assert isinstance(python(code), process.Completed)
    assert _gone(int(pid.read_text()))


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (7, "SIGBUS"), (63, "signal 63")])
def test_signal_names(number: int, name: str) -> None:
    assert process.signal_name(number) == name


def _gone(pid: int) -> bool:
    try:
        found = psutil.Process(pid)
        # an orphan that was killed stays a zombie where the machine's PID 1 does not reap
        if found.status() != psutil.STATUS_ZOMBIE:
            found.wait(timeout=10)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return found.status() == psutil.STATUS_ZOMBIE
    return True

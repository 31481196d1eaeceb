"""The one helper through which subprocesses run: lists only, always a time limit, group killed at its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_doctor.model import FailureKind, ProbeFailure


@dataclass(frozen=True)
class Completed:
    """A subprocess that ended. ``status`` is the exit status, or minus the signal's number."""

    status: int
    stdout: str
    stderr: str

    @property
    def signal_name(self) -> str:
        """``SIGSEGV`` where a signal ended it, else an empty string."""
        return signal_name(-self.status) if self.status < 0 else ""


def run(
    command: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str = "",
    pass_fds: Sequence[int] = (),
) -> Completed | ProbeFailure:
    """Run ``command`` in a session of its own for at most ``timeout`` seconds.

    Returns:
        Completed, whatever its status; ProbeFailure(UNAVAILABLE) where the program does not exist or
        cannot be started, ProbeFailure(TIMEOUT) where it had to be killed, with its whole process group.
    """
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
            text=True,
            errors="replace",
        )
    except OSError as error:
        return ProbeFailure(f"{command[0]}: {error.strerror or error}")
    try:
        stdout, stderr = child.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(child.pid)
        stdout, stderr = _drain(child)
        evidence = {"timeout_s": timeout, "stderr_tail": tail(stderr)}
        return ProbeFailure(
            f"{Path(command[0]).name} gave no answer within {timeout:g} s", FailureKind.TIMEOUT, evidence
        )
    finally:
        kill_group(child.pid)
    return Completed(child.returncode, stdout, stderr)


def _drain(child: subprocess.Popen[str]) -> tuple[str, str]:
    # a child in uninterruptible sleep (NFS, a wedged driver) cannot be reaped: leave it behind
    try:
        return child.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        return "", ""


def kill_group(pid: int) -> None:
    """SIGKILL to what is left of the process group that ``pid`` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def signal_name(number: int) -> str:
    """``9`` as ``SIGKILL``; an unknown number as ``signal N``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(text: str, lines: int = 8) -> list[str]:
    """The last lines of a text, without blank ones at the end."""
    return text.rstrip().splitlines()[-lines:]

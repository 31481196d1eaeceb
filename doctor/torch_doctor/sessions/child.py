"""Starts the command on the pseudo-terminal, as a shell would: its own process group, in the foreground.

Standard library only.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

#: what shells use for a command that is not there, or cannot be run
NOT_FOUND, NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True)
class CannotStart:
    """The command could not be started: the shell's exit status for that, and why."""

    status: int
    reason: str


def start(command: Sequence[str], cwd: str, slave: int) -> int | CannotStart:
    """Fork and exec ``command`` with the slave as its three standard streams.

    The caller is the session leader of that terminal and stays it: were the command itself the leader, the
    kernel would hang the terminal up when it ends, and drop output that nobody has read yet.

    Returns:
        The PID, which is also the process group, or why it could not be started.
    """
    report, failed = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(command, cwd, slave, failed)
    os.close(failed)
    os.set_blocking(report, True)
    answer = os.read(report, 8)
    os.close(report)
    if not answer:
        return pid
    os.waitpid(pid, 0)
    number, at_cwd = struct.unpack("ii", answer)
    if at_cwd:
        return CannotStart(NOT_EXECUTABLE, f"{cwd}: {os.strerror(number)}")
    missing = number in (errno.ENOENT, errno.ENOTDIR)
    text = "command not found" if missing and "/" not in command[0] else os.strerror(number)
    return CannotStart(NOT_FOUND if missing else NOT_EXECUTABLE, f"{command[0]}: {text}")


def _become(command: Sequence[str], cwd: str, slave: int, failed: int) -> NoReturn:
    at_cwd = 1
    try:
        os.setpgid(0, 0)
        # a background group that takes the foreground gets SIGTTOU, which the supervisor ignores
        os.tcsetpgrp(slave, os.getpid())
        for stream in (0, 1, 2):
            os.dup2(slave, stream)
        os.chdir(cwd)
        at_cwd = 0
        _default_signals()
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(failed, struct.pack("ii", error.errno or errno.EINVAL, at_cwd))
    finally:
        os._exit(NOT_FOUND)


def _default_signals() -> None:
    # a shell's & and nohup leave signals ignored, Python ignores SIGPIPE: the command shall see none of it
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

"""Two calls that Python has no names for: prctl (subreaper) and signalfd. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_SFD_CLOEXEC, _SFD_NONBLOCK = os.O_CLOEXEC, os.O_NONBLOCK
_SIGINFO_BYTES = 128  # sizeof(struct signalfd_siginfo)
_SIGSET_BYTES = 128  # sizeof(sigset_t) in glibc and musl


@dataclass(frozen=True)
class Sender:
    """A signal that arrived, and the process that sent it: pid 0 for the kernel or another PID namespace."""

    number: int
    pid: int
    uid: int


def become_subreaper() -> bool:
    """Orphans among this process's descendants become its children. False where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def signal_descriptor(numbers: Iterable[int]) -> int:
    """Block these signals and return a descriptor that they can be read from.

    Raises:
        OSError: where the kernel has no signalfd.
    """
    wanted = list(numbers)
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    libc.sigemptyset(mask)
    for number in wanted:
        libc.sigaddset(mask, int(number))
    descriptor = libc.signalfd(-1, mask, _SFD_CLOEXEC | _SFD_NONBLOCK)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(descriptor)


def read_signals(descriptor: int) -> Iterator[Sender]:
    """The signals that are waiting."""
    while True:
        try:
            data = os.read(descriptor, _SIGINFO_BYTES * 16)
        except BlockingIOError:
            return
        for at in range(0, len(data), _SIGINFO_BYTES):
            # ssi_signo, ssi_errno, ssi_code, ssi_pid, ssi_uid
            number, _, _, pid, uid = struct.unpack_from("IiiII", data, at)
            yield Sender(number, pid, uid)

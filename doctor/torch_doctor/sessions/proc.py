"""Processes as /proc shows them: identity, descendants, memory. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_doctor.sessions.state import Process

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: the first PID namespace of a machine has this fixed inode number (include/linux/proc_ns.h, PROC_PID_INIT_INO)
FIRST_PID_NAMESPACE = "pid:[4026531836]"
INIT_PROGRAMS = frozenset({"tini", "docker-init", "dumb-init", "catatonit"})


@dataclass(frozen=True)
class Stat:
    """Fields of /proc/PID/stat. ``rss_bytes`` is resident memory, pages shared with others included."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    start_ticks: int
    rss_bytes: int


def parse_stat(text: str) -> Stat:
    """One line of /proc/PID/stat; the name may itself hold spaces and brackets.

    Raises:
        ValueError, IndexError: where it is not such a line.
    """
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition("(")
    fields = tail.split()
    return Stat(
        int(pid), name, fields[0], int(fields[1]), int(fields[2]), int(fields[19]), int(fields[21]) * PAGE_BYTES
    )


def stat_of(pid: int) -> Stat | None:
    """The process as it is now; None where there is none. A zombie is still one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    return None


def all_processes() -> dict[int, Stat]:
    """Every process that can be seen, by PID."""
    found = (stat_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {s.pid: s for s in found if s is not None}


def descendants(root: int, processes: Mapping[int, Stat]) -> list[Stat]:
    """Children of ``root``, their children and so on, parents before children; zombies too."""
    children: dict[int, list[Stat]] = {}
    for item in processes.values():
        children.setdefault(item.parent, []).append(item)
    found: list[Stat] = []
    queue = [root]
    while queue:
        below = children.pop(queue.pop(), [])
        found.extend(below)
        queue.extend(s.pid for s in below)
    return found


def of_session(name: str, folder: str, processes: Iterable[int]) -> list[int]:
    """PIDs whose environment says that they belong to a session: what a dead supervisor left behind."""
    wanted = {f"TORCH_DOCTOR_SESSION={name}".encode(), f"TORCH_DOCTOR_SESSION_DIR={folder}".encode()}
    found = []
    for pid in processes:
        with contextlib.suppress(OSError):
            if wanted <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                found.append(pid)
    return found


def identity(pid: int) -> Process | None:
    """The process, so that it is known again after PIDs were reused; None where there is none."""
    found = stat_of(pid)
    if found is None:
        return None
    return Process(
        pid, found.start_ticks, boot_id(), pid_namespace(), first_ticks(), os.uname().nodename, os.getuid()
    )


def alive(process: Process | None) -> bool:
    """True where that very process still runs here; a zombie does not."""
    if process is None or elsewhere(process):
        return False
    found = stat_of(process.pid)
    return found is not None and found.start_ticks == process.start_ticks and found.state not in "ZX"


def elsewhere(process: Process | None) -> bool:
    """True where the process belongs to another container or machine, and /proc says nothing of it."""
    if process is None:
        return False
    first = first_ticks() if process.first_ticks else 0  # hidden from this user, then or now: not compared
    same = (process.boot_id, process.pid_namespace) == (boot_id(), pid_namespace())
    return not same or (first != 0 and first != process.first_ticks)


def boot_id() -> str:
    """A random ID of this boot of the machine, "" where the kernel does not tell."""
    return _line("/proc/sys/kernel/random/boot_id")


def pid_namespace() -> str:
    """The PID namespace, as ``pid:[4026531836]``: processes of another one have other PIDs."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def first_ticks() -> int:
    """When PID 1 of this PID namespace started, clock ticks since boot; 0 where that is hidden."""
    found = stat_of(1)
    return found.start_ticks if found else 0


def is_container_main() -> bool:
    """True where this process is what a container lives by: PID 1, or the child of the init that is PID 1."""
    if os.getpid() == 1:
        return True
    parent = stat_of(os.getppid())
    if parent is not None and parent.name in INIT_PROGRAMS:
        return True
    return os.getppid() == 1 and pid_namespace() not in ("", FIRST_PID_NAMESPACE)


def group_to_stop(leader: int, processes: Mapping[int, Stat]) -> list[int]:
    """PIDs of a process group that a stop signals: all of it but the workers of Python's multiprocessing.

    Their parent ends those. A DataLoader worker that gets SIGTERM itself takes the training down ("DataLoader
    worker is killed by signal: Terminated") before its handler has written a checkpoint.
    """
    members = [s for s in processes.values() if s.group == leader and s.state not in "ZX"]
    lines = {s.pid: command_line(s.pid) for s in members}
    return [s.pid for s in members if s.pid == leader or not _is_worker(lines[s.pid], lines.get(s.parent, b""))]


def _is_worker(line: bytes, parents_line: bytes) -> bool:
    if b"multiprocessing" in line and any(mark in line for mark in _MULTIPROCESSING):
        return True
    program = line.split(b"\0", 1)[0].rsplit(b"/", 1)[-1]
    # a fork that ran no other program: the same command line as its parent's
    return program.startswith(b"python") and line == parents_line


#: how multiprocessing starts its processes under spawn and forkserver (multiprocessing.spawn.get_command_line)
_MULTIPROCESSING = (b"spawn_main", b"forkserver", b"resource_tracker")


def command_line(pid: int) -> bytes:
    """/proc/PID/cmdline: arguments with NULs between them; empty where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def send(pids: Iterable[int], number: int) -> int:
    """Signal each process; how many there were to signal."""
    sent = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            sent += 1
    return sent


def send_group(group: int, number: int) -> None:
    """Signal a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_name(number: int) -> str:
    """``9`` as ``SIGKILL``; ``SIGRTMIN+1`` has no name of its own: ``signal 35``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""

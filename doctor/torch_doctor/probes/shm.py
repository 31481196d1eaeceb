"""Looks at /dev/shm, at what dead processes left there, and at the fallback that stands in for it."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch_doctor.facts.request import Request
from torch_doctor.facts.shm import ABSENT, ACTIVE, DEFAULT_NEEDED_BYTES, INACTIVE, OFF, Leftover, ShmFacts
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import cgroup, container, isolated, mounts

PATH = Path("/dev/shm")
LIBRARY = Path("/usr/local/lib/torch-doctor/libtorch_doctor_shm.so")

#: bits of torch_doctor_shm_status(), in the order that fallback_reason takes them: images/shm/README.md
BITS = {
    "missing": 64,
    "unwritable": 128,
    "small": 32,
    "forced": 4,
    "off": 8,
    "large": 16,
    "no_memfd": 256,
    "no_folder": 512,
}
_ACTIVE_BIT, _OFF_BIT = 2, 8

#: names that training leaves behind, with the group that is the owner's pid where the name holds it
LEFTOVERS = (
    re.compile(r"(torch_(\d+)_)"),  # torch: torch_<pid>_<random>_<count>
    re.compile(r"(sem\.loky-(\d+)-)"),  # joblib
    re.compile(r"(joblib_memmapping_folder_(\d+)_)"),
    re.compile(r"(__KMP_REGISTERED_LIB_(\d+)_?)"),  # Intel and LLVM OpenMP
    re.compile(r"psm_[0-9a-f]{6,}$"),  # multiprocessing.shared_memory
    re.compile(r"wnsm_[0-9a-f]{6,}$"),
    re.compile(r"sem\.mp-[\w-]+$"),  # multiprocessing.SemLock
    re.compile(r"nccl-[A-Za-z0-9]{6}$"),
)
#: a file this young may belong to a process that is only starting; seconds
YOUNGEST = 60


def probe(request: Request) -> ShmFacts | ProbeFailure:
    """/dev/shm as it is, and what the requirements ask of it."""
    if sys.platform != "linux":
        return ProbeFailure("there is no /dev/shm outside Linux")
    size, free, inodes = _space()
    error = _try_to_write() if size else "ENOENT"
    fallback, reason = fallback_state(request)
    needed = request.requirements.shm_bytes
    host_ipc = container.is_container() and _shares_host_ipc()
    return ShmFacts(
        size_bytes=size,
        free_bytes=free,
        needed_bytes=DEFAULT_NEEDED_BYTES if needed is None else needed,
        needed_for=request.requirements.shm_source,
        error=error,
        kind=_kind(),
        free_inodes=inodes,
        leftovers=() if host_ipc else leftovers(PATH),
        map_count_limit=cgroup.number(Path("/proc/sys/vm/max_map_count")),
        fallback=fallback,
        fallback_reason=reason,
        memory_limit_bytes=memory_limit(),
        manager=container.manager(),
        host_ipc=host_ipc,
    )


def _space() -> tuple[int, int, int | None]:
    try:
        found = os.statvfs(PATH)
    except OSError:
        return 0, 0, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def _try_to_write() -> str:
    try:
        with tempfile.TemporaryFile(dir=PATH, buffering=0) as stream:
            stream.write(b"\0")  # a page, so that a full one shows
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return ""


def _kind() -> str:
    mount = mounts.of(str(PATH.resolve()), mounts.read())
    return mount.kind if mount else ""


def _shares_host_ipc() -> bool:
    try:
        # the machine's first IPC namespace has this fixed number: include/linux/proc_ns.h in the kernel's source
        return Path("/proc/self/ns/ipc").readlink() == Path("ipc:[4026531839]")
    except OSError:
        return False


def memory_limit() -> int | None:
    """The lowest memory limit of this process's control groups, or the machine's memory; bytes."""
    limit, _ = cgroup.smallest(cgroup.tree("memory").folders, "memory.max")
    if limit is None:
        limit, _ = cgroup.smallest(cgroup.tree("memory").folders, "memory.limit_in_bytes")
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return limit
    return total if limit is None else min(limit, total)


# -- leftovers -----------------------------------------------------------------------------------------------


def leftovers(folder: Path, now: float | None = None, proc: Path = Path("/proc")) -> tuple[Leftover, ...]:
    """Files whose owner is dead: its pid is in the name and gone, or no visible process has the file open.

    Only files of this user are judged (every file, for root): of other users' processes one cannot see what they
    hold. ``now`` is the time in seconds since the epoch.
    """
    now = time.time() if now is None else now
    old = [(name, size) for name, size, age in _files(folder, now) if age >= YOUNGEST]
    if not old:
        return ()
    held = _held(folder, proc)
    groups: dict[tuple[int | None, str], list[tuple[str, int]]] = {}
    for name, size in old:
        owner, prefix = owner_of(name)
        if name in held or (owner is not None and (proc / str(owner)).exists()):
            continue
        groups.setdefault((owner, prefix), []).append((name, size))
    found = (
        Leftover(tuple(sorted(n for n, _ in files)), sum(s for _, s in files), owner, prefix)
        for (owner, prefix), files in groups.items()
    )
    return tuple(sorted(found, key=lambda item: (-item.size_bytes, item.names)))


def owner_of(name: str) -> tuple[int | None, str]:
    """The pid in a leftover's name, and what only that owner's names begin with."""
    for pattern in LEFTOVERS:
        match = pattern.match(name)
        if match:
            return (int(match[2]), match[1]) if pattern.groups else (None, "")
    return None, ""


def _files(folder: Path, now: float) -> Iterator[tuple[str, int, float]]:
    """Name, bytes and age of this user's files that training may have left."""
    uid = os.geteuid()
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not any(pattern.match(entry.name) for pattern in LEFTOVERS):
            continue
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it went away while we looked
        if uid in (0, found.st_uid) and (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            yield entry.name, found.st_blocks * 512, now - max(found.st_mtime, found.st_ctime)


def _held(folder: Path, proc: Path) -> set[str]:
    """Names in ``folder`` that a visible process has open or mapped."""
    prefix = f"{folder}/"
    held: set[str] = set()
    for process in proc.glob("[0-9]*"):
        for target in [*_open_files(process), *_mapped(process)]:
            if target.startswith(prefix):
                held.add(target[len(prefix) :].split("/")[0])
    return held


def _open_files(process: Path) -> Iterator[str]:
    try:
        for link in (process / "fd").iterdir():
            yield str(link.readlink())
    except OSError:
        return  # another user's process, or one that has ended


def _mapped(process: Path) -> Iterable[str]:
    try:
        text = (process / "maps").read_text(errors="replace")
    except OSError:
        return ()
    return {line.split(None, 5)[5] for line in text.splitlines() if "/" in line and len(line.split(None, 5)) == 6}


# -- the fallback --------------------------------------------------------------------------------------------


def fallback_state(request: Request) -> tuple[str, str]:
    """The state of the fallback library in the user's interpreter, and the reason for it."""
    if not LIBRARY.exists():
        return ABSENT, ""
    status = _status(request)
    if status is None:
        return ABSENT, linkage(Path(request.python))
    return decode(status)


def decode(status: int) -> tuple[str, str]:
    """State and reason from torch_doctor_shm_status()."""
    order = ("no_memfd", "no_folder", *BITS) if not status & (_ACTIVE_BIT | _OFF_BIT) else tuple(BITS)
    reason = next((name for name in order if status & BITS[name]), "")
    if status & _ACTIVE_BIT:
        return ACTIVE, reason
    return (OFF if status & _OFF_BIT else INACTIVE), reason


def _status(request: Request) -> int | None:
    if Path(request.python).absolute() == Path(sys.executable).absolute():
        try:
            return int(ctypes.CDLL(None).torch_doctor_shm_status())
        except AttributeError:
            return None
    found = isolated.call("shm_fallback", {}, python=request.python, timeout=request.timeout)
    return None if isinstance(found, ProbeFailure) else found.get("status")


def linkage(program: Path) -> str:
    """``static`` or ``musl`` for a program that never reads /etc/ld.so.preload; else empty."""
    try:
        with program.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        return ""
    if head[:4] != b"\x7fELF" or len(head) < 64 or head[4] != 2 or head[5] != 1:
        return ""
    offset, width, number = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    for index in range(number):
        at = offset + index * width
        if at + 56 > len(head):
            return ""
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", head, at)
        if kind == 3:  # PT_INTERP
            return "musl" if b"ld-musl" in head[start : start + length] else ""
    return "static"


PROBES = {ShmFacts: probe}

"""Space and inodes of the folders that a run writes to, and who serves them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from torch_doctor.facts.filesystem import DESKTOP_KINDS, FsFacts, Place, labels
from torch_doctor.model import Finding, Remediation, Severity, mib
from torch_doctor.registry import check

#: less than this and the next download, log or checkpoint may not fit
LOW_BYTES = 1 << 30
#: temporary files are smaller; a tmpfs is often made no larger
LOW_TMP_BYTES = 256 << 20
LOW_INODES = 1000

_WRITTEN = ("workspace", "tmp", "home", "cache", "compile-cache", "checkpoints")


def _by_file_system(places: Iterable[Place]) -> Iterator[list[Place]]:
    # one file system mounted at several points is full once
    found: dict[tuple[Any, ...], list[Place]] = {}
    for place in places:
        key = (place.kind, place.total_bytes, place.free_bytes, place.total_inodes, place.free_inodes)
        found.setdefault(key, []).append(place)
    return iter(found.values())


def _free_some(place: Place, fs: FsFacts) -> Remediation:
    folder = shlex.quote(place.mount_point or place.path)
    if place.kind == "tmpfs" and fs.in_container:
        return Remediation("Mount it with a larger size", (f"docker run --tmpfs {folder}:exec,size=4g ...",))
    commands: tuple[str, ...] = (f"du -xh --max-depth=3 {folder} 2>/dev/null | sort -h | tail -20",)
    if fs.in_container and place.kind == "overlay":
        commands = ("docker system df", *commands)
    return Remediation("Make room, or write elsewhere; what takes the space", commands)


def _evidence(places: list[Place]) -> dict[str, Any]:
    first = places[0]
    return {
        "paths": [place.path for place in places],
        "mount_point": first.mount_point,
        "file_system": first.kind,
        "free_bytes": first.free_bytes,
        "total_bytes": first.total_bytes,
        "free_inodes": first.free_inodes,
        "total_inodes": first.total_inodes,
    }


@check("FS005", "disk-nearly-full")
def disk_nearly_full(fs: FsFacts) -> Iterator[Finding]:
    """A disk that the run writes to is full, or has little left.

    What it checks:
        Free space of the file systems that hold the working folder, home, TMPDIR, caches and checkpoints, for
        this user: below 1 GiB, or 256 MiB where it holds only temporary files. An error where a write has
        failed for it, also at a quota.
    Why it matters:
        "No space left on device" at the next checkpoint; a checkpoint that was half written replaces a good one.
    Example:
        docker run --tmpfs /tmp:exec,size=64m IMAGE python train.py
    Fix:
        Make room, a larger tmpfs, or another folder.
    References:
        https://man7.org/linux/man-pages/man3/statvfs.3.html
    """
    for places in _by_file_system(fs.of(*_WRITTEN)):
        first = places[0]
        failed = next((place.error for place in places if place.error in ("ENOSPC", "EDQUOT")), "")
        small = all(place.role in ("tmp", "compile-cache") for place in places)
        low = LOW_TMP_BYTES if small else LOW_BYTES
        usable = not first.error and first.total_bytes > 0
        inodes_left = first.free_inodes > 0 or first.total_inodes == 0
        if failed and (inodes_left or failed == "EDQUOT"):
            what = "quota is used up" if failed == "EDQUOT" else "disk is full"
            message = f"the {what}: {labels(places)} ({mib(first.free_bytes)} of {mib(first.total_bytes)} free)"
            yield Finding(Severity.ERROR, message, _free_some(first, fs), evidence=_evidence(places))
        elif usable and not failed and first.free_bytes < low:
            message = f"{mib(first.free_bytes)} of {mib(first.total_bytes)} is free for {labels(places)}"
            yield Finding(Severity.WARNING, message, _free_some(first, fs), evidence=_evidence(places))


@check("FS006", "inodes-nearly-used-up")
def inodes_nearly_used_up(fs: FsFacts) -> Iterator[Finding]:
    """A disk has space, and no room for more files.

    What it checks:
        Free inodes of the same file systems: fewer than 1000 is a warning, none an error. File systems that
        make inodes as they need them (btrfs, many network ones) report none at all and are not judged.
    Why it matters:
        "No space left on device" while df shows space. Unpacked data sets of small files do that.
    Example:
        An image data set of 5 million files on a disk made for 3 million.
    Fix:
        Keep samples in archives (tar shards, HDF5, LMDB); remove what is not needed.
    References:
        https://man7.org/linux/man-pages/man3/statvfs.3.html
    """
    for places in _by_file_system(fs.of(*_WRITTEN)):
        first = places[0]
        judged = first.error in ("", "ENOSPC") and first.total_inodes > 0
        if not judged or first.free_inodes >= LOW_INODES:
            continue
        folder = shlex.quote(first.mount_point or first.path)
        yield Finding(
            Severity.WARNING if first.free_inodes else Severity.ERROR,
            f"{first.free_inodes} of {first.total_inodes} inodes are free for {labels(places)}",
            Remediation(
                "Remove files that are not needed; where they are",
                (f"du -x --inodes --max-depth=3 {folder} 2>/dev/null | sort -n | tail -20",),
            ),
            evidence=_evidence(places),
        )


@check("FS007", "disk-too-small-for-run")
def disk_too_small_for_run(fs: FsFacts) -> Iterator[Finding]:
    """There is less free space than the run was said to need.

    What it checks:
        --need disk=SIZE against the free space where the script saves its checkpoints, or else of the working
        folder.
    Why it matters:
        The run fails hours in, at the checkpoint that no longer fits.
    Example:
        torch-doctor check --need disk=200g train.py
    Fix:
        Make room, save fewer checkpoints, or save elsewhere.
    References:
        https://man7.org/linux/man-pages/man3/statvfs.3.html
    """
    if fs.needed_bytes is None:
        return
    places = fs.of("checkpoints") or fs.of("workspace")
    for group in _by_file_system(place for place in places if place.error in ("", "ENOSPC", "EDQUOT")):
        first = group[0]
        if first.free_bytes < fs.needed_bytes:
            yield Finding(
                Severity.ERROR,
                f"{mib(first.free_bytes)} is free for {labels(group)}; this run needs {mib(fs.needed_bytes)}",
                _free_some(first, fs),
                evidence={**_evidence(group), "needed_bytes": fs.needed_bytes},
            )


@check("FS008", "tmp-on-network-file-system")
def tmp_on_network_file_system(fs: FsFacts) -> Iterator[Finding]:
    """Temporary files go to another machine.

    What it checks:
        The file system of TMPDIR, or /tmp without it. Data, homes and caches on a network file system are usual
        and no fault.
    Why it matters:
        Sockets of workers and tmux do not work on some, locks are slow on all, and every compile waits for the
        network.
    Example:
        TMPDIR=$HOME/tmp on a cluster with homes on NFS.
    Fix:
        TMPDIR on the node's own disk.
    References:
        https://man7.org/linux/man-pages/man5/nfs.5.html
    """
    for place in fs.of("tmp"):
        # a sandbox whose whole root is served that way has nothing else to offer
        if place.is_network and not place.error and not (place.kind in DESKTOP_KINDS and place.mount_point == "/"):
            yield Finding(
                Severity.WARNING,
                f"{place.label} is on a network file system ({place.kind}, mounted at {place.mount_point})",
                Remediation("Use the machine's own disk", ("export TMPDIR=/tmp",) if place.origin else ()),
                evidence=_evidence([place]),
            )


@check("FS015", "files-on-desktop-share", tags={"container"})
def files_on_desktop_share(fs: FsFacts) -> Iterator[Finding]:
    """The working folder, or the data, is a folder of another operating system, served file by file.

    What it checks:
        The file system of the working folder and of the script's data: 9p (WSL's /mnt/c), virtiofs or the ones of
        desktop engines, where not the whole root is served so.
    Why it matters:
        Opening a file takes milliseconds there: a data set of small files starves the GPU, imports take minutes.
    Example:
        cd /mnt/c/Users/me/project && python train.py
    Fix:
        Copy code and data onto the Linux side: a named volume, or the home of the WSL distribution.
    References:
        https://learn.microsoft.com/windows/wsl/filesystems
    """
    for places in _by_file_system(fs.of("workspace", "data")):
        first = places[0]
        if first.kind in DESKTOP_KINDS and first.mount_point != "/" and not first.error:
            command = "docker run --mount type=volume,source=work,target=/workspace ..." if fs.in_container else ""
            yield Finding(
                Severity.NOTE,
                f"{labels(places)} comes through {first.kind} (mounted at {first.mount_point}): slow for many files",
                Remediation("Copy it onto a Linux file system", tuple(filter(None, (command,)))),
                evidence=_evidence(places),
            )


@check("FS011", "file-size-limited")
def file_size_limited(fs: FsFacts) -> Iterator[Finding]:
    """Files of this process cannot grow beyond a limit.

    What it checks:
        RLIMIT_FSIZE (ulimit -f).
    Why it matters:
        A checkpoint that reaches it ends with "File too large", or the process with SIGXFSZ.
    Example:
        ulimit -f 1000000; python train.py
    Fix:
        ulimit -f unlimited, or docker run --ulimit fsize=-1:-1 ...
    References:
        https://man7.org/linux/man-pages/man2/getrlimit.2.html
    """
    if fs.file_size_bytes is None:
        return
    command = "docker run --ulimit fsize=-1:-1 ..." if fs.in_container else "ulimit -f unlimited"
    yield Finding(
        Severity.WARNING,
        f"files can grow to {mib(fs.file_size_bytes)} (ulimit -f)",
        Remediation("Lift the limit where the run is started", (command,)),
        evidence={"file_size_bytes": fs.file_size_bytes},
    )


@check("FS013", "file-system-gives-no-answer")
def file_system_gives_no_answer(fs: FsFacts) -> Iterator[Finding]:
    """A folder that the run needs is on a file system that does not answer.

    What it checks:
        Each folder on a network file system, or one in user space, is tried in a child process with a time limit.
    Why it matters:
        Whatever touches it waits for ever, uninterruptibly: a loader, ls, the shell's prompt.
    Example:
        An NFS server that was restarted, or is behind a firewall now.
    Fix:
        Bring the server back, or unmount it: umount -f -l FOLDER.
    References:
        https://man7.org/linux/man-pages/man5/nfs.5.html
        https://man7.org/linux/man-pages/man8/umount.8.html
    """
    for place in fs.places:
        if place.error == "TIMEOUT":
            point = shlex.quote(place.mount_point or place.path)
            yield Finding(
                Severity.ERROR,
                f"{place.label} gives no answer ({place.kind or 'unknown file system'}, mounted at {point})",
                Remediation("Bring its server back, or unmount it", (f"sudo umount -f -l {point}",)),
                evidence=_evidence([place]),
            )

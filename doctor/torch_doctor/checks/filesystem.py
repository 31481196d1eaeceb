"""Folders that a run writes and reads: permission, owner, executable mappings, names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from torch_doctor.facts.filesystem import FsFacts, Place, labels
from torch_doctor.model import Finding, Remediation, Severity
from torch_doctor.registry import check

#: what the errno means for the folder; a full disk is FS005, no answer FS013
REASONS = {
    "EACCES": "may not write there",
    "EPERM": "may not write there",
    "EROFS": "the file system is mounted read-only",
    "ENOTDIR": "a part of the path is not a folder",
    "ELOOP": "the links of the path lead in a circle",
    "ENOENT": "it does not exist and cannot be made",
    "ENAMETOOLONG": "the path is too long",
    "EIO": "the disk gives an input/output error",
    "ESTALE": "the network file system has lost it (stale file handle)",
}
_ELSEWHERE = ("", "ENOSPC", "EDQUOT", "TIMEOUT")

#: what the owner needs to create a file in a folder
OWNER_WRITES = 0o300

#: the owner that an unmapped user has in a user namespace
OVERFLOW_UID = 65534


def is_unwritable(place: Place) -> bool:
    """No file could be made there, for another reason than space or a silent server."""
    return place.error not in _ELSEWHERE


def _why(place: Place, fs: FsFacts) -> str:
    reason = REASONS.get(place.error, place.error)
    if place.error in ("EACCES", "EPERM"):
        folder = "it" if place.exists else place.nearest
        return (
            f"uid {fs.uid} {reason}: {folder} belongs to {place.owner_uid}:{place.owner_gid}, mode {place.mode:04o}"
        )
    return reason


def _evidence(place: Place, fs: FsFacts) -> dict[str, Any]:
    return {
        "path": place.path,
        "nearest": place.nearest,
        "errno": place.error,
        "owner_uid": place.owner_uid,
        "owner_gid": place.owner_gid,
        "mode": f"{place.mode:04o}",
        "uid": fs.uid,
        "gid": fs.gid,
        "file_system": place.kind,
        "mount_point": place.mount_point,
    }


def make_writable(place: Place, fs: FsFacts) -> Remediation:
    """What gives this user the folder: another user, another owner, another mount."""
    if place.error in ("EACCES", "EPERM"):
        return _permit(place, fs)
    path = shlex.quote(place.path)
    if place.error == "EROFS" and fs.in_container:
        mount = f"docker run --mount type=volume,target={path} ..."
        if place.role == "workspace":
            mount = f'docker run -v "$PWD":{path} ...'
        return Remediation(
            "Mount a writable folder there, without :ro or readOnly: true; in Kubernetes an emptyDir will do",
            (mount,),
        )
    if place.error == "EROFS":
        return Remediation(
            "See why it is read-only, then", (f"mount -o remount,rw {shlex.quote(place.mount_point)}",)
        )
    return Remediation("Name a folder that can be made", (f"mkdir -p {path}",))


def _permit(place: Place, fs: FsFacts) -> Remediation:
    owner, mine = f"{place.owner_uid}:{place.owner_gid}", f"{fs.uid}:{fs.gid}"
    target = shlex.quote(place.nearest)
    if place.owner_uid == fs.uid and place.mode & OWNER_WRITES == OWNER_WRITES:
        return Remediation(
            "The mode allows it, so a security module (SELinux, AppArmor) denies it: give the mount a label",
            (f'docker run -v "$PWD":{target}:Z ...',) if fs.in_container else (f"ls -dZ {target}",),
        )
    if place.owner_uid == fs.uid:
        return Remediation("It is this user's own folder", (f"chmod u+rwx {target}",))
    if not fs.in_container:
        return Remediation("Make the folder this user's", (f"sudo chown -R {mine} {target}",))
    if place.owner_uid == OVERFLOW_UID and fs.uid != OVERFLOW_UID:
        return Remediation(
            "Its owner has no number in this container: map the user who starts it",
            ("podman run --userns=keep-id ...",),
        )
    chown = f"sudo chown -R {mine} ."
    if place.owner_uid == 0:
        text = f"On the host, in the folder that is mounted there; in Kubernetes: securityContext.fsGroup: {fs.gid}"
        return Remediation(text, (chown,))
    text = (
        f"Run as its owner (compose: user: {owner!r}; Kubernetes: securityContext.runAsUser: {place.owner_uid}), "
        "or give the folder to this user on the host"
    )
    return Remediation(text, (f"docker run --user {owner} ...", chown))


@check("FS001", "workspace-not-writable", tags={"container", "permissions"})
def workspace_not_writable(fs: FsFacts) -> Iterator[Finding]:
    """The working folder cannot be written to: logs, checkpoints and results have no place.

    What it checks:
        A file is created in the working folder, written and removed. A mount that is read-only in a container is
        a note, since that may be meant; checkpoints that a script puts there are FS014.
    Why it matters:
        The first write fails, for many scripts at the end of the first epoch.
    Example:
        docker run -v "$PWD":/workspace IMAGE python train.py     # "$PWD" belongs to uid 1001, trainer is 1000
    Fix:
        docker run --user $(id -u):$(id -g) ..., user: "1001:1001" in compose, securityContext.runAsUser or
        fsGroup in Kubernetes; or chown -R 1000:1000 on the host.
    References:
        https://docs.docker.com/reference/cli/docker/container/run/#user
    """
    for place in fs.of("workspace"):
        if not is_unwritable(place):
            continue
        meant = place.error == "EROFS" and fs.in_container
        severity = Severity.NOTE if meant else Severity.ERROR if fs.in_container else Severity.WARNING
        yield Finding(
            severity,
            f"nothing can be written to the working folder {place.path}: {_why(place, fs)}",
            make_writable(place, fs),
            evidence=_evidence(place, fs),
        )


@check("FS002", "tmp-not-writable", tags={"container", "permissions"})
def tmp_not_writable(fs: FsFacts) -> Iterator[Finding]:
    """The folder for temporary files cannot be used.

    What it checks:
        TMPDIR, or /tmp without it, exists, and a file can be created, written and removed there.
    Why it matters:
        Workers' sockets, compilers, tmux and most libraries need it. Python falls back to another folder where
        TMPDIR is unusable, gcc and tmux do not.
    Example:
        docker run --read-only IMAGE python train.py
    Fix:
        docker run --read-only --tmpfs /tmp:exec ..., tmpfs: [/tmp:exec] in compose, an emptyDir on /tmp in
        Kubernetes. exec: torch.compile loads what it builds from there.
    References:
        https://docs.docker.com/engine/storage/tmpfs/
        https://docs.python.org/3/library/tempfile.html#tempfile.gettempdir
    """
    for place in fs.of("tmp"):
        if not is_unwritable(place) and (place.exists or place.error):
            continue
        path = shlex.quote(place.path)
        if not is_unwritable(place):
            why, remedy = "it does not exist", Remediation("Make the folder, or unset TMPDIR", (f"mkdir -p {path}",))
        else:
            why, remedy = _why(place, fs), make_writable(place, fs)
            if fs.in_container:
                remedy = Remediation(
                    "Mount a tmpfs there, with exec for torch.compile; in Kubernetes an emptyDir",
                    (f"docker run --tmpfs {path}:exec ...",),
                )
        yield Finding(
            Severity.ERROR,
            f"temporary files have no place in {place.label}: {why}",
            remedy,
            evidence=_evidence(place, fs),
        )


@check("FS003", "cache-not-writable", tags={"container", "permissions"})
def cache_not_writable(fs: FsFacts) -> Iterator[Finding]:
    """The home, or a cache that a variable names, cannot be written to.

    What it checks:
        HOME, and where they are set XDG_CACHE_HOME, HF_HOME, TORCH_HOME, MPLCONFIGDIR, TORCH_EXTENSIONS_DIR and the
        like: a file is created, written and removed in the folder, or in the nearest one above it that exists. A
        folder that can be made on demand is no fault. Several variables with one cause are one finding. Caches of
        torch.compile are CMP.
    Why it matters:
        Downloads of models and data fail with "Permission denied", or are made anew in every run.
    Example:
        docker run --user 12345:12345 SOME_IMAGE python train.py      # HOME is / and belongs to root
    Fix:
        docker run -e HOME=/tmp ..., or a volume that the user owns.
    References:
        https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hfhome
    """
    told = [place for place in fs.of("workspace", "tmp") if is_unwritable(place)]
    causes: dict[tuple[str, str], list[Place]] = {}
    for place in fs.of("home", "cache"):
        if is_unwritable(place) and not any(place.is_below(other.path) for other in told):
            causes.setdefault((place.nearest, place.error), []).append(place)
    for places in causes.values():
        first = places[0]
        yield Finding(
            Severity.WARNING,
            f"{labels(places)} cannot be written to: {_why(first, fs)}",
            _move(places, fs),
            evidence={**_evidence(first, fs), "variables": [place.origin for place in places if place.origin]},
        )


def _move(places: list[Place], fs: FsFacts) -> Remediation:
    settings = [
        f"{place.origin or 'HOME'}=/tmp{'' if place.role == 'home' else '/' + (place.origin or 'cache').lower()}"
        for place in places
    ]
    text = "Point it at a folder that this user can write to, or mount a volume of this user's there"
    if fs.in_container:
        return Remediation(text, (f"docker run {' '.join('-e ' + setting for setting in settings)} ...",))
    own = _permit(places[0], fs).commands if places[0].error in ("EACCES", "EPERM") else ()
    return Remediation(text, (f"export {' '.join(settings)}", *own))


@check("FS004", "folder-noexec", tags={"container"})
def folder_noexec(fs: FsFacts) -> Iterator[Finding]:
    """What is built in the folder for temporary files, or for extensions, cannot be loaded from there.

    What it checks:
        A page of a file in TMPDIR (or /tmp) and TORCH_EXTENSIONS_DIR can be mapped executable. Caches of
        torch.compile are CMP.
    Why it matters:
        Compiled kernels and C++ extensions are shared libraries that are loaded from where they were built:
        "failed to map segment from shared object".
    Example:
        docker run --read-only --tmpfs /tmp IMAGE python train.py     # Docker mounts it noexec
    Fix:
        docker run --tmpfs /tmp:exec ..., or TMPDIR on a file system without noexec.
    References:
        https://docs.docker.com/engine/storage/tmpfs/
    """
    mounts: dict[str, list[Place]] = {}
    for place in fs.of("tmp", "cache"):
        if place.executable is False and (place.role == "tmp" or place.origin == "TORCH_EXTENSIONS_DIR"):
            mounts.setdefault(place.mount_point, []).append(place)
    for point, places in mounts.items():
        path = shlex.quote(point)
        command = f"docker run --tmpfs {path}:exec ..." if fs.in_container else f"sudo mount -o remount,exec {path}"
        yield Finding(
            Severity.WARNING,
            f"mounted noexec: {labels(places)}; libraries that are built there cannot be loaded",
            Remediation("Mount it with exec, or name a folder elsewhere", (command,)),
            evidence=_evidence(places[0], fs),
        )


@check("FS009", "uid-without-name", tags={"container", "permissions"})
def uid_without_name(fs: FsFacts) -> Iterator[Finding]:
    """The user has a number and no name.

    What it checks:
        The password database has an entry for the effective user, or LOGNAME or USER names it.
    Why it matters:
        getpass.getuser() raises KeyError, or OSError from Python 3.13 on: libraries that name a folder or a run
        after the user fail.
    Example:
        docker run --user 12345:12345 IMAGE python train.py
    Fix:
        docker run --user 12345:12345 -e USER=trainer ...
    References:
        https://docs.python.org/3/library/getpass.html#getpass.getuser
    """
    if fs.has_name or fs.named_by:
        return
    flag = f"docker run --user {fs.uid}:{fs.gid} -e USER=trainer ..."
    yield Finding(
        Severity.NOTE,
        f"uid {fs.uid} has no name, and neither USER nor LOGNAME is set",
        Remediation("Give it one", (flag if fs.in_container else "export USER=trainer",)),
        evidence={"uid": fs.uid, "gid": fs.gid},
    )


@check("FS010", "files-owned-by-root", tags={"container", "permissions"})
def files_owned_by_root(fs: FsFacts) -> Iterator[Finding]:
    """The container's root writes into a folder of another user.

    What it checks:
        In a container, uid 0 with a working folder, or one for checkpoints, that is mounted from outside and
        belongs to somebody else.
    Why it matters:
        Checkpoints and logs then belong to root on the host: their owner cannot remove or overwrite them.
    Example:
        docker run --user 0:0 -v "$PWD":/workspace IMAGE python train.py
    Fix:
        docker run --user $(id -u):$(id -g) ...
    References:
        https://docs.docker.com/reference/cli/docker/container/run/#user
    """
    told: set[str] = set()
    for place in fs.of("workspace", "checkpoints"):
        foreign = place.is_mounted and place.mount_point not in told and place.owner_uid not in (0, OVERFLOW_UID)
        if fs.uid == 0 and fs.in_container and foreign and not place.error:
            told.add(place.mount_point)
            yield Finding(
                Severity.NOTE,
                f"files written to {place.path} will belong to root; the folder belongs to uid {place.owner_uid}",
                Remediation("Run as its owner", (f"docker run --user {place.owner_uid}:{place.owner_gid} ...",)),
                evidence=_evidence(place, fs),
            )


@check("FS012", "data-not-readable", tags={"permissions"})
def data_not_readable(fs: FsFacts) -> Iterator[Finding]:
    """Data that the script names is there, and this user may not read it.

    What it checks:
        Read permission of the files and folders that the script opens by a constant path. One that is not there
        is no fault: it may be made or downloaded by the run.
    Why it matters:
        The run fails at its first batch.
    Example:
        A data set that another user copied with a umask of 077.
    Fix:
        chmod -R a+rX, or the owner's --user.
    References:
        https://man7.org/linux/man-pages/man2/access.2.html
    """
    for place in fs.of("data"):
        blocked = place.exists and not place.readable
        if not blocked and place.error != "EACCES":
            continue
        target = shlex.quote(place.path)
        command = f"docker run --user {place.owner_uid}:{place.owner_gid} ..." if fs.in_container else ""
        yield Finding(
            Severity.ERROR,
            f"uid {fs.uid} may not read {place.path}: it belongs to {place.owner_uid}:{place.owner_gid}, "
            f"mode {place.mode:04o}",
            Remediation(
                "Let this user read it, or run as its owner",
                (f"sudo chmod -R a+rX {target}", *filter(None, (command,))),
            ),
            evidence=_evidence(place, fs),
        )


@check("FS014", "checkpoints-not-writable", tags={"permissions"})
def checkpoints_not_writable(fs: FsFacts) -> Iterator[Finding]:
    """The script saves its checkpoints where nothing can be written.

    What it checks:
        Each path that the script saves to: a file is created, written and removed in it, or in the nearest
        folder above it that exists.
    Why it matters:
        torch.save fails after the first epoch, and the epoch is lost.
    Example:
        torch.save(model.state_dict(), "/checkpoints/last.pt")      # a volume that belongs to root
    Fix:
        The owner's --user, chown, or a path that this user can write to.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.save.html
    """
    workspace = {place.nearest for place in fs.of("workspace") if is_unwritable(place) and place.error != "EROFS"}
    for place in fs.of("checkpoints"):
        if is_unwritable(place) and place.nearest not in workspace:
            yield Finding(
                Severity.ERROR,
                f"checkpoints cannot be saved in {place.path}: {_why(place, fs)}",
                make_writable(place, fs),
                evidence=_evidence(place, fs),
            )

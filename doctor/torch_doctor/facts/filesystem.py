"""The folders that a run reads and writes: what they are on, whose they are, what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

#: file systems that another machine serves: https://github.com/torvalds/linux/blob/master/include/uapi/linux/magic.h
NETWORK_KINDS = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "orangefs",
        "pvfs2", "weka", "wekafs", "panfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse",
        "fuse.rclone", "fuse.mount-s3", "fuse.juicefs", "fuse.goofys", "fuse.blobfuse2", "fuse.cephfs", "9p",
        "virtiofs", "fuse.grpcfuse", "fakeowner",
    }
)  # fmt: skip
#: of these, what a desktop's engine serves its own folders with: no network, but as slow for small files
DESKTOP_KINDS = frozenset({"9p", "virtiofs", "fuse.grpcfuse", "fakeowner"})


@dataclass(frozen=True)
class Place:
    """One folder that the run uses. Sizes are bytes.

    Args:
        role: "workspace", "home", "tmp", "cache", "compile-cache", "checkpoints" or "data".
        path: as it was named.
        origin: the variable that names it; empty for a default.
        nearest: ``path``, or the nearest folder above it that exists: what a run would create it in.
        exists: whether ``path`` itself is there.
        error: symbolic errno of what failed (``EACCES``, ``EROFS``, ``ENOSPC``, ``ENOTDIR``), empty where a file
            could be created, written and removed; ``TIMEOUT`` where the file system gave no answer.
        executable: whether a page of a file there can be mapped executable; None where nobody could look.
        readable: whether it can be listed (a folder) or read (a file).
        kind: type of the file system, ``ext4``.
        mount_point: where that is mounted.
        mount_root: the folder of it that is mounted there: for a bind mount, the host's folder.
        read_only: whether that mount is.
        owner_uid: owner of ``nearest``.
        mode: permission bits of ``nearest``.
    """

    role: str
    path: str
    origin: str = ""
    nearest: str = ""
    exists: bool = True
    error: str = ""
    executable: bool | None = None
    readable: bool = True
    kind: str = ""
    mount_point: str = ""
    mount_root: str = "/"
    read_only: bool = False
    owner_uid: int = 0
    owner_gid: int = 0
    mode: int = 0o755
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int = 0
    total_inodes: int = 0

    @property
    def is_network(self) -> bool:
        """True where the folder is served from elsewhere."""
        return self.kind in NETWORK_KINDS

    @property
    def is_mounted(self) -> bool:
        """True where something is mounted at the folder or between it and the root."""
        return self.mount_point not in ("", "/")

    @property
    def label(self) -> str:
        """``HF_HOME /data/hf``, or ``home /root``."""
        return f"{self.origin or self.role} {self.path}"

    def is_below(self, folder: str) -> bool:
        """Whether it is ``folder``, in it, or would be made in it."""
        return PurePath(self.path).is_relative_to(folder) or self.nearest == folder


@dataclass(frozen=True)
class FsFacts:
    """The places, and who this process is.

    Args:
        places: in the order of their roles.
        uid: effective user.
        has_name: whether the password database names it.
        named_by: the variable that gives a name instead (USER, LOGNAME); empty without one.
        home_set: whether HOME is set.
        file_size_bytes: RLIMIT_FSIZE; None without a limit.
        needed_bytes: free space asked for (``--need disk=``, the script's checkpoints); None where nothing was.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    places: tuple[Place, ...]
    uid: int
    gid: int
    has_name: bool = True
    named_by: str = ""
    home_set: bool = True
    file_size_bytes: int | None = None
    needed_bytes: int | None = None
    manager: str = ""

    @property
    def in_container(self) -> bool:
        """True in a container."""
        return self.manager in ("docker", "kubernetes")

    def of(self, *roles: str) -> tuple[Place, ...]:
        """The places with one of these roles."""
        return tuple(place for place in self.places if place.role in roles)


def labels(places: Sequence[Place], shown: int = 3) -> str:
    """``workspace /work, tmp /tmp, HF_HOME /hf and 4 more``."""
    names = list(dict.fromkeys(place.label for place in places))
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more

"""What /dev/shm is and holds, and what stands in for it."""

from __future__ import annotations

from dataclasses import dataclass

#: without a script that says otherwise; Docker's own default is 64 MiB
DEFAULT_NEEDED_BYTES = 1 << 30
#: a process may map this many areas by default: https://docs.kernel.org/admin-guide/sysctl/vm.html#max-map-count
DEFAULT_MAP_COUNT = 65530

#: states of the shared-memory fallback library (images/shm/README.md)
ABSENT, ACTIVE, OFF, INACTIVE = "absent", "active", "off", "inactive"


@dataclass(frozen=True)
class Leftover:
    """Files that a dead process left in /dev/shm. ``owner_pid`` is None where the name does not hold it."""

    names: tuple[str, ...]
    size_bytes: int
    owner_pid: int | None = None
    prefix: str = ""  # what all the names of that owner begin with, and no other's


@dataclass(frozen=True)
class ShmFacts:
    """/dev/shm. Sizes are bytes, from statvfs; ``needed_bytes`` is what the run needs of it.

    Args:
        needed_for: what needs that much; empty for the default.
        error: symbolic errno of what failed (``ENOENT``, ``EROFS``, ``EACCES``, ``ENOSPC``), empty where a file
            could be made.
        kind: type of its file system; empty where the mount table does not say.
        free_inodes: None where the file system does not count them.
        leftovers: of dead owners, largest first.
        map_count_limit: vm.max_map_count; None where it cannot be read.
        fallback: ABSENT, ACTIVE, OFF or INACTIVE: the shared-memory fallback in the user's interpreter.
        fallback_reason: ``small``, ``missing``, ``unwritable``, ``forced``, ``off``, ``large``, ``no_memfd``,
            ``no_folder``; ``static`` or ``musl`` where the library is there and that interpreter cannot load it.
        memory_limit_bytes: what bounds the fallback: the control group's limit, or the machine's memory.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
        host_ipc: True in a container that shares the host's /dev/shm.
    """

    size_bytes: int
    free_bytes: int
    needed_bytes: int = DEFAULT_NEEDED_BYTES
    needed_for: str = ""
    error: str = ""
    kind: str = "tmpfs"
    free_inodes: int | None = None
    leftovers: tuple[Leftover, ...] = ()
    map_count_limit: int | None = None
    fallback: str = ABSENT
    fallback_reason: str = ""
    memory_limit_bytes: int | None = None
    manager: str = ""
    host_ipc: bool = False

    @property
    def fallback_covers(self) -> bool:
        """True where the fallback is active, and memory is enough for what this run's workers put into it."""
        limit = self.memory_limit_bytes
        # without a script the need is a rule of thumb, which is no reason to call memory too small
        enough = limit is None or not self.needed_for or self.needed_bytes <= limit
        return self.fallback == ACTIVE and enough

    @property
    def leftover_bytes(self) -> int:
        """What removing the leftovers gives back."""
        return sum(item.size_bytes for item in self.leftovers)

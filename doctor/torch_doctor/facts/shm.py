"""What /dev/shm is and holds."""

from __future__ import annotations

from dataclasses import dataclass

#: without a script that says otherwise; Docker's own default is 64 MiB
DEFAULT_NEEDED_BYTES = 1 << 30


@dataclass(frozen=True)
class ShmFacts:
    """/dev/shm. Sizes are bytes, from statvfs; ``needed_bytes`` is what the run needs of it."""

    size_bytes: int
    free_bytes: int
    needed_bytes: int = DEFAULT_NEEDED_BYTES
    needed_for: str = ""

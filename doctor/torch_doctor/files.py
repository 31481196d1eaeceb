"""Writes a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace ``path`` by ``data``: temporary file, fsync, rename. A reader sees the old file or the whole new one.

    ``mode`` is the file's permissions; without it, those that the umask gives to a new file.

    Raises:
        OSError: where the folder or the disk refuses; the old file is then as it was.
    """
    import tempfile  # 5 ms of every start, for the few commands that write a file

    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask() if mode is None else mode)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

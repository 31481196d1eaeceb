"""``logs``: a session's output, as it was written or readable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from torch_doctor.sessions import foreground, launch, log, store
from torch_doctor.sessions.plain import plain_lines


def show(place: Path, *, follow: bool, lines: int | None, plain: bool) -> None:
    """Write the log to stdout.

    Args:
        place: the session's folder.
        follow: go on until the session ends.
        lines: only the last so many; None for all, rotated files included.
        plain: progress bars as they ended, no colours.
    """
    path = place / store.LOG
    start = log.tail_offset(path, lines) if lines is not None and path.exists() else log.BEGINNING
    live = follow and launch.current(place).live
    sys.stdout.flush()
    output = sys.stdout.fileno()
    if live and not plain:
        _follow(place, output, start)
        return
    blocks = _through_pipe(place, start) if live else _read(place, start)
    if plain:
        blocks = (line.encode(errors="replace") + b"\n" for line in plain_lines(blocks))
    for block in blocks:
        _write(output, block)


def _read(place: Path, start: int) -> Iterator[bytes]:
    yield from log.chunks(place / store.LOG, start)
    # what the log could not take at the end lies in the runtime folder
    yield from log.chunks(store.fallback_to(place).with_suffix(".log-tail"))


def _follow(place: Path, output: int, start: int) -> None:
    try:
        foreground.stream(place, output, offset=start)
    except KeyboardInterrupt:
        return


def _through_pipe(place: Path, start: int) -> Iterator[bytes]:
    """The blocks of a running session, as they come: written by a forked reader into a pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            _follow(place, writer, start)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while block := stream.read(1 << 16):
            yield block
    os.waitpid(pid, 0)


def _write(output: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(output, view) :]

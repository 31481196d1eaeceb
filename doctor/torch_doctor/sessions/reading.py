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
    earlier = log.files(path)[:-1] if lines is None else []
    start = log.tail_offset(path, lines) if lines is not None and path.exists() else 0
    live = follow and launch.current(place).live
    sys.stdout.flush()
    output = sys.stdout.fileno()
    if live and not plain:
        for block in _blocks(earlier):
            _write(output, block)
        _follow(place, output, start)
        return
    blocks = _read(earlier, path, start, place)
    if live:
        blocks = _through_pipe(place, start, earlier)
    if not plain:
        for block in blocks:
            _write(output, block)
        return
    for line in plain_lines(blocks):
        _write(output, line.encode(errors="replace") + b"\n")


def _read(earlier: list[Path], path: Path, start: int, place: Path) -> Iterator[bytes]:
    yield from _blocks(earlier)
    yield from log.chunks(path, start)
    # what the log could not take at the end lies in the runtime folder
    yield from log.chunks(store.fallback_to(place).with_suffix(".log-tail"))


def _blocks(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        yield from log.chunks(path)


def _follow(place: Path, output: int, start: int) -> None:
    try:
        foreground.stream(place, output, offset=start)
    except KeyboardInterrupt:
        return


def _through_pipe(place: Path, start: int, earlier: list[Path]) -> Iterator[bytes]:
    """The blocks of a running session, as they come: written by a forked reader into a pipe."""
    yield from _blocks(earlier)
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

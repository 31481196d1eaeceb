"""The log: every byte that the command wrote. The supervisor writes it, views and ``logs`` read it.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from torch_doctor.sessions.state import LogGap

#: output kept in memory while the log cannot be written; the oldest goes first
HOLD_BYTES = 8 << 20
CHUNK_BYTES = 1 << 16
BEGINNING = -1


class LogWriter:
    """Appends to the log, and goes on when that fails: output is held, counted, and written when it can be.

    Args:
        path: the log file; appended to.
        limit_bytes: from this size on it is rotated to ``log.1``, ``log.2`` ...; 0 never.
        keep: how many rotated files stay.
        hold_bytes: how much is held in memory while the file system refuses.
    """

    def __init__(self, path: Path, *, limit_bytes: int = 0, keep: int = 5, hold_bytes: int = HOLD_BYTES) -> None:
        self.path = path
        self.limit_bytes, self.keep, self.hold_bytes = limit_bytes, keep, hold_bytes
        self.held = bytearray()
        self.dropped = 0
        self.error = ""
        self.gaps: list[LogGap] = []
        self.file_bytes = 0
        self._descriptor = -1
        self._reopen()

    def write(self, data: bytes) -> bool:
        """Append ``data``. True where it is in the file now, False where it is held."""
        if self.held or self._descriptor < 0:
            self._hold(data)
            return False
        view = memoryview(data)
        while view:
            if self.limit_bytes and self.file_bytes >= self.limit_bytes:
                self._rotate()
            piece = view[: max(1, self.limit_bytes - self.file_bytes)] if self.limit_bytes else view
            written = self._append(piece)
            view = view[written:]
            if written < len(piece):
                self._hold(view)
                return False
        return True

    def retry(self) -> bool:
        """Try to write what is held. True where the log is whole again, but for what had to be dropped."""
        if self._descriptor < 0:
            self._reopen()
        if self._descriptor < 0:
            return False
        if self.dropped and not self._mark_gap():
            return False
        view = memoryview(self.held)
        written = self._append(view)
        view.release()
        del self.held[:written]
        if not self.held:
            self.error = ""
        return not self.held

    def close(self, spill: Path | None = None) -> None:
        """Write what is held, or put it into ``spill`` and record that the log lacks it."""
        # a part would stand in the log and in the views twice: all of it, or none
        if self.held and not (self._has_room() and self.retry()):
            with contextlib.suppress(OSError):
                if spill is not None:
                    spill.write_bytes(self.held)
            self.gaps.append(LogGap(self.file_bytes, self.dropped + len(self.held), self.error))
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _has_room(self) -> bool:
        if self._descriptor < 0:
            return True
        found = os.fstatvfs(self._descriptor)
        return found.f_bavail * found.f_frsize > len(self.held) + found.f_frsize

    def _append(self, view: memoryview) -> int:
        written = 0
        try:
            while written < len(view):
                count = os.write(self._descriptor, view[written:])
                written += count
                self.file_bytes += count
        except OSError as error:
            self.error = error.strerror or str(error)
        return written

    def _hold(self, data: bytes | memoryview) -> None:
        self.held += data
        excess = len(self.held) - self.hold_bytes
        if excess > 0:
            del self.held[:excess]
            self.dropped += excess

    def _mark_gap(self) -> bool:
        note = f"\n[torch-doctor: {self.dropped} bytes of output are missing here: {self.error}]\n".encode()
        offset = self.file_bytes
        if self._append(memoryview(note)) < len(note):
            # half a note is worse than none, and it will be tried again
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, offset)
                self.file_bytes = offset
            return False
        self.gaps.append(LogGap(offset, self.dropped, self.error))
        self.dropped = 0
        return True

    def _reopen(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
            self.file_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            self.error = error.strerror or str(error)

    def _rotate(self) -> None:
        with contextlib.suppress(OSError):  # what cannot be renamed goes on growing
            for number in range(self.keep, 0, -1):
                older = rotated(self.path, number)
                if older.exists():
                    older.replace(rotated(self.path, number + 1)) if number < self.keep else older.unlink()
            if self.keep:
                self.path.replace(rotated(self.path, 1))
            else:
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
            self._reopen()


def rotated(path: Path, number: int) -> Path:
    """``log.1`` is the newest of the rotated files."""
    return path.with_name(f"{path.name}.{number}")


def files(path: Path) -> list[Path]:
    """The files of a log, oldest first, the current one last."""
    numbered = [p for p in path.parent.glob(f"{path.name}.*") if p.suffix[1:].isdigit()]
    return [*sorted(numbered, key=lambda p: -int(p.suffix[1:])), path]


class Follower:
    """Reads a log from some place on, over rotation: the old file to its end, then the next one.

    Args:
        path: the log.
        offset: where in the present file to begin; BEGINNING for all there is, rotated files included.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._descriptor = -1

    def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """The next bytes; empty where there are none yet."""
        if self._descriptor < 0 and not self._open():
            return b""
        data = os.pread(self._descriptor, limit, self.offset)
        if not data and (following := self._next_file()) is not None:
            # what was written between the look and the rename
            data = os.pread(self._descriptor, limit, self.offset)
            if not data:
                os.close(self._descriptor)
                self._descriptor, self.offset = following, 0
                return self.read(limit)
        self.offset += len(data)
        return data

    def close(self) -> None:
        """Give up the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> bool:
        path = self.path
        if self.offset == BEGINNING:
            path, self.offset = files(path)[0], 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _next_file(self) -> int | None:
        """A descriptor of the file that was begun after this one; None where this one is still written."""
        following = None
        for path in reversed(files(self.path)):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # renamed in between: the next read looks again
            if _same_file(descriptor, self._descriptor):
                os.close(descriptor)
                return following
            if following is not None:
                os.close(following)
            following = descriptor
        return following


def _same_file(one: int, other: int) -> bool:
    a, b = os.fstat(one), os.fstat(other)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def tail_offset(path: Path, lines: int) -> int:
    """Where the last ``lines`` lines of a file begin. A last line without an end counts as one."""
    with path.open("rb") as stream:
        position = end = stream.seek(0, os.SEEK_END)
        if lines <= 0:
            return end
        wanted = lines
        while position > 0:
            start = max(0, position - CHUNK_BYTES)
            stream.seek(start)
            block = stream.read(position - start)
            if position == end and block.endswith(b"\n"):
                wanted += 1
            at = len(block)
            while wanted > 0 and (at := block.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
            if wanted == 0:
                return start + at + 1
            position = start
    return 0


def last_line(path: Path, limit: int = 4096) -> str:
    """The last line that a terminal would show, as text; "" where there is none."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit))
            data = stream.read(limit)
    except OSError:
        return ""
    from torch_doctor.sessions.plain import plain_lines

    shown = [text for text in plain_lines(iter([data])) if text.strip()]
    return shown[-1].strip() if shown else ""


def chunks(path: Path, offset: int = 0) -> Iterator[bytes]:
    """A file's bytes from ``offset`` to its present end."""
    follower = Follower(path, offset)
    try:
        while data := follower.read():
            yield data
    finally:
        follower.close()

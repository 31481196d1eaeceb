"""What a view and the supervisor say to each other over a Unix socket. Standard library only.

A frame is one letter, the payload's length (four bytes, big endian) and the payload. A client opens with a
REQUEST. A view reads the output from the log file itself; the supervisor rings a bell when there is more, so
that a view that is slow or stopped never holds the run up and still misses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# client to supervisor
REQUEST = b"Q"  # JSON: {"op": "view" | "stop" | "wait" | "signal", ...}
INPUT = b"I"  # bytes for the terminal
SIZE = b"W"  # rows, columns
# supervisor to client
BELL = b"D"  # there is more in the log
OUTPUT = b"O"  # output that the log could not take: shown as it is
SEEK = b"S"  # go on reading the log from this offset: what is before it was shown as OUTPUT
RAW = b"M"  # b"1": the command has put its terminal into raw mode; b"0": it has not
REPLY = b"A"  # JSON: the answer to a request
END = b"E"  # JSON: the final state

_HEAD = struct.Struct("!cI")
_SIZE = struct.Struct("!HH")
_OFFSET = struct.Struct("!Q")
#: no frame is longer; a client that claims so is cut off
MAX_PAYLOAD = 1 << 22


class Frames:
    """Puts frames together from whatever pieces the socket gives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The frames that are complete now.

        Raises:
            ValueError: where a payload is too long to be one of ours.
        """
        self._data += data
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            if length > MAX_PAYLOAD:
                raise ValueError(f"frame of {length} bytes")
            if len(self._data) < _HEAD.size + length:
                return
            payload = bytes(self._data[_HEAD.size : _HEAD.size + length])
            del self._data[: _HEAD.size + length]
            yield kind, payload


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def request(**values: Any) -> bytes:
    """The frame that a client opens with."""
    return frame(REQUEST, json.dumps(values).encode())


def packed(kind: bytes, values: Mapping[str, Any]) -> bytes:
    """A frame with JSON in it."""
    return frame(kind, json.dumps(values).encode())


def size(rows: int, columns: int) -> bytes:
    """The frame for a window's size."""
    return frame(SIZE, _SIZE.pack(max(1, min(rows, 65535)), max(1, min(columns, 65535))))


def unpack_size(payload: bytes) -> tuple[int, int]:
    """Rows and columns of a SIZE frame."""
    rows, columns = _SIZE.unpack(payload)
    return int(rows), int(columns)


def seek(offset: int) -> bytes:
    """The frame for an offset in the log."""
    return frame(SEEK, _OFFSET.pack(offset))


def unpack_offset(payload: bytes) -> int:
    """The offset of a SEEK frame."""
    return int(_OFFSET.unpack(payload)[0])


def connect(path: str, timeout: float | None = None) -> socket.socket:
    """A socket to a supervisor, however long its path.

    Raises:
        OSError: where nobody listens there.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout)
    try:
        with short(Path(path)) as address:
            client.connect(address)
    except OSError:
        client.close()
        raise
    return client


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """The path of a socket in the 108 bytes that an address has room for: through /proc where it is longer."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

"""Shows a running session on a terminal or a pipe: what a tmux or screen window runs, and what ``run`` streams.

Standard library only: it starts with every window.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import protocol, state, store, terminal
from torch_doctor.sessions.log import Follower, chunks
from torch_doctor.sessions.state import State

#: how much of the log a new window shows first
REPLAY_BYTES = 512 << 10
_IFLAG, _OFLAG, _LFLAG, _CC = 0, 1, 3, 6


class View:
    """One connection to a supervisor.

    Args:
        place: the session's folder.
        output: descriptor to write to.
        input: descriptor of a terminal to read from; None to show only.
        offset: where in the log to begin, as Follower takes it; None for the last REPLAY_BYTES.
    """

    def __init__(self, place: Path, output: int, input: int | None = None, offset: int | None = None) -> None:
        self.place, self.output, self.input = place, output, input
        self._offset = offset
        self._frames = protocol.Frames()
        self._log: Follower | None = None
        self._end: State | None = None
        self._closed_output = False

    def run(self) -> State | None:
        """Show the session until it ends. Its final state, or None where the supervisor went away.

        Raises:
            OSError: where no supervisor listens.
        """
        try:
            self._converse()
        finally:
            if self._log is None:
                # it ended before the supervisor could answer: what it wrote is all there
                self._follow_from(sys.maxsize)
                self._show_log()
                # and what the log could not take
                for data in chunks(store.fallback_to(self.place).with_suffix(".log-tail")):
                    self._write(data)
            self._show_log()
        return self._end

    def _converse(self) -> None:
        self._connection = protocol.connect(store.read(self.place).socket)
        with self._connection, _resizes() as resized, selectors.DefaultSelector() as selector:
            self._connection.sendall(protocol.request(op="view"))
            self._send_size()
            selector.register(self._connection, selectors.EVENT_READ, self._hear)
            selector.register(resized, selectors.EVENT_READ, lambda: self._resized(resized))
            if self.input is not None:
                selector.register(self.input, selectors.EVENT_READ, lambda: self._type(selector))
            while self._end is None:
                if not all(key.data() for key, _ in selector.select()):
                    break

    def _hear(self) -> bool:
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            return False
        for kind, payload in self._frames.feed(data):
            self._on_frame(kind, payload)
        return bool(data)

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == protocol.REPLY:
            answer = json.loads(payload)
            self._follow_from(int(answer["log_bytes"]))
            self._set_raw(bool(answer["raw"]))
            self._show_log()
        elif kind == protocol.BELL:
            # heard first, read then: what is written after this rings again
            self._connection.sendall(protocol.frame(protocol.BELL))
            self._show_log()
        elif kind == protocol.OUTPUT:
            self._show_log()
            self._write(payload)
        elif kind == protocol.SEEK and self._log is not None:
            self._log.offset = protocol.unpack_offset(payload)
        elif kind == protocol.RAW:
            self._show_log()
            self._set_raw(payload == b"1")
        elif kind == protocol.END:
            self._end = state.from_json(json.loads(payload))

    def _follow_from(self, size: int) -> None:
        path = self.place / store.LOG
        if size == sys.maxsize:
            size = path.stat().st_size if path.exists() else 0
        self._log = Follower(path, self._first_offset(size))

    def _first_offset(self, size: int) -> int:
        if self._offset is not None:
            return min(self._offset, size)
        start = max(0, size - REPLAY_BYTES)
        if start == 0:
            return 0
        # from the next line on, not in the middle of one
        with contextlib.suppress(OSError), (self.place / store.LOG).open("rb") as stream:
            stream.seek(start)
            return start + stream.read(1 << 16).find(b"\n") + 1
        return start

    def _show_log(self) -> None:
        while self._log is not None and (data := self._log.read()):
            self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not self._closed_output:
                view = view[os.write(self.output, view) :]
        except (BrokenPipeError, OSError):
            self._closed_output = True  # nobody reads any more; the end is still of interest

    def _type(self, selector: selectors.BaseSelector) -> bool:
        assert self.input is not None
        try:
            data = os.read(self.input, 1 << 12)
        except OSError:
            data = b""
        if not data:
            selector.unregister(self.input)
            return True
        self._connection.sendall(protocol.frame(protocol.INPUT, data))
        return True

    def _resized(self, resized: socket.socket) -> bool:
        with contextlib.suppress(BlockingIOError):
            resized.recv(4096)
        self._send_size()
        return True

    def _send_size(self) -> None:
        found = terminal.size_of(self.output)
        if found is not None:
            self._connection.sendall(protocol.size(*found))

    def _set_raw(self, raw: bool) -> None:
        if self.input is None:
            return
        with contextlib.suppress(termios.error):
            attributes = termios.tcgetattr(self.input)
            attributes[_OFLAG] = attributes[_OFLAG] & ~termios.OPOST if raw else attributes[_OFLAG] | termios.OPOST
            termios.tcsetattr(self.input, termios.TCSADRAIN, attributes)


@contextlib.contextmanager
def _resizes() -> Iterator[socket.socket]:
    """A socket that becomes readable when the window's size changes."""
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    earlier = signal.signal(signal.SIGWINCH, lambda *_: None)
    descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield receiver
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGWINCH, earlier)
        receiver.close()
        sender.close()


@contextlib.contextmanager
def keys_unprocessed(descriptor: int) -> Iterator[None]:
    """Every key goes to the session, Ctrl-C too; what is shown keeps its line ends."""
    try:
        earlier = termios.tcgetattr(descriptor)
    except termios.error:
        yield
        return
    changed = termios.tcgetattr(descriptor)
    changed[_IFLAG] &= ~(
        termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.ISTRIP | termios.BRKINT
    )
    changed[_OFLAG] |= termios.OPOST | termios.ONLCR
    changed[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
    changed[_CC][termios.VMIN], changed[_CC][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, earlier)


def main(folder: str) -> None:
    """What a window of tmux or screen runs."""
    place = Path(folder)
    try:
        with keys_unprocessed(0):
            View(place, output=1, input=0).run()
    except (OSError, DoctorError) as error:
        print(f"{place.name}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

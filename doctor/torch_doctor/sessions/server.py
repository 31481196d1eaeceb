"""The supervisor's socket: views, and requests of stop and wait. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
from pathlib import Path
from typing import Any, Protocol

from torch_doctor.sessions import protocol, state

#: output for a view that does not read; past it the view misses what the log could not take either
BACKLOG_BYTES = 4 << 20


class Handler(Protocol):
    """What the supervisor does when a client says something."""

    def on_request(self, client: Client, values: dict[str, Any]) -> None:
        """The first frame of a client."""

    def on_input(self, data: bytes) -> None:
        """Bytes for the terminal."""

    def on_size(self, rows: int, columns: int) -> None:
        """A view's window has this size."""


class Client:
    """One connection. ``uid`` and ``pid`` are the peer's, from the kernel."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = protocol.Frames()
        self.out = bytearray()
        self.view = False
        self.rung = False  # a bell is on its way, or was not yet answered: one is enough
        self.again = False  # more was written since: the answer is followed by another bell
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid, self.uid, _ = struct.unpack("3i", credentials)


class Server:
    """Accepts clients and keeps what could not be sent yet; nothing here ever blocks."""

    def __init__(self, selector: selectors.BaseSelector, handler: Handler) -> None:
        self._selector = selector
        self._handler = handler
        self._clients: set[Client] = set()
        self._listener: socket.socket | None = None
        self.path = ""

    def listen(self, candidates: list[Path]) -> str:
        """Listen on the first path that takes a socket; its path, or "" where none does."""
        for path in candidates:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                path.unlink(missing_ok=True)
                with protocol.short(path) as address:
                    listener.bind(address)
                path.chmod(0o600)
                listener.listen(64)
            except OSError:  # no room for the path, or a file system without sockets
                listener.close()
                continue
            self._listener, self.path = listener, str(path)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
            break
        return self.path

    def close(self) -> None:
        """Send what is left, for a moment, and go."""
        if self._listener is not None:
            self._listener.close()
            Path(self.path).unlink(missing_ok=True)
        for client in list(self._clients):
            client.connection.settimeout(1.0)
            with contextlib.suppress(OSError):
                client.connection.sendall(client.out)
            client.connection.close()

    def bell(self) -> None:
        """There is more in the log."""
        for client in self._views():
            self._ring(client)

    def _ring(self, client: Client) -> None:
        client.again = client.rung
        if not client.rung:
            client.rung = True
            self.send(client, protocol.frame(protocol.BELL))

    def output(self, data: bytes) -> None:
        """Output that the log could not take."""
        for client in self._views():
            if len(client.out) + len(data) <= BACKLOG_BYTES:
                self.send(client, protocol.frame(protocol.OUTPUT, data))

    def to_views(self, frame: bytes) -> None:
        """One frame for every view."""
        for client in self._views():
            self.send(client, frame)

    def end(self, known: state.State) -> None:
        """The run has ended: everybody who listens is told."""
        for client in list(self._clients):
            self.send(client, protocol.packed(protocol.END, state.to_json(known)))

    def send(self, client: Client, frame: bytes) -> None:
        """Send now as much as the socket takes, the rest later."""
        client.out += frame
        self._flush(client)

    def _views(self) -> list[Client]:
        return [c for c in self._clients if c.view]

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _address = self._listener.accept()
            connection.setblocking(False)
            client = Client(connection)
            # the folder is 0700 already; root may look into everybody's
            if client.uid not in (os.getuid(), 0):
                connection.close()
                return
            self._clients.add(client)
            self._selector.register(connection, selectors.EVENT_READ, lambda events: self._serve(client, events))

    def _serve(self, client: Client, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if not events & selectors.EVENT_READ or client not in self._clients:
            return
        try:
            data = client.connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            for kind, payload in client.frames.feed(data):
                self._dispatch(client, kind, payload)
        except BlockingIOError:
            return
        except (OSError, ValueError, struct.error):
            self._drop(client)

    def _dispatch(self, client: Client, kind: bytes, payload: bytes) -> None:
        if kind == protocol.REQUEST:
            values = json.loads(payload)
            client.view = values.get("op") == "view"
            self._handler.on_request(client, values)
        elif kind == protocol.INPUT:
            self._handler.on_input(payload)
        elif kind == protocol.SIZE:
            self._handler.on_size(*protocol.unpack_size(payload))
        elif kind == protocol.BELL:
            # heard before it read on: what was written since may have come too late for that
            client.rung = False
            if client.again:
                self._ring(client)

    def _flush(self, client: Client) -> None:
        if client not in self._clients:
            return
        try:
            while client.out:
                sent = client.connection.send(client.out)
                del client.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.out else 0)
        key = self._selector.get_key(client.connection)
        if key.events != wanted:
            self._selector.modify(client.connection, wanted, key.data)

    def _drop(self, client: Client) -> None:
        if client in self._clients:
            self._clients.discard(client)
            self._selector.unregister(client.connection)
            client.connection.close()

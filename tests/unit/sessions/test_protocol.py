"""Frames over a socket, in whatever pieces they arrive; sockets whose paths are too long."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_doctor.sessions import protocol


@given(st.lists(st.tuples(st.sampled_from([b"I", b"D", b"E"]), st.binary(max_size=300))), st.integers(1, 50))
def test_frames_come_out_as_they_went_in(sent: list[tuple[bytes, bytes]], piece: int) -> None:
    data = b"".join(protocol.frame(kind, payload) for kind, payload in sent)
    frames = protocol.Frames()
    got = [f for at in range(0, len(data), piece) for f in frames.feed(data[at : at + piece])]
    assert got == sent


def test_a_length_that_nobody_sends_is_refused() -> None:
    with pytest.raises(ValueError, match="frame of"):
        list(protocol.Frames().feed(b"I\xff\xff\xff\xff"))


def test_sizes_and_offsets() -> None:
    ((_, payload),) = protocol.Frames().feed(protocol.size(24, 80))
    assert protocol.unpack_size(payload) == (24, 80)
    ((_, payload),) = protocol.Frames().feed(protocol.size(0, 10**9))
    assert protocol.unpack_size(payload) == (1, 65535)
    ((_, payload),) = protocol.Frames().feed(protocol.seek(1 << 40))
    assert protocol.unpack_offset(payload) == 1 << 40


def test_a_socket_at_the_end_of_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        with protocol.short(folder / "sock") as address:
            listener.bind(address)
        listener.listen()
        with protocol.connect(str(folder / "sock")) as client:
            client.sendall(b"x")
            with listener.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"
    with pytest.raises(OSError):
        protocol.connect(str(folder / "sock"))

"""The pseudo-terminal leaves bytes alone; TERM is one that this machine knows."""

from __future__ import annotations

import os
import termios
from pathlib import Path

import pytest

from torch_doctor.sessions import terminal


def test_bytes_pass_unchanged_and_the_size_is_set() -> None:
    master, slave = terminal.open_pty(12, 34)
    data = bytes(range(256)).replace(b"\x03", b"") + b"\n\r\n\t\n"
    os.write(slave, data)
    got = b""
    while len(got) < len(data):
        got += os.read(master, 4096)
    assert got == data and terminal.size_of(slave) == (12, 34)
    terminal.set_size(master, 5, 6)
    assert terminal.size_of(slave) == (5, 6)
    os.close(master)
    os.close(slave)


def test_raw_mode_of_the_command_is_seen() -> None:
    master, slave = terminal.open_pty(10, 10)
    before = terminal.modes(slave)
    assert not terminal.is_raw(master)
    changed = termios.tcgetattr(slave)
    changed[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, changed)
    assert terminal.is_raw(master)
    terminal.set_modes(slave, before)
    assert not terminal.is_raw(master)
    os.close(master)
    os.close(slave)


def test_a_pipe_has_no_size() -> None:
    reader, writer = os.pipe()
    assert terminal.size_of(reader) is None
    os.close(reader)
    os.close(writer)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine that knows these terminals only."""
    for name in ("xterm", "xterm-256color", "screen-256color"):
        (tmp_path / name[0]).mkdir(exist_ok=True)
        (tmp_path / name[0] / name).write_text("")
    monkeypatch.setattr(terminal, "_terminfo_folders", lambda environment: [tmp_path])
    return {}


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("xterm", "xterm"),
        ("", "xterm-256color"),
        ("dumb", "xterm-256color"),
        ("unknown", "xterm-256color"),
        ("xterm-ghostty", "xterm"),
        ("foo-256color", "xterm-256color"),
        ("../../etc/passwd", "xterm"),
    ],
)
def test_the_terminal_type_that_is_used(known: dict[str, str], given: str, used: str) -> None:
    assert terminal.usable_term({"TERM": given}) == used


def test_inside_a_view_the_command_gets_the_views_terminal(known: dict[str, str]) -> None:
    assert terminal.inner_term("tmux", {"TERM": "xterm"}) == "screen-256color"
    assert terminal.inner_term("screen", {}) == "screen-256color"
    assert terminal.inner_term("nohup", {"TERM": "xterm"}) == "xterm"
    assert terminal.inner_term("nohup", {"TERM": "foo"}) == "dumb"


def test_terminfo_is_looked_for_where_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "odd").write_text("")
    assert terminal.has_terminfo("odd", {"TERMINFO": str(tmp_path)})
    assert terminal.has_terminfo("odd", {"TERMINFO_DIRS": f"/x:{tmp_path}"})
    assert not terminal.has_terminfo("odd", {})

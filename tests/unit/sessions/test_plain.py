"""Readable lines from terminal output."""

from __future__ import annotations

import pytest

from torch_doctor.sessions import plain as module
from torch_doctor.sessions.plain import plain, plain_lines


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("dos line\r", "dos line"),
        ("  1%|\r 50%|\r100%|###", "100%|###"),
        ("longer text\rshort", "shortr text"),
        ("longer text\r\x1b[Kshort", "short"),
        ("longer text\r\x1b[2Kshort", "short"),
        ("text \x1b[Kkept", "text kept"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07bare", "red and bare"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(B\x1b=bell\x07", "bell"),
        ("tab\tstays", "tab\tstays"),
        ("\r\r\r", ""),
        ("\x1b[A\rup", "up"),
    ],
)
def test_a_line_as_a_terminal_leaves_it(line: str, shown: str) -> None:
    assert plain(line) == shown


def test_characters_split_over_blocks_are_whole() -> None:
    data = "ä€😀\nzwei".encode()
    assert list(plain_lines(bytes([b]) for b in data)) == ["ä€😀", "zwei"]


def test_a_bar_that_never_ends_its_line_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    blocks = [f"\rstep {n:05}".encode() for n in range(5000)]
    assert list(plain_lines(blocks)) == ["step 04999"]


def test_a_line_without_end_or_returns_is_given_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    assert "".join(plain_lines([b"x" * 999] * 10)) == "x" * 9990

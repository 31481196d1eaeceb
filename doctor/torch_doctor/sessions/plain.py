"""Terminal output as lines that can be read: the last state of a progress bar, no colours.

Standard library only.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

# CSI, OSC (ended by BEL or ST), charset and single-character escapes: ECMA-48, xterm's control sequences
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
# EL: to the end of the line, or all of it
_ERASE = re.compile(r"\x1b\[[02]?K")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
#: a line without an end is given out in pieces of this length, so that memory stays bounded
MAX_LINE = 1 << 20


def plain_lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Lines without their ends; of a line that carriage returns rewrite only what it showed last."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for block in blocks:
        rest += decoder.decode(block)
        *lines, rest = rest.split("\n")
        for line in lines:
            yield plain(line)
        if len(rest) > MAX_LINE:
            # a bar that only returns: what an earlier pass showed is gone anyway
            kept = rest[rest.rfind("\r", 0, -1) + 1 :]
            if len(kept) > MAX_LINE:
                yield plain(kept)
                kept = ""
            rest = kept
    rest += decoder.decode(b"", final=True)
    if rest:
        yield plain(rest)


def plain(line: str) -> str:
    """One line as a terminal would leave it."""
    line = line.rstrip("\r")
    if "\r" not in line:
        return _CONTROL.sub("", _ESCAPE.sub("", line))
    shown = ""
    for part in line.split("\r"):
        *erased, text = _ERASE.split(part)
        if erased:
            shown = _ESCAPE.sub("", "".join(erased))
            shown += _ESCAPE.sub("", text)
        else:
            # a shorter text written over a longer one leaves the longer one's end
            text = _ESCAPE.sub("", text)
            shown = text + shown[len(text) :]
    return _CONTROL.sub("", shown).rstrip()

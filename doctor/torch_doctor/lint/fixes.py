"""Applies edits to source text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch_doctor.model import Edit, Finding, Fix

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def usable(findings: Iterable[Finding], *, unsafe: bool) -> list[Fix]:
    """The fixes that may be applied: none of a suppressed finding, no unsafe one unless asked for."""
    return [f.fix for f in findings if f.fix is not None and f.suppression is None and (f.fix.safe or unsafe)]


def apply(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """The text with the fixes applied, and how many were. Of fixes that overlap the first one wins.

    Line ends, comments and everything outside the edits stay as they are; new lines end as the file's do.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [m.group() for m in _LINE.finditer(text)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    taken: list[tuple[int, int, str]] = []
    applied = 0
    for item in fixes:
        spans = [_span(e, starts, newline) for e in item.edits]
        if any(_overlaps(span, other) for span in spans for other in taken):
            continue
        taken += spans
        applied += 1
    for start, stop, new in sorted(taken, reverse=True):
        text = text[:start] + new + text[stop:]
    return text, applied


def _span(edit: Edit, starts: list[int], newline: str) -> tuple[int, int, str]:
    start, stop = starts[edit.line - 1] + edit.column - 1, starts[edit.end_line - 1] + edit.end_column - 1
    return start, stop, edit.text.replace("\n", newline)


def _overlaps(one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    if one[0] == one[1] and other[0] == other[1]:
        return one[0] == other[0]
    return (one[0] < other[1] and other[0] < one[1]) or one[:2] == other[:2]

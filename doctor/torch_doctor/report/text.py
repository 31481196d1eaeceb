"""What several formats write in words."""

from __future__ import annotations

import re
import textwrap

from torch_doctor.model import HEADINGS, Check, Finding, Location

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def visible(text: str) -> str:
    """``text`` with control characters spelt out: what a log held must not move the reader's cursor."""
    return _CONTROL.sub(lambda m: ascii(m[0])[1:-1], text)


def place(location: Location | None) -> str:
    """``train.py:12:5``, ``notes.ipynb:cell 3:2:1``, or an empty string."""
    if location is None:
        return ""
    cell = f"cell {location.cell}" if location.cell is not None else ""
    parts = [location.path, cell, *(str(n) for n in (location.line, location.column) if n is not None)]
    return ":".join(p for p in parts if p)


def remedy(finding: Finding) -> str:
    """The remediation as lines: the sentence, then each command indented."""
    lines = [finding.remediation.text, *(f"    {command}" for command in finding.remediation.commands)]
    return "\n".join(line for line in lines if line)


def sections(check: Check) -> dict[str, str]:
    """The docstring by heading; the first line, which says what the fault is, under an empty heading."""
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for line in check.doc.splitlines():
        if line.rstrip(":") in HEADINGS and not line.startswith(" "):
            heading = line.rstrip(":")
            found[heading] = []
        else:
            found[heading].append(line)
    return {key: _dedent(lines) for key, lines in found.items()}


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")

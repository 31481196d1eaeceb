"""Notebook files: new text for some cells, and not a byte else changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def cells(data: str) -> dict[int, str]:
    """The source of each code cell by its number, from 1 over all cells, as the file has it; {} for no notebook."""
    return {at: _text(cell) for at, cell in _code(_parsed(data)) if _text(cell)}


def rewritten(data: str, changed: Mapping[int, str]) -> str | None:
    """The file with new sources in some cells; None where it cannot be written again as it is laid out.

    Only a file that is written by json.dumps as it stands, with some indent, is rewritten: Jupyter, Colab and VS Code
    write such files.
    """
    document = _parsed(data)
    tail = data[len(data.rstrip()) :]
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            if json.dumps(document, indent=indent, ensure_ascii=ascii_only) + tail == data:
                for at, cell in _code(document):
                    if at in changed:
                        _put(cell, changed[at])
                return json.dumps(document, indent=indent, ensure_ascii=ascii_only) + tail
    return None


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _code(document: Any) -> list[tuple[int, dict[str, Any]]]:
    found = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(found, list):
        return []
    return [(at, c) for at, c in enumerate(found, 1) if isinstance(c, dict) and c.get("cell_type") == "code"]


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) and all(isinstance(s, str) for s in source) else source
    return text if isinstance(text, str) and "\r" not in text else ""


def _put(cell: dict[str, Any], text: str) -> None:
    # not splitlines(): it also ends lines at form feeds and other characters that may stand in a string
    cell["source"] = _LINES.findall(text) if isinstance(cell["source"], list) else text

"""Makes findings and edits: places in characters, notebook cells, the source line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace as replace_dataclass
from typing import Any

from torch_doctor.facts.script import Script
from torch_doctor.model import Edit, Finding, Fix, Location, Remediation, Severity

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
#: longest source line that a report shows, in characters
SNIPPET = 160


def finding(
    script: Script,
    node: ast.AST,
    severity: Severity,
    message: str,
    remedy: str = "",
    *,
    fix: Fix | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Finding:
    """A finding at a node. In a notebook the edits of its fix are within the cell of the finding, as its place is."""
    return Finding(
        severity,
        message,
        Remediation(remedy),
        evidence or {},
        location(script, node),
        fix=_in_cell(script, node, fix) if script.cells and fix is not None else fix,
    )


def _in_cell(script: Script, node: ast.AST, fix: Fix) -> Fix | None:
    """A fix in the lines of a notebook's cell; None where it would edit another cell, too."""
    at = script.cells[min(getattr(node, "lineno", 1), len(script.cells)) - 1]
    edits = []
    for item in fix.edits:
        lines = [script.cells[n - 1] for n in (item.line, item.end_line) if n <= len(script.cells)]
        if [x.cell for x in lines] != [at.cell, at.cell]:
            return None
        edits.append(replace_dataclass(item, line=lines[0].line, end_line=lines[1].line))
    return Fix(fix.message, tuple(edits), fix.safe)


def location(script: Script, node: ast.AST) -> Location:
    """Where a node is, in the user's terms."""
    line, end_line = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    column = character(script, line, getattr(node, "col_offset", 0))
    end_column = character(script, end_line, getattr(node, "end_col_offset", 0)) if end_line else None
    text = script.lines[line - 1] if line <= len(script.lines) else ""
    snippet = text.rstrip() if len(text) <= SNIPPET else ""
    if not script.cells:
        return Location(script.path, line, column, end_line, end_column, None, snippet)
    at = script.cells[min(line, len(script.cells)) - 1]
    shift = at.line - line
    return Location(
        script.path, at.line, column, end_line + shift if end_line else None, end_column, at.cell, snippet
    )


def character(script: Script, line: int, offset: int) -> int:
    """The column, from 1, of a byte offset of the tree."""
    text = script.lines[line - 1] if line <= len(script.lines) else ""
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


def replace(script: Script, node: ast.AST, text: str) -> Edit:
    """An edit that puts ``text`` in the place of a node."""
    return span(script, (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)  # type: ignore[attr-defined]


def insert(script: Script, node: ast.AST, text: str, *, after: bool = False) -> Edit:
    """An edit that puts ``text`` before or after a node."""
    at = (node.end_lineno, node.end_col_offset) if after else (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    return span(script, at, at, text)


def before(script: Script, statement: ast.stmt, text: str) -> Edit:
    """An edit that puts a statement of its own before another one, on its line where that is shared."""
    line = script.lines[statement.lineno - 1].encode()[: statement.col_offset].decode(errors="replace")
    return insert(script, statement, f"{text}; " if line.strip() else f"{text}\n{line}")


def span(script: Script, start: tuple[int, int], stop: tuple[int, int], text: str) -> Edit:
    """An edit over tree positions (line from 1, byte offset from 0)."""
    return Edit(start[0], character(script, *start), stop[0], character(script, *stop), text)


def fix(message: str, edits: Iterable[Edit], *, safe: bool = True) -> Fix:
    """A fix of these edits."""
    return Fix(message, tuple(edits), safe)


def source(script: Script, node: ast.AST) -> str:
    """The source of a node on one line, shortened for a message."""
    text = " ".join(script.segment(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def is_test_file(path: str) -> bool:
    """``tests/.../test_x.py``: code that tries things out on a few inputs, as a rule on the CPU."""
    *folders, name = path.replace("\\", "/").split("/")
    return name.startswith(("test_", "conftest")) and bool({"tests", "test"} & set(folders))

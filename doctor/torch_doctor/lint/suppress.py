"""Suppression: comments in the source, per-file ignores of the configuration, and those that silence nothing."""

from __future__ import annotations

import fnmatch
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch_doctor.facts.script import Script
from torch_doctor.model import Check, Finding, Suppression

_NOQA = re.compile(r"#\s*noqa(?P<colon>:\s*(?P<codes>[A-Za-z]+[0-9]+(?:[,\s]+[A-Za-z]+[0-9]+)*))?", re.IGNORECASE)
_OUR_ID = re.compile(r"[a-z]{2,4}1\d\d")
_OWN = re.compile(
    r"#\s*torch-doctor:\s*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?(?P<reason>.*)", re.IGNORECASE
)


@dataclass(eq=False)
class Comment:
    """One suppression comment. ``codes`` empty: every rule. ``line`` counts from 1, in ``Script.text``."""

    line: int
    codes: frozenset[str]
    reason: str = ""
    own: bool = False
    whole_file: bool = False
    used: set[str] = field(default_factory=set)

    def covers(self, item: Check) -> bool:
        """Whether it names the rule, by ID, name or family, or names none."""
        return not self.codes or bool({item.id.lower(), item.name, item.family.lower()} & self.codes)


def comments(script: Script) -> list[Comment]:
    """The suppression comments of a file; strings that look like one are none."""
    if "noqa" not in script.text.lower() and "torch-doctor:" not in script.text.lower():
        return []
    found: list[Comment] = []
    if not any("#" in line and _mentions(line) for line in script.lines):
        return []
    try:
        for token in tokenize.generate_tokens(io.StringIO(script.text).readline):
            if token.type == tokenize.COMMENT:
                item = parse(token.string, token.start[0])
                if item is not None:
                    found.append(item)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return found
    return found


def _mentions(line: str) -> bool:
    """Whether a line may hold a suppression of ours: a cheap look before the tokens are made."""
    low = line.lower()
    return ("noqa" in low or "torch-doctor:" in low) and parse(line, 0) is not None


def parse(text: str, line: int) -> Comment | None:
    """One comment, or None where it suppresses nothing of ours (codes of another tool)."""
    own = _OWN.search(text)
    if own is not None:
        codes = frozenset(c.strip().lower() for c in (own["codes"] or "").split(",") if c.strip())
        return Comment(line, codes, own["reason"].strip(" -:"), True, bool(own["file"]))
    noqa = _NOQA.search(text)
    if noqa is None:
        return None
    rest = text[noqa.end() :]
    if not noqa["colon"] and rest.lstrip().startswith(":"):
        return None  # followed by words, not by a list of codes
    codes = frozenset(c.lower() for c in re.split(r"[,\s]+", noqa["codes"] or "") if c)
    ours = frozenset(c for c in codes if _OUR_ID.fullmatch(c))
    return Comment(line, ours) if ours or not codes else None


def apply(script: Script, found: list[tuple[Check, Finding]], notes: list[Comment]) -> list[tuple[Check, Finding]]:
    """The findings with what the comments silence marked so, and the comments with what they silenced."""
    if not notes:
        return found
    by_line = _lines(script, notes)
    result = []
    for item, finding in found:
        place = _text_line(script, finding)
        candidates = [n for n in by_line.get(place, ()) if n.covers(item)]
        candidates += [n for n in notes if n.whole_file and n.covers(item)]
        if candidates:
            note = candidates[0]
            note.used.add(item.id)
            finding = replace(finding, suppression=Suppression("in-source", note.reason))
        result.append((item, finding))
    return result


def _text_line(script: Script, finding: Finding) -> int:
    place = finding.location
    if place is None or place.line is None:
        return 0
    if not script.cells:
        return place.line
    return next((n for n, c in enumerate(script.cells, 1) if (c.cell, c.line) == (place.cell, place.line)), 0)


def _lines(script: Script, notes: Iterable[Comment]) -> dict[int, list[Comment]]:
    """Each line of a statement that a comment stands on belongs to it; a comment on its own line is for the next."""
    found: dict[int, list[Comment]] = {}
    spans = _spans(script)
    for note in notes:
        if note.whole_file:
            continue
        line = note.line
        alone = script.lines[line - 1].lstrip().startswith("#") if line <= len(script.lines) else False
        if alone and note.own:
            while line < len(script.lines) and (
                not script.lines[line].strip() or script.lines[line].lstrip().startswith("#")
            ):
                line += 1
            line += 1
        first, last = spans.get(line, (line, line))
        for at in range(first, last + 1):
            found.setdefault(at, []).append(note)
    return found


def _spans(script: Script) -> dict[int, tuple[int, int]]:
    """Line -> the lines of the simple statement on it that goes over several."""
    import ast

    found: dict[int, tuple[int, int]] = {}
    for node in script.index.parent:
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            end = node.end_lineno or node.lineno
            if end > node.lineno:
                for line in range(node.lineno, end + 1):
                    found[line] = (node.lineno, end)
    return found


def unused(notes: Iterable[Comment], checks: Iterable[Check]) -> list[tuple[Comment, str]]:
    """Comments of our own form that silence nothing, with what is unused of each: a code, or "" for all of it.

    A comment that names a rule that did not run is not judged.
    """
    ran = {c.id.lower(): c for c in checks}
    names = {c.name: c.id.lower() for c in checks}
    found = []
    for note in notes:
        if not note.own:
            continue
        if not note.codes:
            if not note.used:
                found.append((note, ""))
            continue
        used = (
            {u.lower() for u in note.used}
            | {ran[u.lower()].name for u in note.used}
            | {ran[u.lower()].family.lower() for u in note.used}
        )
        for code in sorted(note.codes - used):
            known = code in ran or code in names or any(c.family.lower() == code for c in ran.values())
            if known or not re.fullmatch(r"[a-z]{2,4}[012]\d\d", code):
                found.append((note, code))
    return found


def by_configuration(
    path: str, found: list[tuple[Check, Finding]], per_file: Mapping[str, Iterable[str]]
) -> list[tuple[Check, Finding]]:
    """The findings with those that ``per-file-ignores`` names marked as suppressed."""
    if not per_file:
        return found
    tokens = {t.lower() for p, codes in per_file.items() if _matches(path, p) for t in codes}
    if not tokens:
        return found
    return [
        (c, replace(f, suppression=Suppression("configuration", "per-file-ignores")))
        if f.suppression is None
        and ({c.id.lower(), c.name, c.family.lower(), "all"} | {t.lower() for t in c.tags}) & tokens
        else (c, f)
        for c, f in found
    ]


def _matches(path: str, pattern: str) -> bool:
    text = path.replace("\\", "/")
    return any(
        fnmatch.fnmatch(text, p)
        for p in (pattern, f"*/{pattern}", f"{pattern.rstrip('/')}/*", f"*/{pattern.rstrip('/')}/*")
    )

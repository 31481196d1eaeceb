"""Mends files: what ``lint --fix`` and ``--diff`` do."""

from __future__ import annotations

import ast
import difflib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch_doctor import notebooks, runner, snapshot
from torch_doctor.errors import CannotRun
from torch_doctor.facts.script import Script, parse
from torch_doctor.files import write_atomic
from torch_doctor.lint import fixes, suppress
from torch_doctor.model import Check, Finding

#: one fix may make room for another; a rule that mends its own mend would never end
MAX_ROUNDS = 8


@dataclass(frozen=True)
class Change:
    """One file that the fixes change. Texts have the file's own line ends."""

    path: str
    before: str
    after: str
    fixed: int
    encoding: str

    def diff(self) -> str:
        """A unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.path.lstrip('/')}",
            f"b/{self.path.lstrip('/')}",
        )
        return "".join(x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in lines)


def changes(
    paths: Iterable[Path],
    checks: Sequence[Check],
    *,
    unsafe: bool = False,
    exclude: Iterable[str] = (),
    per_file_ignores: Mapping[str, Iterable[str]] | None = None,
) -> list[Change]:
    """What the fixes would change, in order of path. Nothing is written.

    Raises:
        DoctorError: for a path that does not exist.
    """
    found = []
    for item in map(snapshot.source, snapshot.source_paths(paths, exclude)):
        if isinstance(item, Script) and item.relevant and not item.generated:
            by_kind = mend_notebook if item.cells else mend
            change = by_kind(item, checks, unsafe=unsafe, per_file_ignores=per_file_ignores or {})
            if change is not None:
                found.append(change)
    return found


def mend(
    script: Script, checks: Sequence[Check], *, unsafe: bool = False, per_file_ignores: Mapping[str, Iterable[str]]
) -> Change | None:
    """The change of one file; None where nothing is to be fixed. The result always parses."""
    before = script.original or script.text
    text, fixed = before, 0
    for _ in range(MAX_ROUNDS):
        todo = fixes.usable(_judge(script, checks, per_file_ignores), unsafe=unsafe)
        new, applied = fixes.apply(text, todo)
        if not applied or new == text:
            break
        again = _parsed(script, new)
        if again is None:
            new, applied, again = _one_by_one(script, text, todo)
        if again is None:
            break
        text, fixed, script = new, fixed + applied, again
    return Change(script.path, before, text, fixed, script.encoding) if text != before else None


def mend_notebook(
    script: Script, checks: Sequence[Check], *, unsafe: bool = False, per_file_ignores: Mapping[str, Iterable[str]]
) -> Change | None:
    """The change of one notebook: the sources of its code cells and nothing else; None where nothing is fixed."""
    path = Path(script.path)
    try:
        before = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
    data, fixed = before, 0
    for _ in range(MAX_ROUNDS):
        findings = _judge(script, checks, per_file_ignores)
        changed, applied = _fixed_cells(notebooks.cells(data), findings, unsafe)
        new = notebooks.rewritten(data, changed) if changed else None
        again = snapshot.source_of(path, new.encode()) if new is not None else None
        if new is None or not isinstance(again, Script) or len(again.unparsed) > len(script.unparsed):
            break
        data, fixed, script = new, fixed + applied, again
    return Change(script.path, before, data, fixed, "utf-8") if data != before else None


def _fixed_cells(sources: Mapping[int, str], findings: Sequence[Finding], unsafe: bool) -> tuple[dict[int, str], int]:
    """The new sources of the cells that a fix changes, and how many fixes were applied."""
    changed, count = {}, 0
    for cell, text in sources.items():
        own = [f for f in findings if f.location is not None and f.location.cell == cell]
        new, applied = fixes.apply(text, fixes.usable(own, unsafe=unsafe))
        if new != text:
            changed[cell], count = new, count + applied
    return changed, count


def _judge(script: Script, checks: Sequence[Check], per_file: Mapping[str, Iterable[str]]) -> list[Finding]:
    pairs = [(c, f) for c in checks for f in runner.run_one(c, {Script: script}).findings]
    pairs = suppress.by_configuration(script.path, suppress.apply(script, pairs, suppress.comments(script)), per_file)
    return [
        f
        for _, f in sorted(
            pairs, key=lambda p: (p[1].location.line or 0, p[1].location.column or 0) if p[1].location else (0, 0)
        )
    ]


def _parsed(script: Script, text: str) -> Script | None:
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(normal)
            made = parse(script.path, normal, neighbours=script.neighbours, encoding=script.encoding)
        text.encode(script.encoding)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return replace(made, original=text if text != normal else "")


def _one_by_one(script: Script, text: str, todo: Sequence[object]) -> tuple[str, int, Script | None]:
    """Where the fixes together do not parse: the first one that does alone."""
    for item in todo:
        new, applied = fixes.apply(text, [item])  # type: ignore[list-item]
        again = _parsed(script, new) if applied and new != text else None
        if again is not None:
            return new, applied, again
    return text, 0, None


def write(change: Change) -> None:
    """Replace the file atomically; its mode and, for a link, the link stay.

    Raises:
        CannotRun: where it cannot be written.
    """
    path = Path(os.path.realpath(change.path))
    try:
        write_atomic(path, change.after.encode(change.encoding), path.stat().st_mode & 0o7777)
    except OSError as error:
        raise CannotRun(change.path, f"cannot be written: {error.strerror}", "the file is as it was") from error

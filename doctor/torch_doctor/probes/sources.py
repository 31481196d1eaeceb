"""Finds and reads Python files and notebooks."""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import stat
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_doctor.deep import with_large_stack
from torch_doctor.errors import DoctorError
from torch_doctor.facts.script import Script, SourceLine, parse
from torch_doctor.model import Location, Notification, Severity
from torch_doctor.probes.launches import Launches

SUFFIXES = (".py", ".pyi", ".ipynb")
#: folders that hold no code of the project's own
SKIPPED_FOLDERS = {
    *(".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "env", ".env", "node_modules", "site-packages"),
    *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".eggs", "build", "dist"),
    *(".idea", ".vscode"),
}
#: larger files are data, not code, in bytes
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Unread:
    """A file that gave no Script."""

    notification: Notification


def find(paths: Iterable[Path], exclude: Iterable[str] = ()) -> Iterator[Path]:
    """The files to read: those named, and those below the folders named, in order of path, each once.

    ``.gitignore`` is honoured below a folder; a file that is named itself is read in any case.

    Raises:
        DoctorError: for a path that does not exist.
    """
    patterns = tuple(exclude)
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DoctorError(str(path), "no such file or folder")
        for item in _walk(path, patterns) if path.is_dir() else [path]:
            if item not in seen and not (item is not path and _excluded(item, patterns)):
                seen.add(item)
                yield item


def _walk(folder: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    ignores = _Ignores.above(folder)
    stack: list[tuple[Path, _Ignores]] = [(folder, ignores)]
    found: list[Path] = []
    while stack:
        at, known = stack.pop()
        known = known.with_file(at)
        try:
            entries = sorted(os.scandir(at), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            path = at / entry.name
            if entry.is_dir(follow_symlinks=False):
                if (
                    entry.name not in SKIPPED_FOLDERS
                    and not known.match(path, True)
                    and not _excluded(path, patterns)
                ):
                    stack.append((path, known))
            elif entry.name.endswith(SUFFIXES) and not known.match(path, False) and _is_file(entry):
                found.append(path)
    yield from sorted(found)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a symbolic link that leads to itself
        return False


def _excluded(path: Path, patterns: tuple[str, ...]) -> bool:
    text = path.as_posix()
    return any(
        fnmatch.fnmatch(text, p)
        or fnmatch.fnmatch(path.name, p)
        or fnmatch.fnmatch(text, f"*/{p}")
        or p.rstrip("/") in path.parts
        for p in patterns
    )


@dataclass(frozen=True)
class _Ignores:
    """The rules of the .gitignore files from the checkout's root down to a folder."""

    rules: tuple[tuple[Path, re.Pattern[str], bool, bool], ...] = ()

    @classmethod
    def above(cls, folder: Path) -> _Ignores:
        found = cls()
        full = folder.resolve()
        chain: list[Path] = []
        for item in full.parents:
            chain.append(item)
            if (item / ".git").exists():
                break
        else:
            return found
        if (full / ".git").exists():
            return found
        for item in reversed(chain):
            found = found.with_file(item)
        return found

    def with_file(self, folder: Path) -> _Ignores:
        try:
            text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return self
        rules = [r for line in text.splitlines() if (r := _ignore_rule(folder.resolve(), line)) is not None]
        return replace(self, rules=self.rules + tuple(rules))

    def match(self, path: Path, is_folder: bool) -> bool:
        ignored = False
        full = path.parent.resolve() / path.name if self.rules else path
        for base, pattern, negated, only_folder in self.rules:
            if only_folder and not is_folder:
                continue
            try:
                relative = full.relative_to(base).as_posix()
            except ValueError:
                continue
            if pattern.fullmatch(relative):
                ignored = not negated
        return ignored


def _ignore_rule(base: Path, line: str) -> tuple[Path, re.Pattern[str], bool, bool] | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    only_folder = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    body = ""
    for part in re.split(r"(\*\*/|/\*\*|\*\*|\*|\?|\[[^\]]*\])", text):
        body += {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
            part, part.replace("[!", "[^") if part.startswith("[") and part.endswith("]") else re.escape(part)
        )
    try:
        return base, re.compile(body if anchored else f"(?:.*/)?{body}"), negated, only_folder
    except re.error:
        return None


def read(path: Path) -> Script | Unread:
    """One file as a Script, or why it gave none."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            return _unread(path, "is no regular file")  # reading a pipe or a device would wait for ever
        if state.st_size > MAX_BYTES:
            return _unread(path, f"is larger than {MAX_BYTES >> 20} MiB: not analysed")
        data = path.read_bytes()
    except OSError as error:
        return _unread(path, f"cannot be read: {error.strerror}")
    return from_bytes(path, data)


def from_bytes(path: Path, data: bytes) -> Script | Unread:
    """The bytes of one file as a Script."""
    cells: tuple[SourceLine, ...] = ()
    unparsed: tuple[SourceLine, ...] = ()
    original, encoding = "", "utf-8"
    try:
        if path.suffix == ".ipynb":
            text, cells, unparsed = notebook(data)
        else:
            if b"\0" in data:
                return _unread(path, "is a binary file")
            text, original, encoding = decode(data)
        return _parse(
            str(path),
            text,
            cells=cells,
            unparsed=unparsed,
            neighbours=Neighbours(path.parent),
            launches=Launches(path),
            original=original,
            encoding=encoding,
        )
    except SyntaxError as error:
        return _unread(path, f"cannot be parsed: {error.msg}", *_error_place(error, cells))
    except UnicodeDecodeError as error:
        return _unread(path, f"is not valid {error.encoding}: byte {error.start}")
    except RecursionError:
        return _unread(path, "is nested too deeply to be parsed")
    except MemoryError:
        return _unread(path, "is too complex to be parsed")
    except (ValueError, LookupError) as error:
        return _unread(path, f"cannot be parsed: {error}")


def _error_place(error: SyntaxError, cells: tuple[SourceLine, ...]) -> tuple[int | None, int | None, int | None]:
    if cells and error.lineno and 0 < error.lineno <= len(cells):
        at = cells[error.lineno - 1]
        return at.line, error.offset, at.cell
    return error.lineno, error.offset, None


def _unread(
    path: Path, message: str, line: int | None = None, column: int | None = None, cell: int | None = None
) -> Unread:
    place = Location(str(path), line, max(column, 1) if column is not None else None, cell=cell)
    return Unread(Notification(message, place, Severity.WARNING))


def decode(data: bytes) -> tuple[str, str, str]:
    """Source bytes as (text with ``\\n`` line ends, the same with its own where they differ, the encoding).

    BOM and coding cookie are honoured as Python itself does.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    original = data.decode(encoding)
    text = original.replace("\r\n", "\n").replace("\r", "\n")
    return text, original if original != text else "", encoding


def _parse(path: str, text: str, **more: Any) -> Script:
    with warnings.catch_warnings():
        # an invalid escape in the user's file is for the user's interpreter to say
        warnings.simplefilter("ignore")
        try:
            return parse(path, text, **more)
        except (RecursionError, MemoryError):
            return with_large_stack(
                lambda: parse(path, text, **more), SyntaxError, ValueError, RecursionError, MemoryError
            )


def notebook(data: bytes) -> tuple[str, tuple[SourceLine, ...], tuple[SourceLine, ...]]:
    """The code cells of a notebook as one source, magics blanked, where each line comes from, and the cells that
    cannot be parsed: those are blank.

    Raises:
        ValueError: where it is no notebook.
    """
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("the notebook is nested too deeply") from None
    cells = document.get("cells") if isinstance(document, dict) else None
    if cells is None and isinstance(document, dict):
        sheets = document.get("worksheets") or [{}]
        cells = sheets[0].get("cells") if isinstance(sheets, list) and isinstance(sheets[0], dict) else None
    if not isinstance(cells, list):
        raise ValueError("the notebook has no cells")
    lines: list[str] = []
    origin: list[SourceLine] = []
    unparsed: list[SourceLine] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        code, broken = _without_magics(text)
        if broken:
            unparsed.append(SourceLine(number, broken))
        for at, line in enumerate(code, 1):
            lines.append(line)
            origin.append(SourceLine(number, at))
    return "\n".join(lines) + "\n", tuple(origin) or (SourceLine(1, 1),), tuple(unparsed)


_MAGIC = re.compile(r"(\s*)(?:[%!?]|\w[\w. ,]*=\s*[%!]|[\w.]+\?{1,2}\s*$)")


def _without_magics(text: str) -> tuple[list[str], int]:
    """The lines of a cell as Python, and the line (from 1) where they cannot be parsed, else 0."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return ["" for _ in lines], 0  # a cell of another language
    found = []
    for line in lines:
        match = _MAGIC.match(line)
        found.append(f"{match[1]}pass" if match and line.strip() else line)
    try:
        compile("\n".join(found), "<cell>", "exec", 0x400 | 0x2000, dont_inherit=True)  # AST only, top-level await
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # one broken cell does not cost the others
        return ["" for _ in lines], getattr(error, "lineno", None) or 1
    return found, 0


class Neighbours(Mapping[str, Script]):
    """Modules beside a file, by the dotted name that an import gives them; each read when it is asked for."""

    def __init__(self, folder: Path, depth: int = 2) -> None:
        self._folder = folder
        self._depth = depth
        self._known: dict[str, Script | None] = {}

    def __getitem__(self, name: str) -> Script:
        if name not in self._known:
            self._known[name] = self._read(name) if self._depth else None
        found = self._known[name]
        if found is None:
            raise KeyError(name)
        return found

    def _read(self, name: str) -> Script | None:
        level = len(name) - len(name.lstrip("."))
        parts = name[level:].split(".")
        if not all(p.isidentifier() for p in parts):
            return None
        folder = self._folder
        for _ in range(max(0, level - 1)):
            folder = folder.parent
        bases = [folder] if level else [folder, folder.parent]
        for base in bases:
            for path in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
                if path.is_file():
                    found = read(path)
                    if isinstance(found, Script):
                        return replace(found, neighbours=Neighbours(path.parent, self._depth - 1))
                    return None
        return None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, found in self._known.items() if found is not None])

    def __len__(self) -> int:
        return sum(1 for found in self._known.values() if found is not None)

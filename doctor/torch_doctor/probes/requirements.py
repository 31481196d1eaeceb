"""Reads the training script and the modules beside it that it imports. They are parsed, never executed."""

from __future__ import annotations

import ast
import io
import json
import os
import tokenize
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_doctor.errors import DoctorError
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import Location, Notification
from torch_doctor.requirements import complete, needs

if TYPE_CHECKING:
    from torch_doctor.requirements.source import Source

MOST_FILES = 60
MOST_BYTES = 2 << 20


def read(
    script: Path | None, *, need: Sequence[str] = (), gpus: str | None = None, sample_bytes: str | None = None
) -> tuple[Requirements, tuple[Notification, ...]]:
    """What the script and the options ask of the machine, and what could not be read of them.

    Raises:
        DoctorError: for a script that is not there or no file, and for options that cannot be read.
    """
    stated, written = needs.parse(need)
    if gpus:
        stated["gpus"] = needs.gpu_count(gpus, f"--gpus {gpus}")
    size = needs.size(sample_bytes, f"--sample-bytes {sample_bytes}") if sample_bytes else None
    found, notes = (Requirements(), ()) if script is None else _infer(script)
    return complete.complete(found, stated, needs=written, sample_bytes=size, gpus=gpus or ""), notes


def _infer(script: Path) -> tuple[Requirements, tuple[Notification, ...]]:
    from torch_doctor.requirements import infer  # only a script takes it

    _require_file(script)
    try:
        first = parse(script)
        return infer.infer([first, *beside(first, script)], str(script)), ()
    except SyntaxError as error:
        note = f"cannot be parsed: {error.msg}; what the script needs is unknown"
        return Requirements(script=str(script)), (
            Notification(note, Location(str(script), error.lineno, error.offset)),
        )
    except (ValueError, RecursionError, OSError, MemoryError) as error:
        note = f"cannot be read: {getattr(error, 'strerror', None) or error}; what the script needs is unknown"
        return Requirements(script=str(script)), (Notification(note, Location(str(script))),)


def _require_file(script: Path) -> None:
    if script.is_dir():
        raise DoctorError(str(script), "is a folder", f"name the training script in it: {script}/train.py")
    if not script.exists():
        raise DoctorError(str(script), "no such file", "name a Python file that exists here")
    if not script.is_file():
        raise DoctorError(str(script), "is not a regular file", "name a Python file")
    if not os.access(script, os.R_OK):
        raise DoctorError(str(script), "permission denied", f"chmod +r {script}")


def parse(path: Path) -> Source:
    """The parsed file; the code cells of a notebook.

    Raises:
        SyntaxError: where it is not Python.
        ValueError: where it is not text, or too large to be a training script.
    """
    data = path.read_bytes()
    if len(data) > MOST_BYTES:
        raise ValueError(f"{len(data)} bytes are no training script")
    text = notebook(data) if path.suffix == ".ipynb" else decode(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in the user's file is not ours to print
        tree = ast.parse(text, str(path))
    from torch_doctor.requirements.source import Source

    return Source(str(path), tree, len(os.sched_getaffinity(0)))


def decode(data: bytes) -> str:
    """Python source as text, by its own encoding line."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()


def notebook(data: bytes) -> str:
    """The code cells of a notebook, one after another, without magics.

    Raises:
        ValueError: where it is no notebook.
    """
    try:
        cells: Any = json.loads(data)["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    except (KeyError, TypeError) as error:
        raise ValueError("is no notebook") from error
    lines = [line for text in code if not text.startswith("%%") for line in text.splitlines()]
    return "\n".join(
        "pass" if line.lstrip().startswith(("%", "!")) and line == line.lstrip() else line for line in lines
    )


def beside(first: Source, script: Path) -> list[Source]:
    """The modules in the script's folder that it imports, directly or through each other."""
    root = script.resolve().parent
    seen = {script.resolve()}
    shown = {script.resolve(): script}
    found: list[Source] = []
    pending = [(first, script.resolve())]
    while pending and len(found) < MOST_FILES:
        source, at = pending.pop(0)
        for path in _imports(source, at, root):
            if path in seen or len(found) >= MOST_FILES:
                continue
            seen.add(path)
            module = _quietly(path, root, shown[script.resolve()].parent)
            if module is not None:
                found.append(module)
                pending.append((module, path))
    return found


def _imports(source: Source, at: Path, root: Path) -> list[Path]:
    paths: list[Path] = []
    for level, name in source.imported:
        bases = [at.parents[level - 1]] if 0 < level <= len(at.parents) else ([] if level else [root])
        for base in bases:
            target = base.joinpath(*name.split(".")) if name else base
            if not target.is_relative_to(root):
                continue
            for path in (target.with_name(target.name + ".py"), target / "__init__.py"):
                if path.is_file():
                    paths.append(path.resolve())
    return paths


def _quietly(path: Path, root: Path, shown: Path) -> Source | None:
    try:
        source = parse(path)
    except (SyntaxError, ValueError, OSError, RecursionError):
        return None  # a module beside the script that does not parse only leaves its needs unknown
    source.path = str(shown / path.relative_to(root)) if path.is_relative_to(root) else str(path)
    return source


def probe(request: Request) -> Requirements:
    """What the command line has inferred already."""
    return request.requirements


PROBES = {Requirements: probe}

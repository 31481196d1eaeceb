"""Names of sessions: what is allowed, and the one that a command gets by default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from torch_doctor.errors import DoctorError

MAX_LENGTH = 64
_VALID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_RULE = f"use letters, digits, '_', '-' and '.', at most {MAX_LENGTH}, beginning with none of '-' and '.'"


def validated(name: str) -> str:
    """The name, where it is safe as a folder, in tmux and on a command line.

    Raises:
        DoctorError: where it is not.
    """
    if not _VALID.match(name) or len(name) > MAX_LENGTH:
        raise DoctorError(f"--name {name!r}", "is not a session's name", _RULE)
    return name


def proposals(command: Sequence[str], script: str | None) -> Iterator[str]:
    """Names for a command without one: the script's or program's, then with numbers."""
    stem = PurePath(script).stem if script else PurePath(command[0]).name
    base = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-.")[: MAX_LENGTH - 6] or "run"
    yield base
    for number in range(2, 10000):
        yield f"{base}-{number}"

"""Which training script a command line runs: for its name, and for the preflight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*\Z")
#: interpreter options that take a value of their own
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
#: modules that run another script (python -m MODULE ... SCRIPT)
LAUNCHERS = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "cProfile",
        "pdb",
        "trace",
        "coverage",
        "debugpy",
        "kernprof",
    }
)


def find_script(command: Sequence[str], cwd: Path) -> Path | None:
    """The Python file that ``command`` trains with, as an existing path; None where that cannot be told."""
    if not command:
        return None
    if _PYTHON.match(Path(command[0]).name):
        return _of_interpreter(command[1:], cwd)
    # torchrun, accelerate, srun, env, uv run ...: the interpreter may come later, else the first script named
    for at, word in enumerate(command):
        if at and _PYTHON.match(Path(word).name):
            return _of_interpreter(command[at + 1 :], cwd)
        found = _existing(word, cwd)
        if found is not None:
            return found
    return None


def _of_interpreter(arguments: Sequence[str], cwd: Path) -> Path | None:
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in _WITH_VALUE:
            rest = rest[1:]
        elif word == "-c":
            return None
        elif word == "-m" or re.match(r"-[a-zA-Z]*m\Z", word):
            return _of_module(rest, cwd)
        elif not word.startswith("-"):
            return _existing(word, cwd, any_suffix=True)
    return None


def _of_module(arguments: Sequence[str], cwd: Path) -> Path | None:
    if not arguments:
        return None
    if arguments[0] in LAUNCHERS:
        return next((p for p in (_existing(w, cwd) for w in arguments[1:]) if p is not None), None)
    base = cwd.joinpath(*arguments[0].split("."))
    return next((p for p in (base.with_name(base.name + ".py"), base / "__main__.py") if p.is_file()), None)


def _existing(word: str, cwd: Path, any_suffix: bool = False) -> Path | None:
    if not any_suffix and not word.endswith(".py"):
        return None
    try:
        path = cwd / word
        return path if path.is_file() else None
    except (OSError, ValueError):  # too long, or a NUL: no path
        return None

"""Which Python has the user's torch, where ``--python`` does not say."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from torch_doctor.errors import DoctorError


def choose(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The interpreter that ``python train.py`` would use here.

    ``--python``; the active virtual or conda environment; this interpreter where it has a torch; ``python`` or
    ``python3`` on PATH.

    Raises:
        DoctorError: where ``given`` is no program.
    """
    if given:
        found = shutil.which(given, path=environment.get("PATH"))
        if found is None:
            raise DoctorError(f"--python {given}", "is not a program that can be run", "name a Python interpreter")
        return found
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        if prefix and (path := Path(prefix) / "bin" / "python").is_file():
            return str(path)
    if _has_torch():
        return sys.executable
    on_path = (shutil.which(name, path=environment.get("PATH")) for name in ("python", "python3"))
    return next((path for path in on_path if path), sys.executable)


def _has_torch() -> bool:
    try:
        return importlib.util.find_spec("torch") is not None  # looks for the folder; imports nothing
    except (ImportError, ValueError):
        return False

"""Runs ``torch-doctor`` as a user does: as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch_doctor as package

#: what of this process's environment the command sees: enough to start, nothing that changes a report
_KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "TMPDIR")
_PACKAGE = Path(package.__file__).parents[1]


def environment(**extra: str) -> dict[str, str]:
    """A small environment with UTF-8, without colour, plus ``extra``."""
    kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(_PACKAGE),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        **extra,
    }


def torch_doctor(
    *args: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """The finished process of ``torch-doctor ARGS``; ``env`` is added to a small environment."""
    return subprocess.run(
        [sys.executable, "-m", "torch_doctor", *map(str, args)],
        cwd=cwd,
        env=environment(**(env or {})),
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )

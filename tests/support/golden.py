"""Golden files are compared whole. ``TORCH_DOCTOR_UPDATE_GOLDEN=1`` writes them anew: read the difference."""

from __future__ import annotations

import os
from pathlib import Path


def assert_golden(path: Path, text: str) -> None:
    """Compare ``text`` with the file at ``path``."""
    if os.environ.get("TORCH_DOCTOR_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")

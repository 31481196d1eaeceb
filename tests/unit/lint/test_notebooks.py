"""Notebooks are judged cell by cell, in the user's terms."""

from __future__ import annotations

import json
from pathlib import Path

from support.linting import CHECKS

from torch_doctor import linting


def found(folder: Path, *cells: str) -> list[tuple[str, int | None, int | None]]:
    """(rule, cell, line) of what is found in a notebook of these code cells."""
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": c} for c in cells]}), encoding="utf-8")
    pairs = linting.lint([path], CHECKS).findings.get(str(path), [])
    return [(c.id, f.location.cell, f.location.line) for c, f in pairs if f.location]


HEAD = "%matplotlib inline\nimport torch\nx = torch.zeros(2)"


def test_the_last_expression_of_a_cell_is_shown(tmp_path: Path) -> None:
    assert found(tmp_path, HEAD, "x.cuda()  # look", "x.half()\n\n# no more") == []


def test_any_other_dropped_result_is_found(tmp_path: Path) -> None:
    loop = "for _ in range(3):\n    x.cuda()"
    assert found(tmp_path, HEAD, "x.cuda()\nprint(x)", loop) == [("DEV101", 2, 1), ("DEV101", 3, 2)]

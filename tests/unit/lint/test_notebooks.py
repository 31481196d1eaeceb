"""Notebooks are judged cell by cell, in the user's terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.linting import CHECKS

from torch_doctor import fixing, linting


def found(folder: Path, *cells: str) -> list[tuple[str, int | None, int | None]]:
    """(rule, cell, line) of what is found in a notebook of these code cells."""
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": c} for c in cells]}), encoding="utf-8")
    pairs = linting.lint([path], CHECKS).findings.get(str(path), [])
    return [(c.id, f.location.cell, f.location.line) for c, f in pairs if f.location]


HEAD = "%matplotlib inline\nimport torch\nx = torch.zeros(2)"


def test_the_last_expression_of_a_cell_is_shown(tmp_path: Path) -> None:
    assert found(tmp_path, HEAD, "x.view(1, 2)  # look", "x.half()\n\n# no more") == []


def test_a_move_at_the_end_of_a_cell_is_found(tmp_path: Path) -> None:
    """Who looks at a tensor does not move it for that."""
    assert found(tmp_path, HEAD, "x.cuda()") == [("DEV101", 2, 1)]


def test_any_other_dropped_result_is_found(tmp_path: Path) -> None:
    loop = "for _ in range(3):\n    x.cuda()"
    assert found(tmp_path, HEAD, "x.cuda()\nprint(x)", loop) == [("DEV101", 2, 1), ("DEV101", 3, 2)]


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Über x.cuda()\n"]},
        {"cell_type": "code", "outputs": [{"text": ["é"]}], "source": ["%matplotlib inline\n", "import torch"]},
        {"cell_type": "code", "outputs": [], "source": ["x = torch.zeros(2)\n", "x.cuda()  # ü\n", "!ls x\n", "x"]},
        {"cell_type": "code", "outputs": [], "source": "%%time\nx.half()\nprint(x, '\x0c')"},
        {"cell_type": "code", "outputs": [], "source": ["with (\n"]},
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
}


@pytest.mark.parametrize(
    "style", [{"indent": 1, "ensure_ascii": False}, {"indent": 2, "ensure_ascii": True}, {"ensure_ascii": True}]
)
def test_a_fix_changes_the_cell_and_nothing_else(tmp_path: Path, style: dict[str, Any]) -> None:
    path = tmp_path / "train.ipynb"
    before = json.dumps(NOTEBOOK, **style) + "\n"
    path.write_text(before, encoding="utf-8")
    (change,) = fixing.changes([path], CHECKS)
    fixing.write(change)
    after = before.replace('"x.cuda()  #', '"x = x.cuda()  #').replace("\\nx.half()", "\\nx = x.half()")
    assert path.read_text(encoding="utf-8") == after
    assert change.fixed == 2
    assert fixing.changes([path], CHECKS) == []


def test_a_notebook_of_another_layout_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(NOTEBOOK, indent=3), encoding="utf-8")
    assert fixing.changes([path], CHECKS) == []

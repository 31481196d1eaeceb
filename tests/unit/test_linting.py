"""Many files in several processes give what one process gives."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from torch_doctor import linting, registry
from torch_doctor.errors import CannotRun

CHECKS = registry.load("lint")
BROKEN = "import torch\n\nx = torch.zeros(3)\nx.cuda()\nprint(x)\n"
FILES = linting.WORTH_PROCESSES + 10


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with enough files for a second process: each third has a fault, one does not parse."""
    for number in range(FILES):
        text = BROKEN if number % 3 == 0 else "import torch\n# noqa: GRD101\n"
        (tmp_path / f"m{number:03}.py").write_text("def (" if number == 50 else text)
    return tmp_path


def test_processes_change_nothing(tree: Path) -> None:
    one, two = linting.lint([tree], CHECKS), linting.lint([tree], CHECKS, jobs=2)
    assert sum(len(found) for found in one.findings.values()) == FILES // 3 + 1
    assert two.findings == one.findings
    assert (two.notifications, two.files) == (one.notifications, one.files)
    assert [replace(r, duration=0) for r in two.results] == [replace(r, duration=0) for r in one.results]


def test_a_process_that_dies_is_said(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_doctor.snapshot.source", lambda path: os._exit(9))
    with pytest.raises(CannotRun, match="a process died"):
        linting.lint([tree], CHECKS, jobs=2)


@pytest.mark.parametrize(("imported", "found"), [("mxnet", 0), ("mxnet.gluon as torch_like", 0), ("torch, mxnet", 1)])
def test_a_file_of_another_framework_is_left_alone(tmp_path: Path, imported: str, found: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import {imported}  # as torch does\ndef train(net, loader, opt, loss):\n    for x, y in loader:\n"
        "        loss(net(x), y).backward()\n        opt.step()\n"
    )
    assert len(linting.lint([script], CHECKS).findings.get(str(script), [])) == found

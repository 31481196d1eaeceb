"""Every fault of the corpus is found on its line, and nothing is said of what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.linting import CHECKS, CORPUS, Case, cases, judge, lint

from torch_doctor import linting
from torch_doctor.model import Outcome, Severity

EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_script_of_the_corpus(name: str) -> None:
    found = linting.lint([CORPUS / name], CHECKS)
    assert not [r.reason for r in found.results if r.outcome is Outcome.CRASHED]
    places = [
        (f.location.line or 0, f.severity.value)
        for _, f in found.findings.get(str(CORPUS / name), [])
        if f.location and f.suppression is None
    ]
    expected = EXPECTED[name]
    for fault in expected:
        assert any(_fits(place, fault) for place in places), fault["why"]
    others = [p for p in places if p[1] != "note" and not any(_fits(p, fault) for fault in expected)]
    assert not others


def _fits(place: tuple[int, str], fault: dict[str, Any]) -> bool:
    return abs(place[0] - fault["line"]) <= 2 and place[1] in fault["severity"]


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_a_case(case: Case) -> None:
    found = [(f.location.line, c.id, f.severity) for c, f in lint(case.source) if f.location]
    for line, rule in case.expected:
        assert any(rule == r and abs((at or 0) - line) <= 1 for at, r, _ in found), f"{rule} on line {line}: {found}"
    loud = [(at, r) for at, r, s in found if s is not Severity.NOTE]
    assert not [x for x in loud if not any(x[1] == r and abs((x[0] or 0) - n) <= 1 for n, r in case.expected)]


@pytest.mark.parametrize("name", ["z1_syntax.py"])
def test_what_cannot_be_parsed_is_named(name: str) -> None:
    found = linting.lint([CORPUS / name], CHECKS)
    assert [(n.location.path, n.location.line) for n in found.notifications if n.location] == [
        (str(CORPUS / name), 2)
    ]


def test_modules_beside_the_script_are_read(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def update(loss, opt):\n    opt.zero_grad(); loss.backward(); opt.step()\n")
    (tmp_path / "net.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.softmax(1)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.nn.functional as F\nfrom helpers import update\nfrom net import Net\n"
        "def train(loader, opt):\n    model = Net()\n    for x, y in loader:\n"
        "        update(F.cross_entropy(model(x), y), opt)\n"
    )
    found = linting.lint([script], CHECKS)
    assert [(c.id, f.location.line) for c, f in found.findings[str(script)] if f.location] == [("LOS102", 7)]


def test_results_come_in_order_of_path_and_line(tmp_path: Path) -> None:
    for name in ("b.py", "a.py"):
        (tmp_path / name).write_text("import torch\nx = torch.zeros(1)\nx.cuda()\nx.half()\n")
    found = linting.lint([tmp_path], CHECKS)
    result = next(r for r in found.results if r.check.id == "DEV101")
    assert [(Path(f.location.path).name, f.location.line) for f in result.findings if f.location] == [
        ("a.py", 3),
        ("a.py", 4),
        ("b.py", 3),
        ("b.py", 4),
    ]
    assert [r.check.id for r in found.results] == sorted(r.check.id for r in found.results)


def test_a_file_that_mentions_no_framework_is_only_parsed(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("x.cuda()\n")
    assert linting.lint([script], CHECKS).findings == {}
    assert judge  # the same text is judged where a rule could have something to say

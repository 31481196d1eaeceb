"""Real failures: the right cause first, its remedy named, the wrong conclusion absent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from torch_doctor import postmortem
from torch_doctor.facts.request import Request
from torch_doctor.model import Outcome, Report

CORPUS = Path(__file__).parents[2] / "corpus" / "explain"
EXPECTED = json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))


def cases() -> list[Any]:
    found = []
    for name in ("cases.jsonl", "extra.jsonl"):
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if case.get("symptom"):
                found.append(pytest.param(case["id"], case["symptom"], id=f"{case['id']}-text"))
            if case.get("log"):
                found.append(pytest.param(case["id"], CORPUS / case["log"], id=f"{case['id']}-log"))
    assert len(found) > 110
    return found


def explain(what: str | Path, folder: Path) -> Report:
    path = what if isinstance(what, Path) else folder / "train.log"
    if not isinstance(what, Path):
        path.write_text(what, encoding="utf-8")
    report = postmortem.explain(Request(log=path))
    assert not report.count(Outcome.CRASHED), [r.reason for r in report.results if r.reason]
    return report


@pytest.mark.parametrize(("case", "what"), cases())
def test_the_root_cause_comes_first(case: str, what: str | Path, tmp_path: Path) -> None:
    report = explain(what, tmp_path)
    check, finding = report.findings()[0]
    expected = EXPECTED[case]
    assert re.fullmatch(expected["id"], check.id)
    assert finding.role == ""
    assert report.exit_code() == 1
    said = " ".join([finding.message, finding.remediation.text, *finding.remediation.commands])
    assert [words for words in expected["says"] if not re.search(words, said)] == []
    assert [words for words in expected["never"] if re.search(words, said)] == []


def variants() -> list[Any]:
    lines = (CORPUS / "variants.jsonl").read_text(encoding="utf-8").splitlines()
    found = [
        pytest.param(v["id"], v["text"], v.get("says", []), id=f"{n}-{v['id']}")
        for n, v in enumerate(map(json.loads, lines))
    ]
    assert len(found) > 60
    return found


@pytest.mark.parametrize(("id", "text", "says"), variants())
def test_other_wordings_of_the_same_faults(id: str, text: str, says: list[str], tmp_path: Path) -> None:
    check, finding = explain(text, tmp_path).findings()[0]
    assert re.fullmatch(id, check.id)
    said = " ".join([finding.message, finding.remediation.text, *finding.remediation.commands])
    assert [words for words in says if not re.search(words, said)] == []


HEALTHY = sorted((CORPUS / "healthy").glob("*.log"))


def test_there_are_enough_healthy_logs() -> None:
    assert len(HEALTHY) >= 20


@pytest.mark.parametrize("path", HEALTHY, ids=[p.stem for p in HEALTHY])
def test_a_healthy_log_gets_no_error(path: Path, tmp_path: Path) -> None:
    report = explain(path, tmp_path)
    assert [(c.id, f.message) for c, f in report.findings() if f.severity.value == "error"] == []
    assert report.exit_code() == 0

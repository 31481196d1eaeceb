"""What changed between two reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import reports

from torch_doctor import comparison
from torch_doctor.errors import DoctorError
from torch_doctor.report.json import as_dict

FULL: dict[str, Any] = json.loads(json.dumps(as_dict(reports.FULL), default=str))


def test_the_same_report_does_not_differ() -> None:
    found = comparison.compare(FULL, FULL)
    assert not found.differs
    assert comparison.render(found, "table") == "no difference\n"


def test_findings_outcomes_and_facts_that_changed() -> None:
    new = json.loads(json.dumps(FULL))
    new["facts"] = {"shm": {"size_bytes": 8, "devices": [{"name": "H200"}]}}
    new["findings"] = [f for f in new["findings"] if f["id"] != "GRD198"]
    new["checks"][0]["outcome"] = "passed"
    found = comparison.compare(FULL, new)
    assert found.gone[0].startswith("warning GRD198 loss-keeps-graph: ")
    assert found.appeared == ()
    assert found.outcomes == (comparison.Change("SHM098 shm-too-small-here", "failed", "passed"),)
    assert found.facts == (
        comparison.Change("shm.devices.0.name", "(absent)", "H200"),
        comparison.Change("shm.size_bytes", 67108864, 8),
    )
    assert json.loads(comparison.render(found, "json"))["facts"][1]["new"] == 8
    assert "  shm.size_bytes: 67108864 -> 8\n" in comparison.render(found, "table")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a torch-doctor report"),
        ("{}", "not a torch-doctor report"),
        ("[" * 100000, "not JSON"),
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(DoctorError, match=rf"r\.json.*{why}"):
        comparison.load(path)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(FULL | {"schema_version": 99}))
    with pytest.raises(DoctorError, match="schema version 99"):
        comparison.load(path)

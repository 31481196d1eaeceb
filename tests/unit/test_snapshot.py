"""Probes run once each, their failures are facts, and facts leave as plain redacted JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from torch_doctor import snapshot
from torch_doctor.facts.request import Request
from torch_doctor.facts.shm import ShmFacts
from torch_doctor.model import FailureKind, ProbeFailure, Severity


@dataclass(frozen=True)
class CpuQuotaFacts:
    environment: dict[str, str] = field(default_factory=dict)
    path: Path = Path("/tmp/a")
    kind: Severity = Severity.NOTE
    names: frozenset[str] = frozenset({"b", "a"})


def test_real_facts_of_this_machine() -> None:
    found = snapshot.take({ShmFacts}, Request())
    assert found[ShmFacts].size_bytes > 0


def test_a_probe_that_stumbles_is_a_failure_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(request: Request) -> ShmFacts:
        raise PermissionError(13, "Permission denied", "/dev/shm")

    monkeypatch.setattr("torch_doctor.probes.shm.PROBES", {ShmFacts: stumble})
    found = snapshot.take({ShmFacts}, Request())[ShmFacts]
    assert isinstance(found, ProbeFailure) and found.kind is FailureKind.ERROR
    assert "/dev/shm" in found.reason


def test_keys_of_facts() -> None:
    assert (snapshot.key_of(ShmFacts), snapshot.key_of(CpuQuotaFacts)) == ("shm", "cpu_quota")


def test_plain_facts_are_json_and_redacted() -> None:
    facts = CpuQuotaFacts(environment={"HF_TOKEN": "hf_0123456789abcdefXYZ", "OMP_NUM_THREADS": "4"})
    value = snapshot.plain({CpuQuotaFacts: facts, ShmFacts: ProbeFailure("gone")})
    assert json.loads(json.dumps(value)) == {
        "cpu_quota": {
            "environment": {"HF_TOKEN": "[redacted]", "OMP_NUM_THREADS": "4"},
            "path": "/tmp/a",
            "kind": "note",
            "names": ["a", "b"],
        },
        "shm": {"probe_failure": {"kind": "unavailable", "reason": "gone"}},
    }

"""The registry refuses what would mislead a user, at import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torch_doctor import registry
from torch_doctor.errors import DoctorError
from torch_doctor.facts.shm import ShmFacts
from torch_doctor.model import Finding, ProbeFailure

DOC = "It is broken.\n\nWhat it checks:\n  a\nWhy it matters:\n  b\nExample:\n  c\nFix:\n  d\nReferences:\n  e\n"


def judge(shm: ShmFacts) -> Iterator[Finding]:
    yield from ()


def judge_failure(shm: ShmFacts | ProbeFailure) -> Iterator[Finding]:
    yield from ()


def unannotated(shm) -> Iterator[Finding]:  # type: ignore[no-untyped-def]
    yield from ()


def test_needs_are_read_from_the_annotations() -> None:
    built = registry.build("SHM099", "shm-is-broken", judge, doc=DOC)
    assert (built.needs, built.judges_failure, built.family, built.command) == (
        (ShmFacts,),
        frozenset(),
        "SHM",
        "check",
    )


def test_a_check_can_judge_the_failure_of_its_probe() -> None:
    assert registry.build("SHM099", "shm-is-broken", judge_failure, doc=DOC).judges_failure == {ShmFacts}


@pytest.mark.parametrize(
    ("id", "name", "function", "doc"),
    [
        ("SHM1", "shm-is-broken", judge, DOC),
        ("XYZ001", "shm-is-broken", judge, DOC),
        ("SHM301", "shm-is-broken", judge, DOC),
        ("SHM099", "check-shm", judge, DOC),
        ("SHM099", "shm-ok", judge, DOC),
        ("SHM099", "ShmBroken", judge, DOC),
        ("SHM099", "shm-is-broken", judge, "It is broken.\n\nFix:\n  d\n"),
        ("SHM099", "shm-is-broken", judge, DOC.removeprefix("It is broken.\n\n")),
        ("SHM099", "shm-is-broken", unannotated, DOC),
    ],
)
def test_a_malformed_check_is_refused(id: str, name: str, function: object, doc: str) -> None:
    with pytest.raises(registry.RegistrationError, match=id):
        registry.build(id, name, function, doc=doc)  # type: ignore[arg-type]


@pytest.mark.parametrize("taken", [("SHM001", "another-fault"), ("SHM099", "shm-too-small")])
def test_an_id_or_name_is_taken_once(taken: tuple[str, str]) -> None:
    registry.load("check")
    with pytest.raises(registry.RegistrationError, match="already taken"):
        registry.add(registry.build(*taken, judge, doc=DOC))


@pytest.mark.parametrize("token", ["shm001", "SHM001", "shm-too-small", "shm", "container"])
def test_selection_by_id_name_family_and_tag(token: str) -> None:
    assert "SHM001" in {c.id for c in registry.select(registry.load("check"), [token])}


def test_ignored_ones_are_left_out_of_the_selected() -> None:
    assert "SHM001" not in {c.id for c in registry.select(registry.load("check"), ["shm"], ["SHM001,gpu"])}


def test_an_unknown_token_is_named() -> None:
    with pytest.raises(DoctorError, match="nonsense"):
        registry.select(registry.load("check"), ["nonsense"])


def test_find_takes_an_id_or_a_name() -> None:
    assert registry.find("shm001") == registry.find("shm-too-small")
    assert [c.id for c in registry.find("SHM001")] == ["SHM001"]
    with pytest.raises(DoctorError, match="SHM999"):
        registry.find("SHM999")

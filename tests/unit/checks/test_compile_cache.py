"""CMP0xx: the folders that compiled kernels go to."""

from __future__ import annotations

from typing import Any

import pytest

from torch_doctor.checks import compile_cache as checks
from torch_doctor.facts.compile import CacheFolder, CompileFacts, Compiler
from torch_doctor.facts.filesystem import Place
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import Finding, Severity

OPEN, COMPILES = Requirements(), Requirements(compiles=True)
PATH = "/tmp/torchinductor_me"


def facts(cache: str = "inductor", cuda: str | None = "12.8", **place: Any) -> CompileFacts:
    values = {"nearest": PATH, "executable": True, "kind": "ext4", "mount_point": "/", "owner_uid": 1000, **place}
    made_by, foreign = values.pop("made_by", ()), values.pop("foreign_uid", None)
    folder = CacheFolder(cache, Place("compile-cache", PATH, **values), "", made_by, foreign)
    gcc = Compiler("gcc", "/usr/bin/gcc")
    return CompileFacts("python", "3.13", "/i", True, gcc, gcc, (folder,), uid=1000, manager="docker", cuda=cuda)


def test_a_healthy_cache_has_no_fault() -> None:
    for check in (
        checks.compile_cache_unwritable,
        checks.compile_cache_noexec,
        checks.compile_cache_on_network,
        checks.compile_cache_foreign,
    ):
        assert not list(check(facts(), COMPILES))
    assert not list(checks.compile_cache_stale(facts()))


@pytest.mark.parametrize(
    ("place", "check", "words"),
    [
        ({"error": "EROFS"}, checks.compile_cache_unwritable, "cannot write its cache"),
        ({"error": "EACCES", "owner_uid": 0}, checks.compile_cache_unwritable, "belongs to uid 0: EACCES"),
        (
            {"executable": False, "mount_point": "/tmp"},
            checks.compile_cache_noexec,
            "on /tmp, which is mounted noexec",
        ),
        ({"kind": "nfs4"}, checks.compile_cache_on_network, "on nfs4, a network file system"),
        ({"owner_uid": 2000}, checks.compile_cache_foreign, "belongs to uid 2000; this process runs as 1000"),
        ({"foreign_uid": 0}, checks.compile_cache_foreign, "a part of inductor's cache"),
    ],
)
def test_each_fault_is_named_and_only_it(place: dict[str, Any], check: Any, words: str) -> None:
    all_checks = (
        checks.compile_cache_unwritable,
        checks.compile_cache_noexec,
        checks.compile_cache_on_network,
        checks.compile_cache_foreign,
    )
    found = [(item, finding) for item in all_checks for finding in item(facts(**place), OPEN)]
    assert [item for item, _ in found] == [check]
    finding: Finding = found[0][1]
    assert words in finding.message and finding.remediation.commands and finding.severity is Severity.WARNING


def test_an_unwritable_cache_is_an_error_for_a_script_that_compiles() -> None:
    (finding,) = checks.compile_cache_unwritable(facts(error="EROFS"), COMPILES)
    assert finding.severity is Severity.ERROR
    assert finding.remediation.commands == (
        "docker run --tmpfs /tmp:exec -e TORCHINDUCTOR_CACHE_DIR=/tmp/torch-compile-1000 ...",
    )


def test_noexec_is_mended_by_the_mount() -> None:
    (finding,) = checks.compile_cache_noexec(facts(executable=False, mount_point="/tmp"), OPEN)
    assert finding.remediation.commands == ("docker run --tmpfs /tmp:exec ...",)


def test_a_build_for_the_cpu_does_not_use_tritons_cache() -> None:
    assert not list(checks.compile_cache_unwritable(facts("triton", None, error="EROFS"), OPEN))
    assert list(checks.compile_cache_unwritable(facts("triton", error="EROFS"), OPEN))


def test_root_owns_what_a_user_may_share() -> None:
    assert not list(checks.compile_cache_foreign(facts(owner_uid=0), OPEN))  # /tmp with its sticky bit, say
    assert not list(checks.compile_cache_foreign(facts(owner_uid=2000, exists=False), OPEN))


def test_a_cache_of_another_triton_is_a_note() -> None:
    (finding,) = checks.compile_cache_stale(facts(made_by=("triton 3.4.0",)))
    assert finding.severity is Severity.NOTE and finding.remediation.commands == (f"rm -rf {PATH}",)

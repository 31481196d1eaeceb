"""Order, skips, crashes: a crash is a result, not the end."""

from __future__ import annotations

from collections.abc import Iterator

from support.reports import DOC

from torch_doctor import registry, runner
from torch_doctor.facts.shm import ShmFacts
from torch_doctor.model import Check, FailureKind, Finding, Outcome, ProbeFailure, Severity, Suppression

FACTS = ShmFacts(size_bytes=1, free_bytes=1)
FINDING = Finding(Severity.NOTE, "it is small")


def fine(shm: ShmFacts) -> Iterator[Finding]:
    yield from ()


def noted(shm: ShmFacts) -> Iterator[Finding]:
    yield FINDING


def silenced(shm: ShmFacts) -> Iterator[Finding]:
    yield Finding(Severity.ERROR, "it is small", suppression=Suppression("in-source"))


def broken(shm: ShmFacts) -> Iterator[Finding]:
    yield FINDING
    raise ZeroDivisionError("by nothing")


def judge(shm: ShmFacts | ProbeFailure) -> Iterator[Finding]:
    if isinstance(shm, ProbeFailure):
        yield Finding(Severity.ERROR, shm.reason)


def build(number: int, function: object) -> Check:
    return registry.build(f"SHM{number:03}", f"fault-{number}", function, doc=DOC.format(summary="A fault."))  # type: ignore[arg-type]


def outcomes(checks: list[Check], facts: object = FACTS) -> dict[str, tuple[Outcome, str]]:
    return {r.check.id: (r.outcome, r.reason) for r in runner.run(checks, {ShmFacts: facts})}


def test_results_come_by_id_and_a_crash_does_not_end_the_run() -> None:
    found = outcomes([build(93, fine), build(92, broken), build(91, noted), build(94, silenced)])
    assert list(found) == ["SHM091", "SHM092", "SHM093", "SHM094"]
    assert found["SHM091"][0] is Outcome.FAILED, "a note is no pass"
    assert found["SHM092"][0] is Outcome.CRASHED
    assert found["SHM092"][1].startswith("ZeroDivisionError: by nothing at test_runner.py:")
    assert found["SHM093"][0] is Outcome.PASSED
    assert found["SHM094"][0] is Outcome.PASSED, "what a comment silences does not fail"


def test_nothing_to_look_at_is_a_skip_with_the_reason() -> None:
    assert outcomes([build(91, fine)], ProbeFailure("no NVML here"))["SHM091"] == (Outcome.SKIPPED, "no NVML here")


def test_a_probe_that_died_crashes_what_needed_it() -> None:
    dead = ProbeFailure("killed by SIGSEGV", FailureKind.SIGNAL)
    assert outcomes([build(91, fine)], dead)["SHM091"] == (Outcome.CRASHED, "killed by SIGSEGV")


def test_one_check_judges_the_dead_probe_and_the_rest_is_skipped() -> None:
    dead = ProbeFailure("no answer within 5 s", FailureKind.TIMEOUT)
    found = outcomes([build(91, fine), build(92, judge)], dead)
    assert found["SHM091"] == (Outcome.SKIPPED, "no answer within 5 s")
    assert found["SHM092"][0] is Outcome.FAILED


def test_facts_that_nobody_probed_are_named() -> None:
    assert runner.run([build(91, fine)], {})[0].reason == "no probe gave ShmFacts"

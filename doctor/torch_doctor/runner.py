"""Runs checks over facts: order, timing, crash isolation."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch_doctor.model import Check, CheckResult, Finding, Outcome, ProbeFailure, in_order

Facts = Mapping[type, Any]


def run(checks: Sequence[Check], facts: Facts) -> tuple[CheckResult, ...]:
    """Run each check on the facts it needs; one result per check, ordered by ID.

    Args:
        checks: what to run.
        facts: facts type -> an instance of it, or the ProbeFailure that came instead.
    """
    judged = {need for item in checks for need in item.judges_failure}
    return tuple(in_order(run_one(item, facts, judged) for item in checks))


def run_one(item: Check, facts: Facts, judged: Iterable[type] = ()) -> CheckResult:
    """Run one check. Facts whose failure another check judges (``judged``) make it skipped, not crashed."""
    missing = _missing(item, facts)
    if missing is not None:
        need, failure = missing
        crash = failure.kind.is_crash and need not in judged
        return CheckResult(item, Outcome.CRASHED if crash else Outcome.SKIPPED, reason=failure.reason)
    start = time.perf_counter()
    try:
        findings = tuple(item.function(*(facts[need] for need in item.needs)))
    except Exception as error:
        return CheckResult(item, Outcome.CRASHED, (), describe(error), time.perf_counter() - start)
    return CheckResult(item, outcome_of(findings), findings, "", time.perf_counter() - start)


def outcome_of(findings: Iterable[Finding]) -> Outcome:
    """Failed where a finding is left that nothing suppresses, whatever its severity: a note is no pass."""
    return Outcome.FAILED if any(f.suppression is None for f in findings) else Outcome.PASSED


def describe(error: BaseException) -> str:
    """One line: type, message and the place it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}{place}"


def _missing(item: Check, facts: Facts) -> tuple[type, ProbeFailure] | None:
    for need in item.needs:
        value = facts[need] if need in facts else ProbeFailure(f"no probe gave {need.__name__}")
        if isinstance(value, ProbeFailure) and need not in item.judges_failure:
            return need, value
    return None

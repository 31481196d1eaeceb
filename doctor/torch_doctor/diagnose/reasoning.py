"""Puts causes before echoes: which finding is the root cause, which are its consequences, which the alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_doctor.diagnose.candidate import Candidate
from torch_doctor.diagnose.cause import CAUSES, DEGRADED, ECHO, FATAL, HINT, UNKNOWN, VAGUE
from torch_doctor.diagnose.overtaken import standing
from torch_doctor.diagnose.runs import completed, first_failed_rank
from torch_doctor.facts.log import LogFacts, RunFacts
from torch_doctor.model import CheckResult, Finding, Outcome, Severity

_ORDER = {FATAL: 0, VAGUE: 1, DEGRADED: 2, ECHO: 3, UNKNOWN: 4, HINT: 5}


def arrange(results: Sequence[CheckResult], log: LogFacts, run: RunFacts) -> tuple[CheckResult, ...]:
    """The results with one root cause; the rest are consequences, alternatives, or gone where the run recovered."""
    found = [Candidate(r.check.id, f) for r in results for f in r.findings]
    if run.exit_status == 0 or (run.stopped_by and not run.oom_kills):
        # it ended well, or on request: what the log says of errors was caught, or is an echo of the stop
        found = [c for c in found if c.kind in (DEGRADED, HINT)]
    alive = _one_each(standing(found, log))
    if not alive:
        return tuple(_with(r, {}) for r in results)
    root = _root(alive, log)
    well = completed(log) is not None or run.exit_status == 0
    shown = {c.id: _placed(c, root, well) for c in alive}
    return tuple(_with(r, shown) for r in results)


def _one_each(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate a cause: said by its most telling wording, and placed where it is first seen."""
    chosen: dict[str, Candidate] = {}
    for id in dict.fromkeys(c.id for c in candidates):
        own = [c for c in candidates if c.id == id]
        first = min(own, key=lambda c: c.line)
        told = min(own, key=lambda c: (c.finding.evidence.get("signature", 0), c.line))
        where = {
            k: first.finding.evidence[k] for k in ("line", "text", "rank", "source") if k in first.finding.evidence
        }
        evidence = {k: v for k, v in told.finding.evidence.items() if k not in ("rank", "source", "signature")}
        finding = replace(told.finding, evidence=evidence | where, location=first.finding.location)
        chosen[id] = Candidate(id, finding)
    return list(chosen.values())


def _root(candidates: Sequence[Candidate], log: LogFacts) -> Candidate:
    explained = {
        other.id
        for c in candidates
        for other in candidates
        if other is not c and c.explains(other) and not other.explains(c)
    }
    first_rank = first_failed_rank(log)
    free = [c for c in candidates if c.id not in explained] or list(candidates)
    unknown = [c for c in candidates if c.kind == UNKNOWN]
    if unknown:  # nothing outranks it, or it would not be here
        return unknown[0]

    def order(c: Candidate) -> tuple[Any, ...]:
        promoted = any(o.id in explained and c.explains(o) for o in candidates)
        kind = FATAL if promoted and c.kind != ECHO else c.kind
        other_rank = first_rank is not None and c.rank not in (first_rank, None)
        return (_ORDER[kind], other_rank, c.line, c.id)

    return min(free, key=order)


def _placed(c: Candidate, root: Candidate, ended_well: bool) -> Finding:
    evidence = {k: v for k, v in c.finding.evidence.items() if k != "kind"}
    finding = replace(c.finding, evidence=evidence)
    if c.kind in (UNKNOWN, HINT):
        return replace(
            finding, severity=Severity.NOTE, role="" if c.id == root.id or root.kind == HINT else "consequence"
        )
    if c.id == root.id:
        soft = c.kind == DEGRADED and ended_well
        return replace(finding, severity=Severity.WARNING if soft else Severity.ERROR)
    if root.id in CAUSES and c.id in CAUSES[root.id].alternatives:
        return replace(finding, severity=Severity.NOTE, message=f"also possible: {finding.message}")
    return replace(finding, severity=Severity.NOTE, role="consequence")


def _with(result: CheckResult, shown: Mapping[str, Finding]) -> CheckResult:
    if result.outcome in (Outcome.CRASHED, Outcome.SKIPPED):
        return result
    finding = shown.get(result.check.id)
    if finding is None and not result.findings:
        return result
    findings = (finding,) if finding is not None else ()
    return replace(result, findings=findings, outcome=Outcome.FAILED if findings else Outcome.PASSED)

"""Puts causes before echoes: which finding is the root cause, which are its consequences, which the alternatives."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_doctor.diagnose.cause import CAUSES, DEGRADED, ECHO, FATAL, HINT, UNKNOWN, VAGUE
from torch_doctor.diagnose.runs import completed, failures, first_failed_rank, progress
from torch_doctor.facts.log import LogFacts, RunFacts
from torch_doctor.model import CheckResult, Finding, Outcome, Severity

_ORDER = {FATAL: 0, VAGUE: 1, DEGRADED: 2, ECHO: 3, UNKNOWN: 4, HINT: 5}
#: what a session's own record explains: ID -> IDs, or their beginnings
SESSION_EXPLAINS = {"MEM207": ("MEM206", "WRK2", "SES2", "DST2", "CMP212"), "SES232": ("SES221", "SES222", "SES223")}


@dataclass(frozen=True)
class _Candidate:
    id: str
    finding: Finding

    @property
    def kind(self) -> str:
        return str(self.finding.evidence["kind"])

    @property
    def line(self) -> int:
        return int(self.finding.evidence["line"])


def arrange(results: Sequence[CheckResult], log: LogFacts, run: RunFacts) -> tuple[CheckResult, ...]:
    """The results with one root cause; the rest are consequences, alternatives, or gone where the run recovered."""
    found = [_Candidate(r.check.id, f) for r in results for f in r.findings]
    if run.exit_status == 0 or (run.stopped_by and not run.oom_kills):
        # it ended well, or on request: what the log says of errors was caught, or is an echo of the stop
        found = [c for c in found if c.kind in (DEGRADED, HINT)]
    alive = _one_each(passed_by([c for c in found if not _recovered(c, log)], log))
    alive = [c for c in alive if c.kind != VAGUE or not _before_own_error(c, alive, log)]
    if any(_outranks(c, alive, log) for c in alive):
        alive = [c for c in alive if c.kind != UNKNOWN]
    if not alive:
        return tuple(_with(r, {}) for r in results)
    root = _root(alive, log)
    well = completed(log) is not None or run.exit_status == 0
    shown = {c.id: _placed(c, root, well) for c in alive}
    return tuple(_with(r, shown) for r in results)


#: of what programs get over: packages, files, data and checkpoints that were optional, or retried
_SURVIVED = ("FS", "PKG", "HDF", "CKP")
#: of those, what may still be behind an error that nobody knows, much later
_LINGERING = ("FS206", "FS209", "FS231")
#: a line that is part of a traceback, or between two that belong together
_OF_TRACEBACK = (
    r"\s|$|(?:Original )?Traceback|During handling|The above exception"
    r"|[\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)"
)


def passed_by(found: Sequence[_Candidate], log: LogFacts) -> list[_Candidate]:
    """Without what the run got over before the traceback that ended it: a warning, a fallback, a retry.

    A text before that traceback is dropped where training went on after it; or where it is only a line of a log,
    while a cause that is sure stands in the traceback. What explains a cause in the traceback stays.
    """
    ended = next((c for c in found if c.kind == UNKNOWN and c.finding.evidence.get("own")), None)
    if ended is None:
        return list(found)
    last = _index(ended, log)
    first = last
    while first > 0 and re.match(_OF_TRACEBACK, log.lines[first - 1].text):
        first -= 1
    inside = [c for c in found if c.kind not in (UNKNOWN, HINT) and first <= _index(c, log) <= last + 2]
    return [c for c in found if not _got_over(c, _index(c, log), first, inside, log)]


def _got_over(c: _Candidate, index: int, first: int, inside: Sequence[_Candidate], log: LogFacts) -> bool:
    if c.kind not in (FATAL, VAGUE) or not c.id.startswith(_SURVIVED) or index >= first:
        return False
    if any(_explains(c, other) for other in inside):
        return False
    if any(index < i < first for i in progress(log)):
        return bool(inside) or not c.id.startswith(_LINGERING)
    soft = not re.match(_OF_TRACEBACK, log.lines[index].text)
    return soft and any(other.kind == FATAL and not other.id.startswith(c.id[:3]) for other in inside)


def _index(c: _Candidate, log: LogFacts) -> int:
    return bisect.bisect_left(log.lines, c.line, key=lambda line: line.number)


def _outranks(c: _Candidate, others: Sequence[_Candidate], log: LogFacts) -> bool:
    """True where a known cause stands; an echo counts only where no error of its own stands before it.

    What another rank raised counts wherever it stands: the ranks' lines come in any order.
    """
    if c.kind in (UNKNOWN, HINT) or (c.kind == DEGRADED and _before_own_error(c, others, log)):
        return False
    return c.kind != ECHO or not any(
        o.finding.evidence.get("own") and (o.line < c.line or _of_another_rank(o, c) or _of_the_program(o))
        for o in others
    )


def _before_own_error(c: _Candidate, others: Sequence[_Candidate], log: LogFacts) -> bool:
    """True where the program went on after a vague text, and ended by a fault of its own code.

    What stands within the chain of exceptions that ended it is not before it.
    """
    own = next((o for o in others if o.finding.evidence.get("own") and _of_the_program(o)), None)
    return own is not None and c.line < _start_of_chain(own.line, log)


_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def _start_of_chain(number: int, log: LogFacts) -> int:
    """The number of the line at which the traceback that ends at the line ``number``, and what led to it, begins."""
    start = index = bisect.bisect_left(log.lines, number, key=lambda line: line.number)
    while index > 0:
        index -= 1
        text = log.lines[index].text
        if "Traceback (most recent" not in text:
            continue
        start = index
        before = next((x.text for x in reversed(log.lines[max(0, index - 3) : index]) if x.text.strip()), "")
        if not before.startswith(_CHAINED):
            break
    return log.lines[start].number if log.lines else number


#: what no end of another process makes a program raise
_PROGRAMMING = re.compile(
    r"^(?:ZeroDivision|Key|Index|Type|Value|Attribute|Name|UnboundLocal|Assertion|NotImplemented|Import|ModuleNotFound"
    r"|Recursion|Syntax|Indentation|Unicode\w*)Error\b"
)


def _of_the_program(c: _Candidate) -> bool:
    """True for what the program itself raised: by its type, or since torchrun's summary (indented) repeats it."""
    return any(_PROGRAMMING.match(text) or text.startswith("  ") for text in c.finding.evidence["text"][:1])


def _of_another_rank(one: _Candidate, other: _Candidate) -> bool:
    ranks = {c.finding.evidence.get("rank") for c in (one, other)}
    return len(ranks) == 2 and None not in ranks


def _one_each(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """One candidate a cause: said by its most telling wording, and placed where it is first seen."""
    chosen: dict[str, _Candidate] = {}
    for id in dict.fromkeys(c.id for c in candidates):
        own = [c for c in candidates if c.id == id]
        first = min(own, key=lambda c: c.line)
        told = min(own, key=lambda c: (c.finding.evidence.get("signature", 0), c.line))
        where = {
            k: first.finding.evidence[k] for k in ("line", "text", "rank", "source") if k in first.finding.evidence
        }
        evidence = {k: v for k, v in told.finding.evidence.items() if k not in ("rank", "source", "signature")}
        finding = replace(told.finding, evidence=evidence | where, location=first.finding.location)
        chosen[id] = _Candidate(id, finding)
    return list(chosen.values())


def _root(candidates: Sequence[_Candidate], log: LogFacts) -> _Candidate:
    explained = {
        other.id
        for c in candidates
        for other in candidates
        if other is not c and _explains(c, other) and not _explains(other, c)
    }
    first_rank = first_failed_rank(log)
    free = [c for c in candidates if c.id not in explained] or list(candidates)
    unknown = [c for c in candidates if c.kind == UNKNOWN]
    if unknown:  # nothing outranks it, or it would not be here
        return unknown[0]

    def order(c: _Candidate) -> tuple[Any, ...]:
        promoted = any(o.id in explained and _explains(c, o) for o in candidates)
        kind = FATAL if promoted and c.kind != ECHO else c.kind
        other_rank = first_rank is not None and c.finding.evidence.get("rank") not in (first_rank, None)
        return (_ORDER[kind], other_rank, c.line, c.id)

    return min(free, key=order)


def _explains(cause: _Candidate, other: _Candidate) -> bool:
    known = CAUSES[cause.id].explains if cause.id in CAUSES else SESSION_EXPLAINS.get(cause.id, ())
    return bool(known) and other.id.startswith(known)


#: progress lines after an error from which it was caught, with and without a failure later
CAUGHT_FOR_SURE, CAUGHT = 6, 2


def _recovered(candidate: _Candidate, log: LogFacts) -> bool:
    """True where training went on after the text: it was caught, or it was no failure."""
    if candidate.kind in (DEGRADED, HINT):
        return False
    index = bisect.bisect_left(log.lines, candidate.line, key=lambda line: line.number)
    if (end := completed(log)) is not None and end > index:
        return True
    later = [i for i in progress(log) if i > index]
    failed = [i for i in failures(log) if i > index + 1]
    if len(later) < CAUGHT:
        return False
    if not any(i > later[CAUGHT - 1] for i in failed):
        return True
    return sum(1 for i in later if i < failed[-1]) >= CAUGHT_FOR_SURE


def _placed(c: _Candidate, root: _Candidate, ended_well: bool) -> Finding:
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

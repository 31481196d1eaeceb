"""What a run got over: a text that stands before the error that ended it, or after which training went on."""

from __future__ import annotations

from collections.abc import Sequence

from torch_doctor.diagnose.candidate import Candidate
from torch_doctor.diagnose.cause import DEGRADED, ECHO, FATAL, HINT, UNKNOWN, VAGUE
from torch_doctor.diagnose.endings import Ending, ending, raised
from torch_doctor.diagnose.runs import completed, failures, progress
from torch_doctor.facts.log import LogFacts

#: of what programs get over: packages, files, data and checkpoints that were optional, or retried
_SURVIVED = ("FS", "PKG", "HDF", "CKP")
#: of those, what may still be behind an error that nobody knows, much later
_LINGERING = ("FS206", "FS209", "FS231")
#: what a program tries one after the other
_IMPORTS = "PKG"
#: progress lines after an error from which it was caught, with and without a failure later
CAUGHT_FOR_SURE, CAUGHT = 6, 2


def standing(found: Sequence[Candidate], log: LogFacts) -> list[Candidate]:
    """Without what the run got over; the error that nobody knows goes, too, where a known cause outweighs it."""
    alive = [c for c in found if not _recovered(c, log)]
    unknown = [c for c in alive if c.kind == UNKNOWN]
    end = ending(log) if any(c.finding.evidence.get("own") for c in unknown) else None
    if end is not None:
        inside = [c for c in alive if c.kind not in (UNKNOWN, HINT) and end.holds(c.index(log))]
        alive = [c for c in alive if not _overtaken(c, end, inside, log)]
    if any(_outweighs(c, end, log) for c in alive):
        alive = [c for c in alive if c.kind != UNKNOWN]
    return alive


def _recovered(c: Candidate, log: LogFacts) -> bool:
    """True where training went on after the text: it was caught, or it was no failure."""
    if c.kind in (DEGRADED, HINT):
        return False
    index = c.index(log)
    if (end := completed(log)) is not None and end > index:
        return True
    later = [i for i in progress(log) if i > index]
    failed = [i for i in failures(log) if i > index + 1]
    if len(later) < CAUGHT:
        return False
    if not any(i > later[CAUGHT - 1] for i in failed):
        return True
    return sum(1 for i in later if i < failed[-1]) >= CAUGHT_FOR_SURE


def _overtaken(c: Candidate, end: Ending, inside: Sequence[Candidate], log: LogFacts) -> bool:
    """True for a cause that the run got over before ``end``: a warning, a fallback, a retry.

    What explains a cause in the last traceback never is. Of the rest:

    - a vague text is, where a fault of the program's own code ended the run;
    - what programs survive is, where training went on after it; or where it was only logged, or was handled, while a
      cause that is sure stands in the last traceback.
    """
    index = c.index(log)
    if c.kind not in (FATAL, VAGUE) or index >= end.handled:
        return False
    if any(c.explains(other) and other.id != c.id for other in inside):
        return False
    if c.kind == VAGUE and end.of_program and index < end.first:
        return True
    if not c.id.startswith(_SURVIVED):
        return False
    sure = [o for o in inside if o.kind == FATAL and o.index(log) >= end.handled]
    other_subject = any(o.id[:3] != c.id[:3] for o in sure)
    if index >= end.first:  # raised, and handled: for an import by the import of what is to take its place
        fallback = bool(sure) and c.id.startswith(_IMPORTS)
        return (other_subject or fallback) and not c.id.startswith(_LINGERING)
    if any(index < i < end.first for i in progress(log)):
        return bool(inside) or not c.id.startswith(_LINGERING)
    return other_subject and not raised(log.lines[index].text)


def _outweighs(c: Candidate, end: Ending | None, log: LogFacts) -> bool:
    """True for a known cause that says more than an error that nobody knows.

    What degrades a run does not, where the program's own fault ended it later. An echo does not, where the error
    stands before it, or is the program's own, or of another rank: the ranks' lines come in any order.
    """
    if c.kind in (UNKNOWN, HINT):
        return False
    if end is None or c.kind not in (DEGRADED, ECHO):
        return True
    if c.kind == DEGRADED:
        return not (end.of_program and c.index(log) < end.first)
    other_rank = c.rank != end.rank and None not in (c.rank, end.rank)
    return not (end.of_program or other_rank or end.last < c.index(log))

"""The error that ended a run: which traceback it is, where what led to it begins, and what stands before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.diagnose.cause import CAUSES, ECHO, Seen
from torch_doctor.diagnose.runs import first_failed_rank
from torch_doctor.facts.log import LogFacts

#: errors that only repeat that another process failed
ECHOES = (
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|closing signal|failed \(exitcode|exited "
    r"unexpectedly|^SystemExit|BrokenPipeError|srun: error|FAILED$|\bDist(?:Backend|Network|Store)Error\b"
    r"|RendezvousConnectionError"
)
#: between two tracebacks of a chain
_DURING = "During handling of the above exception, another exception occurred"
_DIRECT = "The above exception was the direct cause of the following exception"
#: the types that a fault of the program's own code has: no end of another process makes a program raise one
_PROGRAMMING = (
    r"(?:ZeroDivision|Key|Index|Type|Value|Attribute|Name|UnboundLocal|Assertion|NotImplemented|Import|ModuleNotFound"
    r"|Recursion|Syntax|Indentation|Unicode\w*)Error\b"
)
_BARE = rf"{_PROGRAMMING}: \S"
_NAMED = r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)(?:: |:?$)"
#: an exception that was raised; one that a log names has a level or a date before it
_RAISED = r"[\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)"
_SUMMARY = r"\s+traceback\s*: Traceback \(most recent call last\)"
_NOTEBOOK = r"([A-Za-z_][\w.]*) +Traceback \(most recent call last\)"
_EXCEPTION = r"[A-Za-z_][\w.]*(?:: |:?$)"


@dataclass(frozen=True)
class Ending:
    """The traceback that ended the run, and the chain of those that led to it. All are indexes of lines.

    Args:
        first: where the chain begins.
        handled: where what was raised while an earlier exception of the chain was handled begins; else ``first``.
        last: the line of the exception that ended the run.
        of_program: a fault of the program's own code, and no end of another process.
        rank: the rank that raised it.
    """

    first: int
    handled: int
    last: int
    of_program: bool
    rank: int | None

    def holds(self, index: int) -> bool:
        """True for a line of the chain; a message may go on for two lines."""
        return self.first <= index <= self.last + 2


def ending(log: LogFacts) -> Ending | None:
    """How the run ended; None where no exception of its own ended it."""
    if "ending" not in log.answers:
        last = uncaught(log)
        log.answers["ending"] = None if last is None else _ending(log, last)
    return log.answers["ending"]  # type: ignore[no-any-return]


def _ending(log: LogFacts, last: int) -> Ending:
    line = log.lines[last]
    own = [i for i in range(last + 1) if log.lines[i].rank == line.rank and log.lines[i].text.strip()]
    first, handled = last, -1
    for at in range(len(own) - 1, -1, -1):
        text = log.lines[own[at]].text
        if "Traceback (most recent" not in text:
            continue
        first = own[at]
        link = log.lines[own[at - 1]].text if at else ""
        if link.startswith(_DURING) and handled < 0:
            handled = first
        if not link.startswith((_DURING, _DIRECT)) and "Original Traceback" not in text:
            break
    # torchrun's summary repeats, indented, what a rank raised
    of_program = bool(re.match(_PROGRAMMING, line.text)) or line.text.startswith("  ")
    return Ending(first, handled if handled >= 0 else first, last, of_program, line.rank)


def raised(text: str) -> bool:
    """True for a line of a traceback; False for one that was only logged."""
    return text[:1].isspace() or bool(re.match(_RAISED, text))


def went_on(seen: Seen) -> bool:
    """True where the program ran all the same after what was seen, and failed later by an error of its own."""
    end = ending(seen.log)
    return end is not None and seen.index < end.first and "ModuleNotFoundError" not in seen.log.lines[end.last].text


def uncaught(log: LogFacts) -> int | None:
    """The line of the exception that ended the run: of the first rank to fail, and no echo of another process's end.

    The end of a traceback is its first line that is not indented. An exception that was raised from another one
    only wraps it, so that the first counts.
    """
    shown = list(_ends_of_tracebacks(log))
    ends = [i for i in shown if not _is_echo(log.lines[i].text)]
    if shown and not ends:  # of the program's own traceback the log may hold the last line only
        ends = [i for i, x in enumerate(log.lines) if re.match(_BARE, x.text) and not _is_echo(x.text)]
    if not ends:
        return None
    rank = first_failed_rank(log)
    if rank not in {log.lines[i].rank for i in ends}:
        rank = log.lines[ends[0]].rank
    own = [i for i in ends if log.lines[i].rank == rank]
    while len(own) > 1 and any(_DIRECT in x.text for x in log.lines[own[-2] : own[-1]]):
        own.pop()
    return own[-1]


def _ends_of_tracebacks(log: LogFacts) -> Iterator[int]:
    open_in: set[int | None] = set()  # ranks whose traceback has not ended yet
    flat: set[int | None] = set()  # of these, the ones whose indents a collector of logs took off
    in_summary = False  # torchrun's summary repeats the traceback of a rank, indented
    in_notebook = ""  # the exception whose traceback a notebook shows: its frames are not indented
    for i, line in enumerate(log.lines):
        text = line.text
        if in_summary and re.match(_NAMED, text.strip()):
            in_summary = False
            yield i
        elif re.match(_SUMMARY, text):
            in_summary = True
        elif in_notebook and text.startswith(in_notebook):
            in_notebook = ""
            yield i
        elif text.lstrip("╭─ ").startswith(("Traceback (most recent call last)", "Original Traceback (most recent")):
            open_in.add(line.rank)
            flat.discard(line.rank)
        elif notebook := re.match(_NOTEBOOK, text):
            in_notebook = f"{notebook[1]}:"
        elif line.rank in open_in and text.startswith('File "'):
            flat.add(line.rank)
        elif line.rank in flat and not re.match(_NAMED, text):
            continue
        elif line.rank in open_in and text and not text.startswith((" ", "\t", "│", "╰")):
            open_in.discard(line.rank)
            flat.discard(line.rank)
            if re.match(_EXCEPTION, text) and "Caught " not in text:
                yield i


def _is_echo(text: str) -> bool:
    if re.search(ECHOES, text):
        return True
    return any(
        re.search(signature.expression, text, re.MULTILINE)
        for cause in CAUSES.values()
        if cause.kind == ECHO
        for signature in cause.signatures
    )

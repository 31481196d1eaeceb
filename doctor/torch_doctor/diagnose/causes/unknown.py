"""A failure that no signature knows: said so, with the last error line, and no guess."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch_doctor.diagnose.cause import CAUSES, ECHO, UNKNOWN, Seen
from torch_doctor.diagnose.runs import failures, first_failed_rank
from torch_doctor.facts.log import LogFacts
from torch_doctor.model import Finding, Location, Remediation, Severity
from torch_doctor.registry import check

_ERROR_LINE = re.compile(
    r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Failure)\b(?:: "
    r".*)?$|\b(?:ERROR|FATAL|CRITICAL|fatal|panic)\b[\s:\]]"
    r"|^(?:[\w./-]{1,60}: )+(?:\d+: )?[^\n:]{1,200}: (?:Permission denied|No such file or directory|Read-only file system)$"
    r"|^[\w./-]+\.py:\d+: \w*(?:Error|Exception|Failed)\b"
    r"|^(?:[\w./@-]{1,60}: ){0,2}[Ee]rror(?: response from daemon)?: \S"
)
#: errors that only repeat that another process failed
_ECHO = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|closing signal|failed \(exitcode|exited unexpectedly"
    r"|^SystemExit|BrokenPipeError|srun: error|FAILED$|\bDist(?:Backend|Network|Store)Error\b|RendezvousConnectionError"
)

ABOVE = Remediation("Read the lines above it", ("PYTHONFAULTHANDLER=1 python train.py",))
IN_THE_CODE = Remediation(
    "Read the traceback above it: the lowest frame in your own code is where to start",
    ("python -m pdb -c continue train.py",),
)


@check("SES299", "unrecognised-failure", tags={UNKNOWN})
def unrecognised_failure(log: LogFacts) -> Iterator[Finding]:
    """The log ends in a failure that no signature knows.

    What it checks:
        Whether the log ends with a traceback, an error line or a status other than 0 that nothing else explains.
    Why it matters:
        No guess is better than a wrong one. The last error line is where to read on.
    Example:
        MyOwnError: the widget is not aligned
    Fix:
        Read the lines above the one that is shown; run again with PYTHONFAULTHANDLER=1.
    References:
        https://docs.python.org/3/library/faulthandler.html
    """
    found = uncaught(log)
    own = found is not None
    if found is None:
        lines = [i for i, x in enumerate(log.lines) if _ERROR_LINE.search(x.text) and not _ECHO.search(x.text)]
        lines = lines or failures(log)
        if not lines:
            return
        found = lines[-1]
    line = log.lines[found]
    text = line.text.strip()[:300]
    which = "its last error line is" if line.rank is None or not own else f"rank {line.rank} failed first with"
    evidence: dict[str, Any] = {"line": line.number, "text": [line.text], "kind": UNKNOWN, "own": own}
    if line.rank is not None:
        evidence["rank"] = line.rank
    yield Finding(
        Severity.NOTE,
        f"no known cause fits this log; {which}: {text}",
        IN_THE_CODE if own else ABOVE,
        evidence,
        Location(log.path, line.number, snippet=line.text.strip()[:240]),
    )


def uncaught(log: LogFacts) -> int | None:
    """The line of the exception that ended the run: of the first rank to fail, and no echo of another process's end.

    The end of a traceback is its first line that is not indented. An exception that was raised from another one
    only wraps it, so that the first counts.
    """
    ends = [i for i in _ends_of_tracebacks(log) if not _is_echo(log.lines[i].text)]
    if not ends:
        return None
    rank = first_failed_rank(log)
    if rank not in {log.lines[i].rank for i in ends}:
        rank = log.lines[ends[0]].rank
    own = [i for i in ends if log.lines[i].rank == rank]
    while len(own) > 1 and any(_DIRECT_CAUSE in x.text for x in log.lines[own[-2] : own[-1]]):
        own.pop()
    return own[-1]


def went_on(seen: Seen) -> bool:
    """True where the program ran all the same after what was seen, and failed later by an error of its own."""
    own = uncaught(seen.log)
    return own is not None and own > seen.index and "ModuleNotFoundError" not in seen.log.lines[own].text


_DIRECT_CAUSE = "The above exception was the direct cause of the following exception"
_NAMED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)(?:: |:?$)")
_SUMMARY = re.compile(r"\s+traceback\s*: Traceback \(most recent call last\)")
_NOTEBOOK = re.compile(r"([A-Za-z_][\w.]*) +Traceback \(most recent call last\)")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")


def _ends_of_tracebacks(log: LogFacts) -> Iterator[int]:
    open_in: set[int | None] = set()  # ranks whose traceback has not ended yet
    flat: set[int | None] = set()  # of these, the ones whose indents a collector of logs took off
    in_summary = False  # torchrun's summary repeats the traceback of a rank, indented
    in_notebook = ""  # the exception whose traceback a notebook shows: its frames are not indented
    for i, line in enumerate(log.lines):
        text = line.text
        if in_summary and _NAMED.match(text.strip()):
            in_summary = False
            yield i
        elif _SUMMARY.match(text):
            in_summary = True
        elif in_notebook and text.startswith(in_notebook):
            in_notebook = ""
            yield i
        elif notebook := _NOTEBOOK.match(text):
            in_notebook = f"{notebook[1]}:"
        elif text.lstrip("╭─ ").startswith(("Traceback (most recent call last)", "Original Traceback (most recent")):
            open_in.add(line.rank)
            flat.discard(line.rank)
        elif line.rank in open_in and text.startswith('File "'):
            flat.add(line.rank)
        elif line.rank in flat and not _NAMED.match(text):
            continue
        elif line.rank in open_in and text and not text.startswith((" ", "\t", "│", "╰")):
            open_in.discard(line.rank)
            flat.discard(line.rank)
            if _EXCEPTION.match(text) and "Caught " not in text:
                yield i


def _is_echo(text: str) -> bool:
    if _ECHO.search(text):
        return True
    return any(
        re.search(signature.expression, text, re.MULTILINE)
        for cause in CAUSES.values()
        if cause.kind == ECHO
        for signature in cause.signatures
    )

"""Which part of a log is meant: the last run in it, and how that run went on and ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from torch_doctor.facts.log import LogFacts

_STEP = re.compile(
    r"\b(?:ep(?:och)?|step|iter(?:ation)?|it|global_step)s?\b\W{0,3}\[?\s*(?P<n>\d+)|\b(?P<pct>\d{1,3})%\|",
    re.IGNORECASE,
)
_PROGRESS = re.compile(
    r"\b(?:step|iter(?:ation)?|it|epoch|ep|batch)s?\b\W{0,3}\[?\s*\d+.*\b(?:loss|acc\w*|lr|img/s|it/s|tok\w*/s"
    r"|perplexity|ppl|grad_norm|s/it|examples/s)\b"
    r"|\bloss\b\W{0,3}\d[\d.]*(?:e-?\d+)?\b.*|\d+%\|.*\d+/\d+ \[|\bTrial \d+ finished with value",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:training|run|job|fit|epochs?|all "
    r"epochs|finetuning|fine-tuning)\b.{0,30}\b(?:complete[d]?|finished|done|succeeded|ended successfully)\b"
    r"|\b(?:finished|completed|done) (?:training|run|all|fit|epoch|in \d|successfully)"
    r"|^(?:done|finished|all done|success|complete)\b[.! ]*(?:in \d[\d.]* ?s?)?$"
    r"|\bexited with (?:code|status) 0\b|\bexit(?:ed)?(?: code| status)?[ :=]+0\b|`?Trainer\.fit`? stopped: "
    r"`?max_(?:epochs|steps)"
    r"|\btrain_runtime\b|\bfinal (?:model|checkpoint|weights|loss|accuracy|test|val)\b|\bbest "
    r"(?:val|acc|model)\w*.{0,40}\d",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"^Traceback \(most recent call last\)|^\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)|ChildFailedError"
    r"|\b(?:exited with|exit) (?:code|status):?\s*(?!0\b)-?\d+|^(?:Killed|Terminated|Aborted|Bus "
    r"error|Segmentation fault)\b"
    r"|return code = -?[1-9]|terminated with code -?[1-9]|Error response from daemon"
    r"|core dumped|death signal|oom-kill|Watchdog caught|is killed by signal|exited unexpectedly|^Fatal Python error"
)


@dataclass(frozen=True)
class Run:
    """The run that is meant.

    Args:
        log: its lines; ``log.earlier`` is what stood before it.
        number: how many runs the file holds up to and with it.
    """

    log: LogFacts
    number: int


@lru_cache(maxsize=1 << 14)  # each line is asked about for its run, its end and its progress
def _fails(text: str) -> bool:
    return _FAILED.search(text) is not None


@lru_cache(maxsize=1 << 14)
def _goes_on(text: str) -> bool:
    return _PROGRESS.search(text) is not None


def last_run(log: LogFacts) -> Run:
    """The last run that shows what became of it: one that has barely started says nothing yet."""
    starts = [0, *_runs(log)]
    for count in range(len(starts), 0, -1):
        first = starts[count - 1]
        last = starts[count] if count < len(starts) else None
        part = log.part(first, last)
        if count == 1 or _tells(part):
            return Run(part, count)
    return Run(log, 1)


def _runs(log: LogFacts) -> list[int]:
    """The boundaries without the first where no run stands before it: what was typed there is its preface."""
    found = _boundaries(log)
    if found and not any(_fails(x.text) or _goes_on(x.text) or _DONE.search(x.text) for x in log.lines[: found[0]]):
        del found[0]
    return found


def _boundaries(log: LogFacts) -> list[int]:
    """Where a run starts: by its own words, or where after a failure the steps count from the start again."""
    explicit = set(log.starts)
    found: list[int] = []
    highest, failed = -1, -1
    for i, line in enumerate(log.lines):
        if i in explicit:
            found.append(i)
            highest, failed = -1, -1
            continue
        if _fails(line.text):
            failed = i
            continue
        step = _step(line.text)
        if step is None:
            continue
        if failed >= 0 and step < highest and step <= 1:
            found.append(failed + 1)
            failed, highest = -1, step
        highest = max(highest, step)
    return found


def _step(text: str) -> int | None:
    if not _goes_on(text):
        return None
    numbers = [int(m["n"]) for m in _STEP.finditer(text) if m["n"]]
    return max(numbers) if numbers else None


def _tells(part: LogFacts) -> bool:
    if len(part.lines) < 2:
        return False
    return any(_fails(x.text) or _goes_on(x.text) or _DONE.search(x.text) for x in part.lines) or bool(part.alarms)


def failures(log: LogFacts) -> list[int]:
    """Indexes of lines that say by themselves that something ended."""
    if "failures" not in log.answers:
        log.answers["failures"] = _failures(log)
    return log.answers["failures"]  # type: ignore[no-any-return]


def _failures(log: LogFacts) -> list[int]:
    return [i for i, line in enumerate(log.lines) if _fails(line.text)]


def progress(log: LogFacts) -> list[int]:
    """Indexes of lines that show that training goes on."""
    if "progress" not in log.answers:
        log.answers["progress"] = _progress(log)
    return log.answers["progress"]  # type: ignore[no-any-return]


def _progress(log: LogFacts) -> list[int]:
    return [i for i, line in enumerate(log.lines) if _goes_on(line.text) and not _fails(line.text)]


def completed(log: LogFacts) -> int | None:
    """The index of the line that says that the run ended properly; None without one, or with a failure after it."""
    if "completed" not in log.answers:
        log.answers["completed"] = _completed(log)
    return log.answers["completed"]  # type: ignore[no-any-return]


def _completed(log: LogFacts) -> int | None:
    last_failure = max(failures(log), default=0)
    late = range(len(log.lines) - 1, last_failure - 1, -1)
    return next((i for i in late if _DONE.search(log.lines[i].text)), None)


#: torchrun names the rank that failed first
_FIRST_FAILED = re.compile(r"Root Cause \(first observed failure\):(?:.*\n){1,6}?\s*rank\s*:\s*(\d+)")


def first_failed_rank(log: LogFacts) -> int | None:
    """The rank that the launcher saw fail first; None where its summary is not there."""
    match = _FIRST_FAILED.search(log.text)
    return int(match[1]) if match else None

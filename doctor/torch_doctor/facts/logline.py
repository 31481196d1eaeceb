"""Takes off a line what the terminal, the container engine and the launcher put around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from torch_doctor.facts.log import Line

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Z0-9]|[@-Z\\-_=>])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

#: what a line of a traceback begins with
_TRACE = r"Traceback \(most recent| +File \"|[\w.]+(?:Error|Exception|Interrupt)\b"
#: (pattern, group that is kept as the source). Each is taken off once, in turn, until none is left.
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        # docker logs -t, kubectl logs --timestamps, and the CRI's own files ("stderr F")
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s(?:(?:stdout|stderr) [FP] )?",
        r"(?:\x1b\[\d+m)?(?P<source>[\w.-]{1,60}?)\s*\| ",  # docker compose
        r"\[pod/(?P<source>[^\]]{1,120})\]:?\s?",  # kubectl logs --prefix
        r"\[rank\s?(?P<rank>\d+)\]:?\s?",  # torch.distributed's excepthook and logging
        r"\[default(?P<rank>\d+)\]:\s?",  # torchrun --tee
        r"\[(?P<rank>\d+)\]:(?=\S|\s)",  # torchrun --tee with a role of its own
        r"\[[\w.@-]*\d,(?P<rank>\d+)\]<std(?:err|out)>:\s?",  # mpirun --tag-output
        r"\[[a-z_]{2,20}(?P<rank>\d+)\]:\s?",  # torchrun --tee with a role of its own, TorchX
        r"\[?[Rr]ank[ _]?(?P<rank>\d{1,5})\]?\s?[:|>]\s",  # scripts that name their rank
        r"\s{0,4}(?P<rank>\d{1,5}): (?=\D)",  # srun --label
        r"\((?P<source>[\w.]{1,60}(?:\(\w+\))?,? (?:rank=(?P<rank>\d+), )?pid=\d+[^)]{0,60})\)\s",  # Ray
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<source>[\w.-]{1,80}) (?=[\w./-]+(?:\[\d+\])?: )",  # the journal
        r"(?P<source>[\w.-]{1,80}) (?=[\w./-]{1,60}\[\d+\]: )",  # the journal with ISO dates, which were taken off
        r"(?!systemd|kernel|earlyoom)[\w./-]{1,60}\[\d+\]: ",  # the program's name there
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\]\s?",
        r"\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?\s(?!\d)",
        r"\|\s(?=\d{4}-\d\d-\d\dT)",  # a table of CloudWatch
        r"\|\s(?:ERROR|CRITICAL)\s*\|\s[^|\n]{1,120}? - ",  # loguru
        rf"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w.]{{1,60}}:\d+\] ?(?={_TRACE}|\s)",  # vLLM
        rf"[EF]\d{{4}} \d\d:\d\d:\d\d\.\d+\s+\d+ [^\]\s]{{1,120}}\] (?={_TRACE})",  # glog and absl
        rf"(?P<source>(?!\w*(?:Error|Exception|Warning):)[\w.-]*\d[\w.-]*): (?={_TRACE})",  # pdsh
        rf"\s{{2,}}[|+]\s(?={_TRACE}|\s)",  # an exception group
        r"> (?=\S)",  # quoted in a mail or an issue
        rf"\[(?P<rank>\d{{1,4}})\]\s(?={_TRACE})",  # a rank in brackets
        rf"\[\d{{5,7}}\] (?=[WEIF]\d{{4}} |{_TRACE})",  # numbered lines
        r"[^\n]{0,200}\d+/\d+ \[[^\]\n]{3,90}\](?=(?:Killed|Terminated|Aborted|Hangup|Bus error|Segmentation fault|"
        r"Traceback \(most recent)\b)",  # a progress bar that the shell or Python wrote behind
        rf"E {{3,7}}(?={_TRACE})",  # pytest
        r"-\s[\w.]{1,80}\s-\s(?:ERROR|CRITICAL)\s-\s",  # Python's logging, where each line of a traceback is a record
    )
)
_INNER_RANK = re.compile(r"\[Rank (\d+)\]|\brank[ =:]{1,2}(\d+)\b|PG ID \d+ PG GUID \S+ Rank (\d+)\]", re.IGNORECASE)
_MESSAGE_KEYS = ("log", "message", "msg", "event", "text", "textPayload", "error", "exc_info", "exception")


def clean(number: int, raw: bytes) -> Iterator[Line]:
    """The lines in one raw line: one, but for a JSON record that holds a traceback."""
    # what a terminal would show of a progress bar: the last state
    yield from _lines(
        _line(number, _without_controls(raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")))
    )


def _lines(line: Line, depth: int = 2) -> Iterator[Line]:
    """The lines of a record, which an engine's record may hold in turn; the line itself where it is none."""
    text = line.text.strip()
    record = _record(text) if depth and text.startswith("{") and text.endswith("}") else []
    if not record:
        yield line
        return
    for piece in "\n".join(record).rstrip("\n").split("\n"):
        inner = _line(line.number, _without_controls(piece))
        if inner.rank is None or not inner.source:
            rank = line.rank if inner.rank is None else inner.rank
            inner = Line(inner.number, inner.text, rank, inner.source or line.source)
        yield from _lines(inner, depth - 1)


def _without_controls(text: str) -> str:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text).rstrip()


def _line(number: int, text: str) -> Line:
    rank: int | None = None
    source = ""
    changed = True
    while changed:
        changed = False
        for prefix in _PREFIXES:
            match = prefix.match(text)
            if not match:
                continue
            found = match.groupdict()
            rank = int(found["rank"]) if found.get("rank") else rank
            source = found.get("source") or source
            text = text[match.end() :]
            changed = True
    if rank is None and (inner := _INNER_RANK.search(text)):
        rank = int(inner[1] or inner[2] or inner[3])
    return Line(number, text, rank, source)


def _record(text: str) -> list[str]:
    """The message and the traceback of a structured record; empty for what is no record."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return []
    if not isinstance(value, dict):
        return []
    found = [str(value[key]) for key in _MESSAGE_KEYS if isinstance(value.get(key), str)]
    return found + [text for text in _traces(value) if text not in found]


def _traces(value: Any, depth: int = 3) -> Iterator[str]:
    """Whatever in the record holds a traceback, under any name."""
    if isinstance(value, str):
        if "Traceback (most recent call last)" in value:
            yield value
    elif isinstance(value, list) and value and all(isinstance(x, str) for x in value):
        yield from _traces("\n".join(x.rstrip("\n") for x in value))
    elif isinstance(value, (dict, list)) and depth:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _traces(inner, depth - 1)

"""The user's own line behind an error, and the lint finding on it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch_doctor.facts.log import LogFacts
from torch_doctor.model import Finding, Location, Remediation

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
#: places whose code is not the user's
_FOREIGN = re.compile(r"site-packages|dist-packages|/lib/python\d|^<|/torch/|importlib|\.pyx$")
_EXCERPT = re.compile(r"^Traceback \(most recent call last\)|^Original Traceback")
#: kept lines before the error in which its traceback stands
TRACEBACK_LINES = 80
#: errors of the GPU surface at a later line than the one at fault
_LATE = ("device-side", "asynchronously", "illegal memory", "surfaced")
#: IDs of lint rules that explain a growing memory, whatever line they are on
_GROWTH = ("GRD", "MEM")


@dataclass(frozen=True)
class Frame:
    """A line of the user's code in a traceback."""

    path: str
    line: int
    function: str = ""


def frame_of(finding: Finding, log: LogFacts) -> Frame | None:
    """The innermost frame of the user's code in the traceback that ends in the finding's line."""
    number = finding.evidence.get("line")
    index = next((i for i, line in enumerate(log.lines) if line.number == number), None)
    if index is None:
        return None
    rank = log.lines[index].rank
    for i in range(index, max(-1, index - TRACEBACK_LINES), -1):
        line = log.lines[i]
        if rank is not None and line.rank not in (rank, None):
            continue
        match = _FRAME.match(line.text)
        if match and not _FOREIGN.search(match["path"]):
            return Frame(match["path"], int(match["line"]), (match["function"] or "").strip())
    return None


def with_code(finding: Finding, frame: Frame, linted: Iterable[tuple[str, Finding]]) -> Finding:
    """The finding with the frame in its evidence, and the lint findings that belong to it."""
    evidence = dict(finding.evidence) | {
        "frame": {"path": frame.path, "line": frame.line, "function": frame.function}
    }
    late = any(word in finding.message for word in _LATE)
    linked = [(id, f) for id, f in linted if not late and _belongs(id, f, frame, finding)]
    if not linked:
        return replace(finding, evidence=evidence)
    evidence["lint"] = [
        {"id": id, "path": f.location.path, "line": f.location.line, "message": f.message}
        for id, f in linked
        if f.location is not None
    ]
    id, first = linked[0]
    place = first.location or Location(frame.path)
    text = f"{finding.remediation.text}; lint finds {id} at {place.path}:{place.line}: {first.message}"
    return replace(finding, evidence=evidence, remediation=Remediation(text, finding.remediation.commands))


def _belongs(id: str, lint: Finding, frame: Frame, finding: Finding) -> bool:
    if lint.location is None or lint.location.line is None:
        return False
    last = lint.location.end_line or lint.location.line
    if lint.location.line <= frame.line <= last:
        return True
    return id.startswith(_GROWTH) and "kept from step to step" in finding.message

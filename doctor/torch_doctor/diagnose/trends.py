"""Figures that a log repeats: whether they rise."""

from __future__ import annotations

import itertools
import re

from torch_doctor.facts.log import LogFacts

_UNITS = {"G": 1.0, "GB": 1.0, "GiB": 1.0, "M": 1 / 1024, "MB": 1 / 1000, "MiB": 1 / 1024}


def series(log: LogFacts, last: int, pattern: str) -> list[float]:
    """The numbers that the pattern's first group finds in the kept lines up to the index ``last``, in order."""
    if (last, pattern) not in log.answers:
        log.answers[last, pattern] = _series(log, last, re.compile(pattern, re.IGNORECASE))
    return list(log.answers[last, pattern])


def _series(log: LogFacts, last: int, pattern: re.Pattern[str]) -> list[float]:
    found: list[float] = []
    for line in log.lines[:last]:
        match = pattern.search(line.text)
        if match:
            try:
                value = float(match[1])
            except ValueError:
                continue
            unit = match[2] if pattern.groups > 1 and match[2] else ""
            found.append(value * _UNITS.get(unit, 1.0))
    return found


def rising(log: LogFacts, last: int, pattern: str, least: int = 4, by: float = 1.1) -> tuple[float, float] | None:
    """(first, last) of a series that rises nearly all the time, by at least the factor ``by``; None otherwise."""
    values = series(log, last, pattern)
    if len(values) < least or values[0] <= 0 or values[-1] < values[0] * by:
        return None
    ups = sum(1 for a, b in itertools.pairwise(values) if b > a)
    return (values[0], values[-1]) if ups >= 0.8 * (len(values) - 1) else None

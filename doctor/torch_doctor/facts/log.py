"""What a log holds: the lines worth reading, cleaned, with their numbers; no opinion about them."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: a line that starts a new run in the same file (a restart, a shell prompt, the marker of `torch-doctor run`)
RUN_START = re.compile(
    r"^[-=#*~\s]{0,12}(?:re-?start(?:ed|ing)?|new run|run \d+|attempt \d+)\b[^\n]{0,40}[-=#*~]{2,}\s*$"
    r"|^[-=#]{2,}\s*(?:re-?start|run|attempt|job)\b"
    r"|^\[?torch-doctor\]?:? (?:run|session)\b.*\bstart"
    r"|^(?:\+|\$|\S+@\S+:?\S*[$#]|>>>|root@\S+[#$]) ?(?:\w+=\S+ )*(?:CUDA_VISIBLE_DEVICES=\S+ )?"
    r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate launch|deepspeed|srun|mpirun)\b(?! -c)"
    r"|^(?:Script|Job|Run) started (?:on|at)\b",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"\d+")
#: what the text without numbers and repeated lines cannot tell
_EXACT = frozenset("0123456789\n")


@dataclass(frozen=True)
class Line:
    """One line without colours, time stamps and the prefixes of docker, Kubernetes, torchrun or Slurm.

    Args:
        number: its number in the file, from 1. Pieces of one line (carriage returns, JSON) share it.
        text: the cleaned text.
        rank: the rank that wrote it, where a prefix says so.
        source: the container or pod that wrote it, where a prefix says so.
    """

    number: int
    text: str
    rank: int | None = None
    source: str = ""


@dataclass(frozen=True)
class LogFacts:
    """The lines of a log that can matter, in order: its head, its tail, a sample, and all near an alarm.

    Args:
        path: as the user named it; ``<stdin>`` for a pipe.
        size_bytes: all of it.
        lines_total: how many lines it has.
        lines: what was kept; gaps are where nothing alarming stood.
        alarms: indexes into ``lines`` of those that hold an alarming word.
        cut: True where the file does not end with a line end.
        earlier: the runs before this one in the same file.
    """

    path: str
    size_bytes: int
    lines_total: int
    lines: tuple[Line, ...]
    alarms: frozenset[int] = frozenset()
    cut: bool = False
    earlier: LogFacts | None = None

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Indexes into ``lines`` where a run starts by its own words; 0 is not among them."""
        return tuple(i for i, line in enumerate(self.lines) if i and RUN_START.search(line.text))

    def part(self, first: int, last: int | None = None) -> LogFacts:
        """The same log from the line with index ``first`` on, up to without ``last``."""
        stop = len(self.lines) if last is None else last
        alarms = frozenset(i - first for i in self.alarms if first <= i < stop)
        earlier = self.part(0, first) if first else None
        cut = self.cut and last is None
        return LogFacts(self.path, self.size_bytes, self.lines_total, self.lines[first:stop], alarms, cut, earlier)

    @cached_property
    def text(self) -> str:
        """The kept lines as one text."""
        return "\n".join(line.text for line in self.lines)

    def may_hold(self, needle: str) -> bool:
        """False where ``needle`` is certainly not in ``text``; asked for a thousand needles, so at a glance."""
        return needle in self._distinct or (not _EXACT.isdisjoint(needle) and needle in self.text)

    @cached_property
    def _distinct(self) -> str:
        """The different lines, numbers aside: the lines of a training log are nearly all alike."""
        return "\n".join(dict.fromkeys(_NUMBER.sub("0", line.text) for line in self.lines))

    @cached_property
    def _offsets(self) -> Sequence[int]:
        offsets, position = [], 0
        for line in self.lines:
            offsets.append(position)
            position += len(line.text) + 1
        return offsets

    def index_at(self, position: int) -> int:
        """The index of the line that holds the character at ``position`` of ``text``."""
        return max(0, bisect.bisect_right(self._offsets, position) - 1)

    def search(self, pattern: str) -> bool:
        """True where the pattern is found in ``text``; ``^`` and ``$`` are those of a line."""
        if pattern not in self.answers:
            self.answers[pattern] = re.search(pattern, self.text, re.MULTILINE) is not None
        return bool(self.answers[pattern])

    @cached_property
    def answers(self) -> dict[Any, Any]:
        """What was asked of this log before: many causes ask the same."""
        return {}

    def around(self, position: int, lines: int) -> tuple[int, int]:
        """The span in ``text`` of the line at ``position``, with so many lines before and after it."""
        index = self.index_at(position)
        first, last = max(0, index - lines), index + lines + 1
        end = self._offsets[last] - 1 if last < len(self.lines) else len(self.text)
        return self._offsets[first], end


@dataclass(frozen=True)
class MachineFacts:
    """Facts of the machine that the run died on, from a report of ``check`` or from the live machine.

    Args:
        values: as in the ``facts`` of a JSON report; empty where nobody looked.
        origin: where they come from, for the evidence: a file name, or ``live``.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""

    def number(self, *names: str) -> float | None:
        """The first of the dotted names that holds a number: ``number("shm.free_bytes")``."""
        for name in names:
            value: Any = self.values
            for key in name.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return value
        return None

    def walk(self) -> Iterator[tuple[str, Any]]:
        """Every leaf with its dotted name."""
        yield from _leaves("", self.values)


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, value


@dataclass(frozen=True)
class RunFacts:
    """How the run ended, where a session kept it. None is for what is not known.

    Args:
        name: the session's name; empty without a session.
        exit_status: of the child, 0 to 255; 128 + n for a signal.
        signal: the name of the signal that ended it, or "".
        oom_kills: how many kills the memory cgroup counted while it ran.
        memory_limit_bytes: the cgroup's limit of host RAM.
        memory_peak_bytes: its highest use.
        stopped_by: who asked for its end; empty where nobody did.
    """

    name: str = ""
    exit_status: int | None = None
    signal: str = ""
    oom_kills: int | None = None
    memory_limit_bytes: int | None = None
    memory_peak_bytes: int | None = None
    stopped_by: str = ""

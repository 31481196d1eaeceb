"""Types that every part shares. Standard library only; nothing here looks at the machine."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1

#: ``--fail-on`` value that never fails.
NEVER = "never"

#: One subject keeps one prefix over environment (0xx), code (1xx) and log (2xx).
FAMILIES: dict[str, str] = {
    "GPU": "driver and device",
    "SHM": "shared memory",
    "WRK": "workers and pickling",
    "HDF": "HDF5 and other handles over a fork",
    "CMP": "torch.compile",
    "MEM": "host and GPU memory",
    "CPU": "quota and threads",
    "FS": "disks, permissions and caches",
    "SES": "sessions, terminals, PID 1 and signals",
    "PKG": "packages",
    "DST": "distributed",
    "CKP": "checkpoints",
    "DEV": "device placement",
    "GRD": "autograd",
    "OPT": "optimizer and scheduler",
    "LOS": "losses",
    "AMP": "mixed precision",
    "DAT": "data",
}

#: The headings a check's docstring has, in this order.
HEADINGS = ("What it checks", "Why it matters", "Example", "Fix", "References")


class Severity(enum.Enum):
    """How bad a finding is, in SARIF's words. Compared by rank: ERROR > WARNING > NOTE."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """2 for an error, 1 for a warning, 0 for a note."""
        return _RANKS[self]


_RANKS = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


class Outcome(enum.Enum):
    """What became of a check. A skip is never a pass; a crash is a result, not the end."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CRASHED = "crashed"


class FailureKind(enum.Enum):
    """Why a probe returned no facts."""

    UNAVAILABLE = "unavailable"  # nothing to look at here: dependants are skipped
    TIMEOUT = "timeout"
    SIGNAL = "signal"
    ERROR = "error"

    @property
    def is_crash(self) -> bool:
        """True where the probe itself died, as against having nothing to look at."""
        return self is not FailureKind.UNAVAILABLE


@dataclass(frozen=True)
class ProbeFailure:
    """A probe that returned no facts.

    Args:
        reason: one line that a user can read, with the signal or the limit named.
        kind: whether there was nothing to look at, or the probe died.
        evidence: what was seen before it failed (return codes, the last lines of stderr).
    """

    reason: str
    kind: FailureKind = FailureKind.UNAVAILABLE
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Remediation:
    """What mends a finding: one sentence, and commands that can be pasted one by one."""

    text: str
    commands: tuple[str, ...] = ()


NO_REMEDY = Remediation("")


@dataclass(frozen=True)
class Location:
    """A place in a file. ``line`` and ``column`` count from 1; columns are Unicode characters."""

    path: str
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    cell: int | None = None  # notebook cell, counted from 1; line is then within the cell
    snippet: str = ""  # the source line, for a reader who sees the report and not the file


@dataclass(frozen=True)
class Edit:
    """Replace the text from (line, column) up to but without (end_line, end_column); all from 1."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Fix:
    """Edits that mend a finding. ``safe``: the program's meaning stays, or was certainly wrong."""

    message: str
    edits: tuple[Edit, ...]
    safe: bool = True


@dataclass(frozen=True)
class Suppression:
    """Why a finding is not shown: ``in-source`` (a comment) or ``configuration``."""

    kind: str
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """One fault, with what was measured and what to type.

    Args:
        severity: error, warning or note.
        message: what was measured, one line with units, no full stop at the end.
        remediation: what to type.
        evidence: JSON-able values that prove it; keys are snake_case with the unit last.
        location: where, if it is in a file.
        role: for ``explain``: "" (root cause) or "consequence" (an echo of it).
        fix: edits, where ``lint --fix`` can make them.
        suppression: set where a comment or the configuration silences it.
    """

    severity: Severity
    message: str
    remediation: Remediation = NO_REMEDY
    evidence: Mapping[str, Any] = field(default_factory=dict)
    location: Location | None = None
    role: str = ""
    fix: Fix | None = None
    suppression: Suppression | None = None


@dataclass(frozen=True)
class Check:
    """A registered check.

    Args:
        needs: facts types in the order of the function's parameters.
        documentation: under HEADINGS, or what makes it where it is built from a table.
    """

    id: str
    name: str
    family: str
    tags: frozenset[str]
    needs: tuple[type, ...]
    function: Callable[..., Iterable[Finding]]
    documentation: str | Callable[[], str]
    judges_failure: frozenset[type] = frozenset()

    @property
    def doc(self) -> str:
        """The documentation, under HEADINGS."""
        return (self.documentation if isinstance(self.documentation, str) else self.documentation()).strip()

    @property
    def command(self) -> str:
        """The command that runs it: 0xx ``check``, 1xx ``lint``, 2xx ``explain``."""
        return COMMAND_OF_HUNDRED[self.id[-3]]


COMMAND_OF_HUNDRED = {"0": "check", "1": "lint", "2": "explain"}


@dataclass(frozen=True)
class CheckResult:
    """What one check said. ``duration`` is in seconds; ``reason`` tells why it was skipped or crashed."""

    check: Check
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    duration: float = 0.0


@dataclass(frozen=True)
class Notification:
    """Something the tool could not do (a file that does not parse), as against a fault it found."""

    message: str
    location: Location | None = None
    severity: Severity = Severity.WARNING
    incomplete: bool = True  # the work is not complete: the exit status says so


@dataclass(frozen=True)
class Report:
    """Everything a run of checks gave.

    Args:
        command: the torch-doctor command.
        results: one per check, ordered by ID.
        facts: what was measured, already plain JSON values.
        notifications: what could not be looked at.
        duration: seconds, wall clock.
    """

    command: str
    results: tuple[CheckResult, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notifications: tuple[Notification, ...] = ()
    duration: float = 0.0

    def findings(self, suppressed: bool = False) -> Sequence[tuple[Check, Finding]]:
        """Findings with their checks: root causes before consequences, errors first, then by place."""
        pairs = [(r.check, f) for r in self.results for f in r.findings if suppressed or f.suppression is None]
        return sorted(pairs, key=_finding_order)

    def count(self, outcome: Outcome) -> int:
        """How many checks ended so."""
        return sum(1 for r in self.results if r.outcome is outcome)

    def worst(self) -> Severity | None:
        """The highest severity found, or None."""
        return max((f.severity for _, f in self.findings()), key=lambda s: s.rank, default=None)

    def exit_code(self, fail_on: str = "error") -> int:
        """0, 1 (a finding at or above ``fail_on``) or 3 (a check crashed or could not run)."""
        if fail_on != NEVER:
            floor = Severity(fail_on).rank
            if any(f.severity.rank >= floor for _, f in self.findings()):
                return 1
        if self.count(Outcome.CRASHED) or any(n.incomplete for n in self.notifications):
            return 3
        return 0


def _finding_order(pair: tuple[Check, Finding]) -> tuple[Any, ...]:
    check, finding = pair
    place = finding.location or Location("")
    return (
        finding.role == "consequence",
        -finding.severity.rank,
        place.path,
        place.cell or 0,
        place.line or 0,
        place.column or 0,
        check.id,
    )


def mib(size_bytes: float) -> str:
    """``67108864`` as ``64 MiB``; from 1 GiB on as GiB. Whole numbers where they are whole."""
    if abs(size_bytes) >= 1 << 30:
        return f"{_short(size_bytes / (1 << 30))} GiB"
    if abs(size_bytes) >= 1 << 20 or size_bytes == 0:
        return f"{_short(size_bytes / (1 << 20))} MiB"
    return f"{_short(size_bytes / 1024)} KiB"


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_order(items: Iterable[CheckResult]) -> Iterator[CheckResult]:
    """Results by ID: the order of every report."""
    return iter(sorted(items, key=lambda r: r.check.id))

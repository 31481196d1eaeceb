"""A finding that may be the root cause, before one is chosen."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from torch_doctor.diagnose.cause import CAUSES
from torch_doctor.facts.log import LogFacts
from torch_doctor.model import Finding

#: what a session's own record explains: ID -> IDs, or their beginnings
SESSION_EXPLAINS = {"MEM207": ("MEM206", "WRK2", "SES2", "DST2", "CMP212"), "SES232": ("SES221", "SES222", "SES223")}


@dataclass(frozen=True)
class Candidate:
    """What one cause found at one place of the log.

    Args:
        id: of the cause. finding: with ``kind`` and ``line`` in its evidence.
    """

    id: str
    finding: Finding

    @property
    def kind(self) -> str:
        """One of the kinds of cause.py: FATAL, DEGRADED, VAGUE, ECHO, HINT, UNKNOWN."""
        return str(self.finding.evidence["kind"])

    @property
    def line(self) -> int:
        """The number of its line in the file, from 1."""
        return int(self.finding.evidence["line"])

    @property
    def rank(self) -> int | None:
        """The rank that wrote it; None where the log does not say."""
        return self.finding.evidence.get("rank")

    def index(self, log: LogFacts) -> int:
        """Where its line is in ``log.lines``."""
        return bisect.bisect_left(log.lines, self.line, key=lambda line: line.number)

    def explains(self, other: Candidate) -> bool:
        """True where the other one is a consequence of this one."""
        known = CAUSES[self.id].explains if self.id in CAUSES else SESSION_EXPLAINS.get(self.id, ())
        return bool(known) and other.id.startswith(known)

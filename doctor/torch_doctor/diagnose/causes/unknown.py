"""A failure that no signature knows: said so, with the last error line, and no guess."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch_doctor.diagnose.cause import UNKNOWN
from torch_doctor.diagnose.endings import ECHOES, uncaught
from torch_doctor.diagnose.runs import failures
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
        lines = [i for i, x in enumerate(log.lines) if _ERROR_LINE.search(x.text) and not re.search(ECHOES, x.text)]
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

"""A failure that no signature knows: said so, with the last error line, and no guess."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch_doctor.diagnose.cause import UNKNOWN
from torch_doctor.diagnose.runs import failures
from torch_doctor.facts.log import LogFacts
from torch_doctor.model import Finding, Location, Remediation, Severity
from torch_doctor.registry import check

_ERROR_LINE = re.compile(
    r"^\s*(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Failure)\b(?:: "
    r".*)?$|\b(?:ERROR|FATAL|CRITICAL|fatal|panic)\b[\s:\]]"
)
#: errors that only repeat that another process failed
_ECHO = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|closing signal|failed \(exitcode|exited unexpectedly"
    r"|^SystemExit|BrokenPipeError|srun: error|FAILED$"
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
    lines = [i for i, line in enumerate(log.lines) if _ERROR_LINE.search(line.text) and not _ECHO.search(line.text)]
    lines = lines or failures(log)
    if not lines:
        return
    line = log.lines[lines[-1]]
    yield Finding(
        Severity.NOTE,
        f"no known cause fits this log; its last error line is: {line.text.strip()[:300]}",
        Remediation("Read the lines above it", ("PYTHONFAULTHANDLER=1 python train.py",)),
        {"line": line.number, "text": [line.text], "kind": UNKNOWN},
        Location(log.path, line.number, snippet=line.text.strip()[:240]),
    )

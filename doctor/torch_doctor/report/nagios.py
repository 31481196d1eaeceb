"""The Nagios plugin convention: one status line, performance data, exit status 0/1/2/3.

https://nagios-plugins.org/doc/guidelines.html
"""

from __future__ import annotations

from torch_doctor.model import NEVER, Outcome, Report, Severity, counted
from torch_doctor.report import Style
from torch_doctor.report.text import visible

_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def render(report: Report, style: Style) -> str:
    """The status line with the worst finding, one more line per finding, and counts as performance data."""
    findings = report.findings()
    severities = [f.severity for _, f in findings]
    sums = ", ".join(counted(severities.count(s), s.value) for s in Severity if s in severities) or "nothing found"
    first = f": {findings[0][0].id} {findings[0][1].message}" if findings else ""
    data = " ".join(f"{s.value}s={severities.count(s)}" for s in Severity)
    data += f" crashed={report.count(Outcome.CRASHED)} time={report.duration:.3f}s"
    status = exit_code(report, style.fail_on)
    head = f"TORCH-DOCTOR {_WORDS[status]} - {_clean(sums + first)} | {data}\n"
    return head + "".join(f"{f.severity.value} {c.id} {c.name}: {_clean(f.message)}\n" for c, f in findings)


def exit_code(report: Report, fail_on: str = "error") -> int:
    """2 for an error, 1 for a warning (from ``fail_on=note`` on for a note, too), 3 where a check crashed."""
    worst = report.worst()
    if fail_on != NEVER and worst is Severity.ERROR:
        return 2
    if report.exit_code(NEVER):
        return 3
    if fail_on == NEVER or worst is None:
        return 0
    return 1 if worst is Severity.WARNING or fail_on == Severity.NOTE.value else 0


def _clean(text: str) -> str:
    # the bar starts performance data, and a line is one status
    return visible(text.replace("|", "/").replace("\n", " "))

"""The table that a person reads: what is wrong first, with the command that mends it."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from torch_doctor.model import Check, Finding, Location, Outcome, Report, Severity, counted
from torch_doctor.report import Style

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_MARKS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
    Outcome.CRASHED: "bold magenta",
}


def render(report: Report, style: Style) -> str:
    """Findings with remedies, crashes, what was skipped (all of it with ``verbose``), and one line of sums."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=style.color,
        no_color=not style.color,
        width=style.width,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for check, finding in report.findings():
        _finding(console, check, finding, style)
    _results(console, report, style)
    for note in report.notifications:
        _line(console, note.severity, f"{place(note.location)}{note.message}")
    _summary(console, report)
    return out.getvalue() if style.color else "\n".join(x.rstrip() for x in out.getvalue().split("\n"))


def _finding(console: Console, check: Check, finding: Finding, style: Style) -> None:
    head = Text(f"{finding.severity.value}[{check.id}]", style=_STYLES[finding.severity])
    head.append(f" {check.name}", style="bold")
    if finding.role:
        head.append(f" ({finding.role})", style="dim")
    console.print(head, soft_wrap=True)
    console.print(_indented(f"{place(finding.location)}{finding.message}"))
    if finding.location is not None and finding.location.snippet:
        for row in frame(finding.location):
            # code is never wrapped
            console.print(Text(row, style="dim"), soft_wrap=True)
    if finding.remediation.text:
        console.print(_indented(finding.remediation.text))
    for command in finding.remediation.commands:
        # a command is pasted: it is never wrapped
        console.print(Text(f"    {command}", style="green"), soft_wrap=True)
    console.print()


def _indented(text: str) -> object:
    from rich.padding import Padding

    return Padding(Text(text), (0, 0, 0, 2))


def place(location: Location | None) -> str:
    """``train.py:12:5: ``, or an empty string."""
    if location is None:
        return ""
    cell = f"cell {location.cell}" if location.cell is not None else ""
    parts = [location.path, cell, *(str(n) for n in (location.line, location.column) if n is not None)]
    return ":".join(p for p in parts if p) + ": "


def frame(location: Location) -> list[str]:
    """The source line with its number, and a mark under the part that is meant."""
    number = str(location.line)
    rows = [f"  {number} | {location.snippet}"]
    if location.column is not None and location.column <= len(location.snippet):
        stop = location.end_column if location.end_line == location.line and location.end_column else 0
        width = max(1, min(stop or len(location.snippet) + 1, len(location.snippet) + 1) - location.column)
        lead = "".join("\t" if c == "\t" else " " for c in location.snippet[: location.column - 1])
        rows.append(f"  {' ' * len(number)} | {lead}{'^' * width}")
    return rows


def _results(console: Console, report: Report, style: Style) -> None:
    for result in report.results:
        if result.outcome is Outcome.CRASHED or style.verbose:
            line = Text(f"{result.outcome.value:8}", style=_MARKS[result.outcome])
            line.append(f"{result.check.id} {result.check.name}")
            line.append(f": {result.reason}" if result.reason else "", style="dim")
            console.print(line, soft_wrap=not style.color)


def _line(console: Console, severity: Severity, text: str) -> None:
    console.print(Text.assemble((severity.value, _STYLES[severity]), f" {text}"), soft_wrap=True)


def _summary(console: Console, report: Report) -> None:
    counts = {s: sum(1 for _, f in report.findings() if f.severity is s) for s in Severity}
    found = ", ".join(counted(n, s.value) for s, n in counts.items() if n) or "nothing found"
    sums = [f"{report.count(o)} {o.value}" for o in Outcome if report.count(o) and o is not Outcome.FAILED]
    console.print(f"{report.command}: {found} ({', '.join(sums) or 'no checks'}) in {report.duration:.1f} s")

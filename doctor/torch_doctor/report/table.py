"""The table that a person reads: what was looked at, what is wrong, and the command that mends it."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from torch_doctor.model import FAMILIES, Check, CheckResult, Finding, Location, Outcome, Report, Severity, counted
from torch_doctor.report import Style
from torch_doctor.report.text import place, visible

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_MARKS = {
    Outcome.PASSED: ("✓", "ok", "green"),
    Outcome.FAILED: ("✗", "!!", "bold red"),
    Outcome.SKIPPED: ("-", "--", "dim"),
    Outcome.CRASHED: ("?", "??", "bold magenta"),
}


def render(report: Report, style: Style) -> str:
    """An overview by subject, findings with remedies, what crashed, and one line of sums."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=style.color,
        color_system="standard" if style.color else None,
        width=style.width,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    if report.command == "check":
        _overview(console, report, style)
    for check, finding in report.findings():
        _finding(console, check, finding)
    _results(console, report, style)
    for note in report.notifications:
        where = f"{place(note.location)}: " if note.location else ""
        _line(console, note.severity, f"{where}{note.message}")
    console.print(_summary(report))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _overview(console: Console, report: Report, style: Style) -> None:
    for family, subject in FAMILIES.items():
        results = [r for r in report.results if r.check.family == family and r.check.command == "check"]
        if not results:
            continue
        worst = _worst(results)
        sign, plain, look = _MARKS[worst]
        line = Text.assemble((sign if style.unicode else plain, look), f" {family:4}{subject:40}")
        line.append(_sums(results), style="dim")
        console.print(line, overflow="ellipsis", no_wrap=True)
    console.print()


def _worst(results: Iterable[CheckResult]) -> Outcome:
    # a note is worth reading, but it is no fault
    serious = [r for r in results if r.outcome is not Outcome.FAILED or any(f.severity.rank for f in r.findings)]
    for outcome in (Outcome.FAILED, Outcome.CRASHED, Outcome.PASSED):
        if any(r.outcome is outcome for r in serious):
            return outcome
    return Outcome.SKIPPED


def _sums(results: list[CheckResult]) -> str:
    severities = [f.severity for r in results for f in r.findings if f.suppression is None]
    parts = [counted(severities.count(s), s.value) for s in Severity if s in severities]
    for outcome in (Outcome.CRASHED, Outcome.PASSED, Outcome.SKIPPED):
        number = sum(1 for r in results if r.outcome is outcome)
        parts += [f"{number} {outcome.value}"] if number else []
    reasons = {r.reason for r in results if r.outcome is Outcome.SKIPPED}
    alone = f": {next(iter(reasons))}" if len(reasons) == 1 and parts and parts[-1].endswith("skipped") else ""
    return ", ".join(parts) + alone


def _finding(console: Console, check: Check, finding: Finding) -> None:
    head = Text(finding.severity.value, style=_STYLES[finding.severity])
    head.append(f" {check.id} {check.name}", style="bold")
    if finding.role:
        head.append(f" ({finding.role})", style="dim")
    console.print(head, soft_wrap=True)
    where = f"{place(finding.location)}: " if finding.location else ""
    _indented(console, f"{where}{finding.message}")
    if finding.location is not None and finding.location.snippet:
        for row in frame(finding.location):
            # code is never wrapped
            console.print(Text(visible(row), style="dim"), soft_wrap=True)
    if finding.remediation.text:
        _indented(console, finding.remediation.text)
    for command in finding.remediation.commands:
        # a command is pasted: it is never wrapped
        console.print(
            Text("\n".join(f"    {part}" for part in visible(command).split("\n")), style="green"), soft_wrap=True
        )
    console.print()


def _indented(console: Console, text: str) -> None:
    # a word that is longer than the line (a path) stays whole: it is searched for, and clicked on
    lines = textwrap.wrap(
        visible(text),
        console.width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)


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
            line = Text(f"{result.outcome.value:8}", style=_MARKS[result.outcome][2])
            line.append(f"{result.check.id} {result.check.name}")
            line.append(f": {visible(result.reason)}" if result.reason else "", style="dim")
            console.print(line, soft_wrap=True)


def _line(console: Console, severity: Severity, text: str) -> None:
    console.print(Text.assemble((severity.value, _STYLES[severity]), f" {visible(text)}"), soft_wrap=True)


def _summary(report: Report) -> str:
    severities = [f.severity for _, f in report.findings()]
    found = ", ".join(counted(severities.count(s), s.value) for s in Severity if s in severities)
    shown = [o for o in Outcome if report.count(o) and o is not Outcome.FAILED]
    sums = ", ".join(f"{report.count(o)} {o.value}" for o in shown)
    return f"{report.command}: {found or 'nothing found'}{f' ({sums})' if sums else ''} in {report.duration:.1f} s"

"""GitHub workflow commands: each finding becomes an annotation of the run.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from torch_doctor.model import Location, Outcome, Report, Severity
from torch_doctor.report import Style
from torch_doctor.report.text import remedy, visible

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report, style: Style) -> str:
    """One workflow command per finding, crash and notification."""
    lines = [
        _command(_LEVELS[f.severity], f"{c.id} {c.name}", f"{f.message}\n{remedy(f)}".rstrip(), f.location)
        for c, f in report.findings()
    ]
    lines += [
        _command("error", f"{r.check.id} {r.check.name} crashed", r.reason, None)
        for r in report.results
        if r.outcome is Outcome.CRASHED
    ]
    lines += [_command(_LEVELS[n.severity], "torch-doctor", n.message, n.location) for n in report.notifications]
    return "".join(f"{line}\n" for line in lines)


def _command(level: str, title: str, message: str, location: Location | None) -> str:
    properties = {"title": title}
    if location is not None:
        properties["file"] = location.path
        if location.cell is None:  # a line of a cell is no line of the file
            numbers = {"line": location.line, "endLine": location.end_line, "col": location.column}
            properties |= {key: str(n) for key, n in numbers.items() if n is not None}
    joined = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {joined}::{_data(message)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

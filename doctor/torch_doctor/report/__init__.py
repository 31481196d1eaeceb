"""One file per format; each has ``render(report, style) -> str``. They import only the model."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from torch_doctor.model import Report

#: format -> the module that renders it
FORMATS = ("table", "json", "junit", "sarif", "github", "nagios")


@dataclass(frozen=True)
class Style:
    """How a report is to look. ``color`` and ``width`` (columns) matter to the table only.

    ``fail_on`` is a severity's word or ``never``; ``verbose`` lists what passed and was skipped, too.
    """

    color: bool = False
    width: int = 80
    unicode: bool = True
    verbose: bool = False
    fail_on: str = "error"


def render(format: str, report: Report, style: Style) -> str:
    """The report in ``format``, with a line end at its end."""
    module = importlib.import_module(f"torch_doctor.report.{format}")
    text: str = module.render(report, style)
    return text


def exit_code(format: str, report: Report, fail_on: str) -> int:
    """The exit status. It does not change with the format, but for nagios with its own convention."""
    if format == "nagios":
        from torch_doctor.report import nagios

        return nagios.exit_code(report, fail_on)
    return report.exit_code(fail_on)

"""How a command ends: the report to stdout or a file, then the exit status."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from torch_doctor import report as reports
from torch_doctor.errors import DoctorError
from torch_doctor.files import write_atomic
from torch_doctor.model import Report


def finish(
    report: Report, *, format: str, output: Path | None = None, fail_on: str = "error", verbose: bool = False
) -> NoReturn:
    """Write the report and end with its exit status."""
    text = reports.render(format, report, style(output, fail_on, verbose))
    if output is None:
        write(text)
    else:
        write_file(output, text)
    raise typer.Exit(reports.exit_code(format, report, fail_on))


def style(output: Path | None, fail_on: str, verbose: bool) -> reports.Style:
    """How the report should look on this stdout: NO_COLOR, TERM=dumb and COLUMNS are honoured."""
    environment = os.environ
    terminal = output is None and sys.stdout.isatty()
    dumb = environment.get("TERM", "dumb") in ("dumb", "unknown", "")
    color = terminal and not dumb and not environment.get("NO_COLOR")
    if output is None and environment.get("FORCE_COLOR") and not environment.get("NO_COLOR"):
        color = True
    encoding = "utf-8" if output is not None else (sys.stdout.encoding or "ascii")
    return reports.Style(color, _width(terminal), "utf" in encoding.lower(), verbose, fail_on)


def _width(terminal: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) >= 20:
        return int(columns)
    if not terminal:
        return 100
    return max(40, os.get_terminal_size(sys.stdout.fileno()).columns or 80)


def write(text: str) -> None:
    """To stdout; what its encoding cannot show is escaped, never an error."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def write_file(path: Path, text: str) -> None:
    """The report as a file, whole or not at all.

    Raises:
        DoctorError: where the folder does not exist or cannot be written.
    """
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise DoctorError(
            str(path), f"cannot be written: {error.strerror}", "give --output a writable file"
        ) from error

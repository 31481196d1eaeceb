"""The application: registers the commands, renders errors once, ends with the right status."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import typer

from torch_doctor import __version__
from torch_doctor.cli.command import DoctorCommand
from torch_doctor.errors import DoctorError

#: module in torch_doctor.cli -> its command's name and function of the same name; order of ``--help``
COMMANDS = (
    "check",
    "lint",
    "explain",
    "run",
    "ps",
    "attach",
    "logs",
    "stop",
    "wait",
    "rm",
    "rule",
    "diff",
    "health",
)

app = typer.Typer(
    name="torch-doctor",
    help="Preflight, detachable sessions, lint and post-mortem for PyTorch training.",
    rich_markup_mode=None,  # rich's help costs 60 ms and needs rich.table
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _register() -> None:
    for name in COMMANDS:
        module = importlib.import_module(f"torch_doctor.cli.{name}")
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        app.command(name, cls=DoctorCommand, context_settings=settings)(getattr(module, name))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"torch-doctor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


_register()


def main() -> NoReturn:
    """Entry point of ``torch-doctor``: every error a user can mend ends here, in one form."""
    try:
        app(standalone_mode=True)
    except DoctorError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        # the reader went away (| head): no traceback, and nothing more to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(0)

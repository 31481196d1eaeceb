"""The application: finds the command, renders errors once, ends with the right status."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

import typer

from torch_doctor import __version__
from torch_doctor.cli.command import DoctorGroup
from torch_doctor.errors import CannotRun, DoctorError

#: a disk that takes no more: the user's to mend, as against a fault of ours
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="torch-doctor",
    cls=DoctorGroup,
    help="Preflight, detachable sessions, lint and post-mortem for PyTorch training.",
    rich_markup_mode=None,  # rich's help costs 60 ms and needs rich.table
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"torch-doctor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


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
        _discard_output()  # the reader went away (| head)
        sys.exit(141)
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"error: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        print("hint: df -h", file=sys.stderr)
        _discard_output()
        sys.exit(CannotRun.exit_status)
    sys.exit(0)


def _discard_output() -> None:
    """What is still to be written goes nowhere, so that the end of the interpreter does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Errors that a user can mend. Raised low, rendered once by cli/app.py."""

from __future__ import annotations


class DoctorError(Exception):
    """A fault in what the user gave: the input is named, and what to do.

    Args:
        reference: what is at fault, as the user wrote it (an option, a path, a rule ID).
        message: what is wrong with it, one line without a full stop.
        hint: what to type or change instead.
    """

    exit_status = 2

    def __init__(self, reference: str, message: str, hint: str = "") -> None:
        super().__init__(f"{reference}: {message}")
        self.reference = reference
        self.message = message
        self.hint = hint


class CannotRun(DoctorError):
    """The work could not be done though the input was right (no permission, a lost server)."""

    exit_status = 3

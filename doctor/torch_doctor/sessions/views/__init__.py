"""tmux, screen and nohup behind one protocol. They only show a run; the supervisor owns it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch_doctor.errors import CannotRun

#: in the order that ``auto`` tries
BACKENDS = ("tmux", "screen", "nohup")


@dataclass(frozen=True)
class Subject:
    """What is to be shown. ``user_config``: the user's own configuration of the view is read, too."""

    name: str
    folder: Path
    user_config: bool = False


class Backend(Protocol):
    """One way to show a session."""

    def unusable(self, environment: Mapping[str, str]) -> str:
        """Why it cannot be used here, one line; "" where it can."""

    def attach(self, subject: Subject, environment: Mapping[str, str]) -> str:
        """Show the session on this terminal until the user detaches or it ends.

        Returns:
            "", or why no view could be opened.
        """


def backend(name: str) -> Backend:
    """The backend of that name."""
    module = importlib.import_module(f"torch_doctor.sessions.views.{name}")
    found: Backend = module.BACKEND
    return found


def choose(wanted: str, environment: Mapping[str, str]) -> str:
    """The backend to use: the wanted one, or for ``auto`` the first that works here.

    Raises:
        CannotRun: where the wanted one does not.
    """
    if wanted == "auto":
        return next(name for name in BACKENDS if not backend(name).unusable(environment))
    reason = backend(wanted).unusable(environment)
    if reason:
        raise CannotRun(f"--backend {wanted}", reason, "--backend auto")
    return wanted


def configuration(name: str) -> Path:
    """The view's configuration file: the image's, or an administrator's, else the one that comes with the package."""
    placed = Path("/etc/torch-doctor") / name
    return placed if placed.is_file() else Path(__file__).parent / name

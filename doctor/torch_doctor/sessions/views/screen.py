"""GNU screen: a private socket folder per run, so that no name is taken for the beginning of another."""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torch_doctor.sessions import launch, places, terminal
from torch_doctor.sessions.views import Subject, configuration

SECONDS = 20.0


class Screen:
    """The backend."""

    def unusable(self, environment: Mapping[str, str]) -> str:
        """Why it cannot be used here; "" where it can."""
        if not shutil.which("screen"):
            return "screen is not installed"
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            return f"screen needs an entry in /etc/passwd, and uid {os.getuid()} has none"
        return ""

    def attach(self, subject: Subject, environment: Mapping[str, str]) -> str:
        """Attach to the run's window, opening it where there is none (any more)."""
        folder = sockets(subject)
        settings = _environment(environment, folder)
        # a killed screen leaves its socket behind
        subprocess.run(["screen", "-wipe"], env=settings, capture_output=True, timeout=SECONDS, check=False)
        if not any(folder.iterdir()):
            made = _open(subject, settings)
            if made.returncode != 0:
                return f"screen: {(made.stderr or made.stdout).strip() or f'status {made.returncode}'}"
            if subject.user_config and (own := Path("~/.screenrc").expanduser()).is_file():
                subprocess.run(["screen", "-X", "source", str(own)], env=settings, timeout=SECONDS, check=False)
        subprocess.run(["screen", "-U", "-x"], env=settings, check=False)
        return ""


def sockets(subject: Subject) -> Path:
    """The folder that holds this run's screen socket."""
    digest = hashlib.sha256(os.fsencode(subject.name)).hexdigest()[:8]
    folder = places.runtime_folder(subject.folder.parent.parent) / f"screen-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _open(subject: Subject, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    window = launch.light_command("viewer", str(subject.folder))
    options = ["-c", str(configuration("screenrc")), "-U", "-S", "run", "-t", subject.name]
    return subprocess.run(
        ["screen", "-dm", *options, "--", *window],
        env=settings,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
    )


def _environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in environment.items() if k not in ("STY", "WINDOW", "SCREENRC")}
    status = shlex.join(launch.light_command("statusline", site=True))
    term = terminal.usable_term(environment)
    return {**kept, "SCREENDIR": str(folder), "TERM": term, "TORCH_DOCTOR_STATUS": status}


BACKEND = Screen()

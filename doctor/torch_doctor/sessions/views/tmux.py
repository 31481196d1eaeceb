"""tmux: a private server in a folder of mode 0700; the user's own server and configuration stay untouched."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch_doctor.sessions import launch, places, terminal
from torch_doctor.sessions.views import Subject, configuration

#: starting a server and asking it takes milliseconds; a hung one must not hang the doctor
SECONDS = 20.0


class Tmux:
    """The backend. One server per user and state folder, one tmux session per run."""

    def unusable(self, environment: Mapping[str, str]) -> str:
        """Why it cannot be used here; "" where it can."""
        return "" if shutil.which("tmux") else "tmux is not installed"

    def attach(self, subject: Subject, environment: Mapping[str, str]) -> str:
        """Attach to the run's window, opening it where there is none (any more)."""
        server = _Server(_socket(subject), _environment(environment))
        target = f"={encoded(subject.name)}"
        failure = "" if server.has(target) else server.open(subject)
        if failure:
            return failure
        result = subprocess.run(
            [*server.command, "attach-session", "-t", target], env=server.environment, check=False
        )
        # 1: the window closed before the client was there, or the server was killed; below 0: the client itself
        # was. The caller looks at the run
        return "" if result.returncode <= 1 else f"tmux ended with status {result.returncode}"


class _Server:
    def __init__(self, socket: Path, environment: dict[str, str]) -> None:
        self.environment = environment
        # -u: the client's terminal is taken to be UTF-8 where the locale is not set, as under docker exec
        self.command = ["tmux", "-u", "-S", str(socket), "-f", str(configuration("tmux.conf"))]

    def has(self, target: str) -> bool:
        return self.ask(["has-session", "-t", target]).returncode == 0

    def ask(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )

    def open(self, subject: Subject) -> str:
        """Open the window; "" or what tmux said."""
        session = encoded(subject.name)
        window = launch.light_command("viewer", str(subject.folder))
        rows, columns = terminal.size_of(0) or (terminal.DEFAULT_ROWS, terminal.DEFAULT_COLUMNS)
        new = ["new-session", "-d", "-s", session, "-n", "run", "-x", str(columns), "-y", str(rows), "-c", "/"]
        made = self.ask([*new, "--", *window])
        if made.returncode != 0 and "duplicate session" not in made.stderr:
            return f"tmux: {made.stderr.strip() or f'status {made.returncode}'}"
        status = shlex.join(launch.light_command("statusline", site=True)).replace("#", "##")
        self.ask(["set-option", "-t", f"={session}:", "@torch-doctor-name", subject.name])
        self.ask(["set-option", "-g", "@torch-doctor-status", status])
        if subject.user_config:
            for path in ("~/.tmux.conf", "~/.config/tmux/tmux.conf"):
                self.ask(["source-file", "-q", str(Path(path).expanduser())])
        return ""


def encoded(name: str) -> str:
    """The tmux session's name: tmux changes '.' and ':' itself, and two runs could then share a window."""
    return name.replace("_", "__").replace(".", "_d")


def _socket(subject: Subject) -> Path:
    return places.runtime_folder(subject.folder.parent.parent) / "tmux.sock"


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    # TMUX set means "nested", which tmux refuses; this server is another one
    kept = {k: v for k, v in environment.items() if k not in ("TMUX", "TMUX_PANE")}
    return {**kept, "TERM": terminal.usable_term(environment)}


BACKEND = Tmux()

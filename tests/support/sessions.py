"""Sessions for tests: a state folder of their own, real processes, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.command import environment

from torch_doctor.sessions import launch, places, proc, store
from torch_doctor.sessions.state import State

#: an event that does not come on a loaded machine within this time will not come
SECONDS = 60.0


def until(event: Callable[[], Any], what: str = "the event", seconds: float = SECONDS) -> Any:
    """Wait for an event: the first true value of ``event()``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = event()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {seconds:g} s")


class Sessions:
    """``torch-doctor`` on a state folder of its own."""

    def __init__(self, root: Path, **variables: str) -> None:
        self.root = root
        self.environment = environment(TORCH_DOCTOR_STATE_DIR=str(root), **variables)

    def command(self, *args: str | Path) -> list[str]:
        """The command line of ``torch-doctor ARGS``."""
        return [sys.executable, "-m", "torch_doctor", *map(str, args)]

    def __call__(
        self, *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """The finished process of ``torch-doctor ARGS``, without a terminal."""
        return subprocess.run(
            self.command(*args),
            cwd=cwd,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )

    def popen(self, *args: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        """``torch-doctor ARGS`` as a process that goes on."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(self.command(*args), env=self.environment, **options)

    def start(self, name: str, *command: str, options: tuple[str, ...] = (), **call: Any) -> Path:
        """Start a session that nobody looks at; its folder."""
        done = self("run", "--detach", "--check", "off", "--name", name, *options, "--", *command, **call)
        assert done.returncode == 0, done.stderr
        return self.folder(name)

    def python(self, name: str, code: str, options: tuple[str, ...] = (), **call: Any) -> Path:
        """Start a Python program as a session; it has to print ``ready`` once it is."""
        place = self.start(name, sys.executable, "-c", code, options=("--no-postmortem", *options), **call)
        until(lambda: b"ready" in self.log(name), f"'ready' of {name}")
        return place

    def folder(self, name: str) -> Path:
        return self.root / "sessions" / name

    def log(self, name: str) -> bytes:
        path = self.folder(name) / store.LOG
        return path.read_bytes() if path.exists() else b""

    def state(self, name: str) -> State:
        """The state as it is, lost ones told."""
        return launch.current(self.folder(name))

    def ended(self, name: str, seconds: float = SECONDS) -> State:
        """The final state, once the session has ended and its supervisor with it."""
        owner = self.state(name).supervisor
        assert owner is not None
        until(lambda: not proc.alive(owner), f"the end of {name}", seconds)
        return self.state(name)

    def supervisor(self, name: str) -> int:
        owner = self.state(name).supervisor
        assert owner is not None
        return owner.pid

    def child(self, name: str) -> int:
        found = self.state(name).child
        assert found is not None
        return found.pid

    def ps(self) -> dict[str, dict[str, Any]]:
        """What ``ps --format json`` says, by name."""
        done = self("ps", "--format", "json")
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)["sessions"]}

    def close(self) -> None:
        """End everything that was started here."""
        runtime = places.runtime_folder(self.root)
        subprocess.run(["tmux", "-S", str(runtime / "tmux.sock"), "kill-server"], capture_output=True, check=False)
        for place in (self.root / "sessions").glob("[!.]*") if self.root.is_dir() else ():
            with suppress(OSError, ValueError, KeyError, TypeError):
                owner = json.loads((place / store.STATE).read_text())["supervisor"]["pid"]
                if str(place) in Path(f"/proc/{owner}/cmdline").read_text():
                    os.kill(owner, signal.SIGKILL)
            for pid in proc.of_session(place.name, str(place), proc.all_processes()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(runtime, ignore_errors=True)


@contextmanager
def sessions(root: Path, **variables: str) -> Iterator[Sessions]:
    """Sessions in ``root``, all ended when the block is left."""
    found = Sessions(root, **variables)
    try:
        yield found
    finally:
        found.close()


def gone(pid: int) -> bool:
    """True where there is no such process any more, but for a zombie that its parent has not seen yet."""
    found = proc.stat_of(pid)
    return found is None or found.state in "ZX"

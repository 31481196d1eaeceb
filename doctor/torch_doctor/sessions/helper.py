"""The post-mortem that the supervisor has made: a child process, and what its report says. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path


def spawn(command: Sequence[str]) -> int:
    """Start a command in a process group of its own, with no streams; its PID, or 0 where it cannot be started."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    streams = [(os.POSIX_SPAWN_DUP2, nothing, n) for n in (0, 1, 2)]
    try:
        return os.posix_spawn(command[0], list(command), os.environ, file_actions=streams, setpgroup=0, setsigmask=())
    except OSError:
        return 0
    finally:
        os.close(nothing)


def cause(report: Path) -> tuple[str, str]:
    """The root cause that explain found, and what mends it, one line each; "" where it found none."""
    try:
        findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
        if not findings:
            return "", ""
        first, remedy = findings[0], findings[0]["remediation"]
        lines = [*remedy["commands"], remedy["text"]][0].splitlines()
        return f"{first['id']} {first['name']}: {first['message']}", lines[0] if lines else ""
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""

"""A machine or container with a GPU, as testinfra reaches it, and reports of `torch-doctor check` on it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """A machine or container with a GPU, and how torch-doctor and Python are started in it."""

    host: Any
    doctor: str
    python: str

    def run(self, command: str) -> Any:
        return self.host.run(command)

    def report(self, *args: str, environment: str = "") -> dict[str, Any]:
        """The JSON report of `check ARGS`."""
        words = " ".join(shlex.quote(a) for a in ("check", "--format", "json", *args))
        done = self.host.run(f"env {environment} {self.doctor} {words}")
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert report["exit_code"] == done.rc
        return report

    def smi(self, query: str) -> list[list[str]]:
        """A row for each GPU, by nvidia-smi."""
        done = self.host.run(f"nvidia-smi --query-gpu={query} --format=csv,noheader,nounits")
        assert done.rc == 0, done.stdout + done.stderr
        return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]


def red(report: dict[str, Any], *severities: str) -> dict[str, list[dict[str, Any]]]:
    """Findings by ID, of these severities (errors and warnings without one)."""
    wanted = severities or ("error", "warning")
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        if finding["severity"] in wanted:
            found.setdefault(finding["id"], []).append(finding)
    return found

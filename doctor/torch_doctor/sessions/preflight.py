"""The preflight before a launch: ``torch-doctor check`` in a child process, its report kept with the session."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_doctor import process
from torch_doctor.model import ProbeFailure
from torch_doctor.sessions import launch

#: each probe has a limit of its own; this one is for all of them together
SECONDS = 180.0


@dataclass(frozen=True)
class Preflight:
    """What ``check`` said. ``failure``: why there is no report; ``text`` is the report's JSON."""

    findings: tuple[Mapping[str, Any], ...] = ()
    summary: Mapping[str, int] = field(default_factory=dict)
    text: str = ""
    failure: str = ""

    @property
    def errors(self) -> int:
        """How many errors were found."""
        return sum(1 for f in self.findings if f["severity"] == "error")


def run(script: Path | None, cwd: Path) -> Preflight:
    """Run the preflight for ``script`` in ``cwd``; the same code path as ``torch-doctor check``."""
    with tempfile.TemporaryDirectory(prefix="torch-doctor-") as folder:
        report = Path(folder) / "preflight.json"
        arguments = ["check", *([str(script)] if script else []), "--format", "json", "--output", str(report)]
        # what --fail-on says does not matter: the findings are read from the report
        done = process.run(launch.doctor_command(*arguments), timeout=SECONDS, env=os.environ, cwd=cwd)
        if isinstance(done, ProbeFailure):
            return Preflight(failure=done.reason)
        try:
            return parse(report.read_text(encoding="utf-8"))
        except OSError:
            how = done.signal_name or f"exit status {done.status}"
            said = process.tail(done.stderr, 1)
            return Preflight(failure=f"check ended without a report ({how}{': ' + said[0] if said else ''})")


def parse(text: str) -> Preflight:
    """The preflight from its JSON report; a report that cannot be read is a failure."""
    try:
        values = json.loads(text)
        return Preflight(tuple(values["findings"]), values["summary"], text)
    except (ValueError, KeyError, TypeError) as error:
        return Preflight(failure=f"the report cannot be read: {error}")


def lines(found: Preflight) -> list[str]:
    """What the user is told on stderr: every error and warning, and what to type."""
    if found.failure:
        return [f"preflight: did not run: {found.failure}"]
    shown = [f for f in found.findings if f["severity"] in ("error", "warning")]
    counts = {s: sum(1 for f in found.findings if f["severity"] == s) for s in ("error", "warning", "note")}
    told = ", ".join(f"{n} {s}{'s' if n != 1 else ''}" for s, n in counts.items() if n) or "nothing found"
    skipped, crashed = found.summary.get("skipped", 0), found.summary.get("crashed", 0)
    rest = "".join(f", {n} {word}" for n, word in ((skipped, "skipped"), (crashed, "crashed")) if n)
    text = [f"preflight: {told} ({found.summary.get('passed', 0)} checks passed{rest})"]
    for finding in shown:
        text.append(f"  {finding['severity']} {finding['id']} {finding['name']}: {finding['message']}")
        text += [f"      $ {command}" for command in finding["remediation"]["commands"]]
    return text

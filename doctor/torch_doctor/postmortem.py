"""From a log to a report: reads it, matches the causes, puts the root cause first."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch_doctor import registry, runner, snapshot
from torch_doctor.diagnose import benign, reasoning, runs
from torch_doctor.errors import CannotRun, DoctorError
from torch_doctor.facts.log import LogFacts, MachineFacts, RunFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import ProbeFailure, Report


def explain(request: Request, chosen: Iterable[str] = (), ignored: Iterable[str] = (), start: float = 0.0) -> Report:
    """The report on the log, or the session, that the request names.

    Raises:
        DoctorError: where there is nothing to read.
    """
    start = start or time.monotonic()
    checks = registry.select(registry.load("explain"), chosen, ignored)
    facts = snapshot.take({LogFacts, MachineFacts, RunFacts}, named(request))
    for value in facts.values():
        if isinstance(value, ProbeFailure):
            raise CannotRun(str(request.session or request.log), value.reason)
    log: LogFacts = facts[LogFacts]
    run = runs.last_run(benign.without_benign(log))
    facts[LogFacts] = run.log
    results = reasoning.arrange(runner.run(checks, facts), run.log)
    return Report("explain", results, summary(log, run, facts), (), time.monotonic() - start)


def named(request: Request) -> Request:
    """The request with its log found and readable.

    Raises:
        DoctorError: where no log is named, or it cannot be read.
    """
    if request.session:
        return request
    if request.log is None:
        raise DoctorError("explain", "no log was given", "torch-doctor explain train.log, or - for standard input")
    if str(request.log) != "-":
        if not request.log.exists():
            raise DoctorError(str(request.log), "there is no such file", "torch-doctor explain train.log")
        if request.log.is_dir():
            raise DoctorError(str(request.log), "is a folder, not a log", f"ls {request.log}")
    if request.facts is not None and not request.facts.exists():
        raise DoctorError(
            str(request.facts), "there is no such file", "torch-doctor check --format json > facts.json"
        )
    return replace(request)


def summary(log: LogFacts, run: runs.Run, facts: dict[type, Any]) -> dict[str, Any]:
    """What was read, as plain values."""
    ranks = sorted({line.rank for line in log.lines if line.rank is not None})
    values: dict[str, Any] = {
        "log": {
            "path": log.path,
            "size_bytes": log.size_bytes,
            "lines": log.lines_total,
            "runs": run.number,
            "ranks": ranks,
            "cut": log.cut,
        }
    }
    machine: MachineFacts = facts[MachineFacts]
    if machine.origin:
        values["machine_facts"] = {"origin": machine.origin}
    return values

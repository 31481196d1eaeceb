"""From a log to a report: reads it, matches the causes, puts the root cause first, and shows the code beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_doctor import registry, runner, snapshot
from torch_doctor.diagnose import benign, reasoning, runs
from torch_doctor.diagnose.code_beside import frame_of, with_code
from torch_doctor.errors import CannotRun, DoctorError
from torch_doctor.facts.log import LogFacts, MachineFacts, RunFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import CheckResult, Finding, ProbeFailure, Report

#: facts of the live machine that can decide between two causes
LIVE = ("shm", "mem", "fs")
FACTS_COMMAND = "torch-doctor check --format json --output facts.json"


def explain(
    request: Request,
    chosen: Iterable[str] = (),
    ignored: Iterable[str] = (),
    start: float = 0.0,
    bundle: Path | None = None,
) -> Report:
    """The report on the log, or the session, that the request names; ``bundle`` is an archive to write of it.

    Raises:
        DoctorError: where there is nothing to read.
    """
    start = start or time.monotonic()
    checks = registry.select(registry.load("explain"), chosen, ignored)
    request, known = found(request)
    needs = {LogFacts, MachineFacts} if request.facts is not None else {LogFacts}
    facts: dict[type, Any] = {MachineFacts: MachineFacts(), RunFacts: RunFacts()}
    facts |= snapshot.take(needs, request) | known
    _refuse(request, facts)
    if request.live:
        facts[MachineFacts] = _live(request)
    log: LogFacts = facts[LogFacts]
    run = runs.last_run(benign.without_benign(log))
    facts[LogFacts] = run.log
    results = reasoning.arrange(runner.run(checks, facts), run.log, facts[RunFacts])
    report = Report("explain", _linked(results, run.log), summary(log, run, facts), (), time.monotonic() - start)
    if bundle is not None:
        _pack(bundle, report, log)
    return report


def _refuse(request: Request, facts: Mapping[type, Any]) -> None:
    """Raise for what cannot be read, and for a log that says nothing where nothing else is known of the run."""
    for need, value in facts.items():
        if isinstance(value, ProbeFailure):
            named = request.facts if need is MachineFacts else request.session or request.log
            hint = FACTS_COMMAND if need is MachineFacts else "give it the text that the run printed"
            raise (CannotRun if value.kind.is_crash else DoctorError)(str(named), value.reason, hint)
    if not facts[LogFacts].size_bytes and not facts[RunFacts].name:
        raise DoctorError(
            facts[LogFacts].path,
            "is empty, so it says nothing of a run",
            "docker logs CONTAINER 2>&1 | torch-doctor explain -, or torch-doctor explain --session NAME",
        )


def _pack(path: Path, report: Report, log: LogFacts) -> None:
    from torch_doctor import bundle
    from torch_doctor.report import json as json_report

    files = {"report.json": bundle.plain(json_report.as_dict(report)), "log-excerpt.txt": bundle.excerpt(log)}
    bundle.write(path, files)


def found(request: Request) -> tuple[Request, dict[type, Any]]:
    """The request with its log found, and what is known of its end where it is a session.

    Raises:
        DoctorError: where no log is named, or it cannot be read.
    """
    if request.facts is not None and not request.facts.is_file():
        raise DoctorError(str(request.facts), "there is no such file", FACTS_COMMAND)
    if request.session:
        return _session(request)
    if request.log is None:
        raise DoctorError("explain", "no log was given", "torch-doctor explain train.log, or - for standard input")
    if str(request.log) != "-":
        if not request.log.exists():
            raise DoctorError(str(request.log), "there is no such file", "torch-doctor explain train.log")
        if request.log.is_dir():
            raise DoctorError(str(request.log), "is a folder, not a log", f"ls {request.log}")
    return request, {}


def _session(request: Request) -> tuple[Request, dict[type, Any]]:
    from torch_doctor.sessions import store

    session = store.facts(request.session)
    run = RunFacts(
        name=session.name,
        exit_status=session.exit_status,
        signal=session.signal,
        oom_kills=session.oom_kills,
        memory_limit_bytes=session.memory_limit_bytes,
        memory_peak_bytes=session.memory_peak_bytes,
        stopped_by=session.stopped_by,
    )
    log = request.log or Path(session.log)
    if not log.exists():
        raise CannotRun(request.session, f"its log {log} is gone", f"torch-doctor rm {request.session}")
    asked = replace(request, log=log, log_offset=session.log_offset if request.log is None else 0)
    known: dict[type, Any] = {RunFacts: run}
    if request.facts is None:
        known[MachineFacts] = _machine_of(Path(session.folder), session.shm_size_bytes, session.shm_free_bytes)
    return asked, known


def _machine_of(folder: Path, shm_size: int | None, shm_free: int | None) -> MachineFacts:
    """What the preflight of the session saw, with /dev/shm as it was when the run ended."""
    try:
        report = json.loads((folder / "preflight.json").read_text(encoding="utf-8"))
        values: dict[str, Any] = dict(report["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        values = {}  # the preflight was switched off, or is of another version
    # a count of kills from before the run says nothing of it
    memory = values.get("memory")
    values["memory"] = {k: v for k, v in memory.items() if k != "oom_kills"} if isinstance(memory, Mapping) else {}
    if shm_size is not None:
        values["shm"] = {"size_bytes": shm_size, "free_bytes": shm_free}
    return MachineFacts(values, "session")


def _live(request: Request) -> MachineFacts:
    checks = registry.select(registry.load("check"), LIVE)
    return MachineFacts(snapshot.plain(snapshot.take(snapshot.needed(checks), request)), "live")


def summary(log: LogFacts, run: runs.Run, facts: Mapping[type, Any]) -> dict[str, Any]:
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
    if facts[MachineFacts].origin:
        values["machine"] = dict(facts[MachineFacts].values) | {"origin": facts[MachineFacts].origin}
    if facts[RunFacts].name:
        values["run"] = snapshot.plain({RunFacts: facts[RunFacts]})["run"]
    return values


def _linked(results: Iterable[CheckResult], log: LogFacts) -> tuple[CheckResult, ...]:
    """The results, with the user's line of the root cause and what lint finds on it."""
    return tuple(
        replace(r, findings=tuple(_with_code(r.check.id, f, log) for f in r.findings))
        if any(not f.role for f in r.findings)
        else r
        for r in results
    )


def _with_code(id: str, finding: Finding, log: LogFacts) -> Finding:
    frame = frame_of(finding, log) if not finding.role else None
    if frame is None:
        return finding
    return with_code(finding, frame, _lint(frame.path, log.path))


def _lint(path: str, log_path: str) -> list[tuple[str, Finding]]:
    """What lint finds in the script that the traceback names, where it lies here or beside the log."""
    named = Path(path)
    places = [named, Path(log_path).parent / named.name, Path(named.name)]
    script = next((p for p in places if p.suffix == ".py" and p.is_file()), None)
    if script is None:
        return []
    from torch_doctor import linting

    linted = linting.lint([script], registry.load("lint"))
    return [(r.check.id, f) for r in linted.results for f in r.findings if f.suppression is None]

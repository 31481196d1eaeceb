"""One preflight: the checks of ``check`` over a request. ``run`` and ``host`` call it, too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch_doctor import interpreter, registry, runner, snapshot
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.facts.workers import WorkerFacts
from torch_doctor.model import Check, Notification, Report

ALL_METHODS = ("fork", "forkserver", "spawn")


def request(
    script: Path | None = None,
    needs: Requirements | None = None,
    *,
    timeout: float = 30.0,
    deep: bool = False,
    python: str | None = None,
    data: Path | None = None,
) -> Request:
    """A request with the interpreter chosen.

    Raises:
        DoctorError: where ``python`` is no program.
    """
    return Request(script, needs or Requirements(), timeout, deep, interpreter.choose(python), data)


def judge(
    asked: Request, select: Sequence[str] = (), ignore: Sequence[str] = (), notes: Sequence[Notification] = ()
) -> Report:
    """The machine against the request.

    Raises:
        DoctorError: for an unknown ID, name, family or tag.
    """
    start = time.monotonic()
    checks = registry.select(registry.load("check"), select, ignore)
    asked = replace(asked, start_methods=start_methods(asked, checks, bool(select)))
    facts = snapshot.take(snapshot.needed(checks), asked)
    results = runner.run(checks, facts)
    return Report("check", results, snapshot.plain(facts), tuple(notes), time.monotonic() - start)


def start_methods(asked: Request, checks: Sequence[Check], selected: bool) -> tuple[str, ...]:
    """Under which start methods a DataLoader is tried.

    A worker of spawn imports torch once more, which would double the time of a plain check. So that tries what the
    interpreter does by default; a script, ``--deep`` or a selection tries them all.
    """
    if not any(WorkerFacts in item.needs for item in checks):
        return ()
    return ALL_METHODS if asked.script or asked.deep or selected else ("default",)

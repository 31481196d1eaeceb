"""One preflight: the checks of ``check`` over a request. ``run`` and ``host`` call it, too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch_doctor import config, interpreter, registry, runner, snapshot
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.facts.workers import WorkerFacts
from torch_doctor.model import Check, Notification, Report, in_order

if TYPE_CHECKING:
    from torch_doctor.linting import Linted

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
    return Request(
        script=script,
        requirements=needs or Requirements(),
        timeout=timeout,
        deep=deep,
        python=interpreter.choose(python),
        data=data,
    )


def judge(
    asked: Request, select: Sequence[str] = (), ignore: Sequence[str] = (), notes: Sequence[Notification] = ()
) -> Report:
    """The machine against the request.

    Raises:
        DoctorError: for an unknown ID, name, family or tag.
    """
    start = time.monotonic()
    everything = not select and not ignore
    if everything:
        asked = replace(asked, start_methods=start_methods(asked))
        snapshot.warm(asked)
    chosen = registry.select(registry.load("check", *(["lint"] if asked.script else [])), select, ignore)
    checks = [item for item in chosen if item.command == "check"]
    if any(WorkerFacts in item.needs for item in checks) and not everything:
        asked = replace(asked, start_methods=start_methods(asked, selected=bool(select)))
    facts = snapshot.take(snapshot.needed(checks), asked)
    results = runner.run(checks, facts)
    if asked.script and not notes:  # what cannot be parsed cannot be linted, and was said already
        found = _lint(asked.script, [item for item in chosen if item.command == "lint"])
        results, notes = (*results, *found.results), found.notifications
    return Report("check", tuple(in_order(results)), snapshot.plain(facts), tuple(notes), time.monotonic() - start)


def _lint(script: Path, rules: Sequence[Check]) -> Linted:
    from torch_doctor import linting

    return linting.lint([script], rules, per_file_ignores=config.per_file_ignores(config.load(Path.cwd())))


def start_methods(asked: Request, selected: bool = False) -> tuple[str, ...]:
    """Under which start methods a DataLoader is tried.

    A worker of spawn imports torch once more, which would double the time of a plain check. So that tries what the
    interpreter does by default; a script, ``--deep`` or a selection tries them all.
    """
    return ALL_METHODS if asked.script or asked.deep or selected else ("default",)

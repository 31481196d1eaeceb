"""Runs the lint rules over files: what ``lint`` and ``check SCRIPT`` have in common."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch_doctor import runner, snapshot
from torch_doctor.deep import with_large_stack
from torch_doctor.errors import CannotRun
from torch_doctor.facts.script import MOST_STEPS, Script
from torch_doctor.lint import suppress
from torch_doctor.model import Check, CheckResult, Finding, Location, Notification, Outcome, Severity

Pair = tuple[Check, Finding]
#: files from which on a second process pays for its start, and how many a process takes at once
WORTH_PROCESSES, CHUNK = 100, 16


@dataclass
class Linted:
    """What linting gave: one result per rule over all files, and the files that could not be read."""

    results: tuple[CheckResult, ...]
    notifications: tuple[Notification, ...] = ()
    files: int = 0
    findings: dict[str, list[Pair]] = field(default_factory=dict)  # path -> what was found in it


def lint(
    paths: Iterable[Path],
    checks: Sequence[Check],
    *,
    exclude: Iterable[str] = (),
    per_file_ignores: Mapping[str, Iterable[str]] | None = None,
    jobs: int = 1,
) -> Linted:
    """Judge files and folders by the rules, in ``jobs`` processes where there are many.

    Results and findings come in the same order always.

    Raises:
        DoctorError: for a path that does not exist.
        CannotRun: where a process dies over a file.
    """
    files = snapshot.source_paths(paths, exclude)
    gathered = _Gathered(checks, per_file_ignores or {})
    if jobs > 1 and len(files) >= WORTH_PROCESSES:
        for part in _in_processes(files, checks, per_file_ignores or {}, jobs):
            gathered.merge(part)
    else:
        gathered.read(files)
    return gathered.done()


def _in_processes(
    files: Sequence[Path], checks: Sequence[Check], per_file: Mapping[str, Iterable[str]], jobs: int
) -> Iterator[_Gathered]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    chunks = [files[start : start + CHUNK] for start in range(0, len(files), CHUNK)]
    # fork: the rules are loaded already, and this process has no threads
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        try:
            yield from pool.map(partial(_part, checks=checks, per_file=per_file), chunks)
        except BrokenProcessPool as error:
            raise CannotRun("lint", "a process died over a file", "--jobs 1 shows at which") from error


def _part(files: Sequence[Path], checks: Sequence[Check], per_file: Mapping[str, Iterable[str]]) -> _Gathered:
    gathered = _Gathered(checks, per_file)
    gathered.read(files)
    return gathered


@contextmanager
def _without_collector() -> Iterator[None]:
    # a syntax tree is all live objects: the collector walks them again and again and frees nothing
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unparsed(script: Script) -> Iterator[Notification]:
    for at in script.unparsed:
        place = Location(script.path, at.line, cell=at.cell)
        yield Notification(f"cell {at.cell} cannot be parsed and was left out", place, Severity.NOTE, False)


def _judge(item: Check, script: Script) -> CheckResult:
    result = runner.run_one(item, {Script: script})
    if result.outcome is Outcome.CRASHED and result.reason.startswith(RecursionError.__name__):
        return with_large_stack(lambda: runner.run_one(item, {Script: script}))
    return result


class _Gathered:
    """Results of one rule over many files, put together."""

    def __init__(self, checks: Sequence[Check], per_file: Mapping[str, Iterable[str]]) -> None:
        self.checks = checks
        self.per_file = per_file
        self.files = 0
        self.notifications: list[Notification] = []
        self.found: dict[str, list[Pair]] = {}
        self.crashes: defaultdict[str, list[str]] = defaultdict(list)
        self.duration: defaultdict[str, float] = defaultdict(float)

    def read(self, files: Iterable[Path]) -> None:
        """Judge each of the files."""
        with _without_collector():
            for path in files:
                self.files += 1
                item = snapshot.source(path)
                if isinstance(item, Notification):
                    self.notifications.append(item)
                    continue
                self.notifications += _unparsed(item)
                if item.relevant and item.generated:
                    note = f"has more than {MOST_STEPS} calls of backward(): taken for generated and not analysed"
                    self.notifications.append(Notification(note, Location(item.path)))
                elif item.relevant:
                    self.add(item)

    def merge(self, other: _Gathered) -> None:
        """Take over what another process gathered over other files."""
        self.files += other.files
        self.notifications += other.notifications
        self.found |= other.found
        for id, crashes in other.crashes.items():
            self.crashes[id] += crashes
        for id, duration in other.duration.items():
            self.duration[id] += duration

    def add(self, script: Script) -> None:
        """Judge one file."""
        pairs: list[Pair] = []
        for item in self.checks:
            result = _judge(item, script)
            self.duration[item.id] += result.duration
            pairs += [(item, f) for f in result.findings]
            if result.outcome is Outcome.CRASHED:
                self.crashes[item.id].append(f"{script.path}: {result.reason}")
        notes = suppress.comments(script)
        pairs = suppress.by_configuration(script.path, suppress.apply(script, pairs, notes), self.per_file)
        self.found[script.path] = sorted(pairs, key=_order)
        for note, code in suppress.unused(notes, self.checks):
            what = f"suppression of {code}" if code else "suppression"
            self.notifications.append(
                Notification(f"{what} silences nothing", Location(script.path, note.line), Severity.NOTE, False)
            )
        # the trees of a large tree of files need not stay in memory together
        script.memo.clear()
        script.__dict__.pop("index").release() if "index" in script.__dict__ else None

    def done(self) -> Linted:
        by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
        for path in sorted(self.found):
            for item, found in self.found[path]:
                by_rule[item.id].append(found)
        results = tuple(self._result(item, by_rule[item.id]) for item in sorted(self.checks, key=lambda c: c.id))
        notes = sorted(
            self.notifications, key=lambda n: (n.location.path, n.location.line or 0) if n.location else ("", 0)
        )
        return Linted(results, tuple(notes), self.files, self.found)

    def _result(self, item: Check, findings: list[Finding]) -> CheckResult:
        crashes = self.crashes[item.id]
        if crashes:
            return CheckResult(item, Outcome.CRASHED, tuple(findings), crashes[0], self.duration[item.id])
        return CheckResult(item, runner.outcome_of(findings), tuple(findings), "", self.duration[item.id])


def _order(pair: Pair) -> tuple[int, int, int, str]:
    place = pair[1].location
    return (place.cell or 0, place.line or 0, place.column or 0, pair[0].id) if place else (0, 0, 0, pair[0].id)

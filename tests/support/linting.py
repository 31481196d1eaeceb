"""Lints source text, and reads the corpus of lint cases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from torch_doctor import registry, runner
from torch_doctor.facts.script import Script, parse
from torch_doctor.model import Check, Finding, Outcome
from torch_doctor.probes.launches import docker_run

CORPUS = Path(__file__).parents[1] / "corpus" / "lint"
CHECKS = registry.load("lint")


def lint(source: str, path: str = "train.py") -> list[tuple[Check, Finding]]:
    """What every rule finds in a source; a rule that crashes fails the test.

    A comment ``# docker run ...`` in it stands for a script beside it with that command.
    """
    started = "\n".join(line[2:] for line in source.split("\n") if line.startswith("# docker run"))
    return judge(parse(path, source, launches=tuple(docker_run("run.sh", started, path))))


def judge(script: Script) -> list[tuple[Check, Finding]]:
    """What every rule finds in a script, by line."""
    found = []
    for check in CHECKS:
        result = runner.run_one(check, {Script: script})
        assert result.outcome is not Outcome.CRASHED, f"{check.id}: {result.reason}"
        found += [(check, f) for f in result.findings]
    return sorted(found, key=lambda pair: pair[1].location.line if pair[1].location else 0)


def ids(source: str) -> list[tuple[str, int]]:
    """(rule, line) of every finding."""
    return [(c.id, f.location.line or 0) for c, f in lint(source) if f.location]


@dataclass(frozen=True)
class Case:
    """One snippet of corpus/lint/cases: ``expected`` is (line, rule) of each ``# expect: RULE``."""

    name: str
    source: str
    expected: tuple[tuple[int, str], ...]


def cases() -> list[Case]:
    """Every snippet, in the order of the files."""
    found = []
    for path in sorted((CORPUS / "cases").glob("*.txt")):
        for chunk in re.split(r"^#---- ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, _, source = chunk.partition("\n")
            marks = [(n, re.search(r"# expect: (.*)", line)) for n, line in enumerate(source.split("\n"), 1)]
            expected = tuple((n, rule) for n, mark in marks if mark for rule in mark[1].split())
            found.append(Case(f"{path.stem}: {name}", source, expected))
    return found


SOURCES_OF_CASES = [case.source for case in cases()]

"""Every row of the signature tables: its sample matches, its near miss does not, and the reader keeps both."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from torch_doctor import registry, runner
from torch_doctor.diagnose import benign, reasoning, runs
from torch_doctor.diagnose.cause import CAUSES, Cause, Signature, matches
from torch_doctor.facts.log import LogFacts, MachineFacts, RunFacts
from torch_doctor.model import Report
from torch_doctor.probes.log import read

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

registry.load("explain")
ROWS = [(cause, signature) for cause in CAUSES.values() for signature in cause.signatures]
IDS = [f"{cause.id}-{n}" for cause in CAUSES.values() for n, _ in enumerate(cause.signatures)]
#: needles of rows that judge how figures go on: the head, the tail and a sample of a log are always kept
TRENDS = {"grad", "gnorm", *(f"{name}{mark}" for name in ("loss", "lr") for mark in " :='")}
#: what a training log is made of: more lines than the reader keeps around an alarm
DULL = "".join(f"2026-11-30 09:12:18 INFO trainer - it={i} lr 3.00e-04 {400 + i % 50} img/s\n" for i in range(40))


ANY = "\0"


def texts(pattern: str) -> list[str]:
    """What the pattern matches at the least, a text per branch; a character that may vary is ``ANY``."""
    return branches(parser.parse(pattern.removeprefix("(?i)")))


def branches(items: Any) -> list[str]:
    found = [""]
    for name, value in items:
        found = [text + end for text in found for end in ends(str(name), value)][:600]
    return found


def ends(name: str, value: Any) -> list[str]:
    if name == "LITERAL":
        return [chr(value)]
    if name == "SUBPATTERN":
        return branches(value[-1])
    if name == "BRANCH":
        return [text for branch in value[1] for text in branches(branch)]
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return [*([""] if value[0] == 0 else []), *branches(value[2])]
    if name == "IN" and all(str(kind) == "LITERAL" for kind, _ in value):
        return [chr(char) for _, char in value]
    return [""] if name in ("ASSERT", "ASSERT_NOT", "AT") else [ANY]


def log(text: str) -> LogFacts:
    return read(io.BytesIO(text.encode()), "train.log")


def found(cause: Cause, signature: Signature, text: str) -> bool:
    alone = cause._replace(signatures=(signature,))
    return next(matches(alone, log(text), MachineFacts(), RunFacts()), None) is not None


@pytest.mark.parametrize(("cause", "signature"), ROWS, ids=IDS)
def test_the_sample_is_found(cause: Cause, signature: Signature) -> None:
    assert found(cause, signature, signature.sample)


@pytest.mark.parametrize(("cause", "signature"), ROWS, ids=IDS)
def test_the_near_miss_is_not(cause: Cause, signature: Signature) -> None:
    assert signature.miss
    assert not found(cause, signature, signature.miss)


@pytest.mark.parametrize(("cause", "signature"), ROWS, ids=IDS)
def test_no_branch_of_a_pattern_is_hidden_by_its_needle(cause: Cause, signature: Signature) -> None:
    hidden = [text for text in texts(signature.expression) if not any(n in text for n in signature.needles)]
    assert not hidden


@pytest.mark.parametrize("part", range(8))
def test_the_reader_keeps_each_sample_far_from_anything_alarming(part: int) -> None:
    rows = ROWS[part::8]
    text = DULL * 200 + "".join(f"{signature.sample}\n{DULL}" for _, signature in rows) + DULL * 200
    kept = {line.text for line in log(text).lines}
    assert len(kept) < text.count("\n") / 4
    lost = [
        (cause.id, s.sample) for cause, s in rows if not TRENDS.issuperset(s.needles) and not keeps(kept, s.sample)
    ]
    assert not lost


def keeps(kept: set[str], sample: str) -> bool:
    lines = [line.strip() for line in sample.splitlines() if line.strip()]
    return any(line in text or text in line for line in lines for text in kept if text)


@pytest.mark.parametrize(("cause", "signature"), ROWS, ids=IDS)
def test_a_row_is_complete(cause: Cause, signature: Signature) -> None:
    assert signature.source
    assert re.fullmatch(r"20\d\d-\d\d", signature.seen)
    assert any(n in signature.sample for n in signature.needles) or signature.pattern
    for pattern in (signature.pattern, *signature.also, *signature.unless):
        re.compile(pattern)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=list(CAUSES))
def test_a_cause_is_complete(cause: Cause) -> None:
    assert cause.message and not cause.message.endswith(".")
    assert cause.remedy.text and not cause.remedy.text.endswith(".")
    assert "\n" not in cause.message + cause.remedy.text
    assert cause.why
    known = {c.id for c in registry.load("explain")}
    assert all(any(k.startswith(prefix) for k in known) for prefix in cause.explains), cause.explains
    assert set(cause.alternatives) <= known


def findings_of_samples() -> Iterator[tuple[str, str]]:
    for cause, signature in ROWS:
        check = next(c for c in registry.load("explain") if c.id == cause.id)
        for finding in check.function(log(signature.sample), MachineFacts(), RunFacts()):
            yield cause.id, f"{finding.message} | {finding.remediation.text}"


def findings_of_branches() -> Iterator[tuple[str, str]]:
    for cause, signature in ROWS:
        check = next(c for c in registry.load("explain") if c.id == cause.id)
        for least in texts(signature.expression)[:80]:
            text = next((t for c in "x1/" if re.search(signature.expression, t := least.replace(ANY, c), re.M)), "")
            for finding in check.function(log(f"{text}\n"), MachineFacts(), RunFacts()):
                yield cause.id, f"{finding.message} | {' | '.join(finding.remediation.commands)}"


#: what stands in a message for a group that the wording lacks
HOLE = re.compile(r"(?:^|\s)\? |\(\?\)")


def test_no_message_has_a_hole() -> None:
    holes = [(id, text) for id, text in findings_of_samples() if re.search(r"\? |\{[a-z_]+\}|\[\[|  ", text)]
    assert not holes


def test_no_wording_of_a_pattern_leaves_a_hole() -> None:
    holes = [(id, part) for id, text in findings_of_branches() for part in text.split(" | ") if HOLE.search(part)]
    assert holes == []


#: rows whose sample tells of another cause first, which holds for the whole text
ANOTHER_FIRST = {"GPU212-5": "CKP207", "HDF207-1": "HDF201"}


def root_of(text: str) -> str:
    run = runs.last_run(benign.without_benign(log(text))).log
    facts = {LogFacts: run, MachineFacts: MachineFacts(), RunFacts: RunFacts()}
    results = reasoning.arrange(runner.run(registry.load("explain"), facts), run, RunFacts())
    found = Report("explain", results).findings()
    return found[0][0].id if found else ""


@pytest.mark.parametrize("part", range(8))
def test_the_sample_leads_to_its_own_cause(part: int) -> None:
    rows = list(zip(ROWS, IDS, strict=True))[part::8]
    wrong = {name: root_of(s.sample) for (c, s), name in rows if root_of(s.sample) != ANOTHER_FIRST.get(name, c.id)}
    assert not wrong

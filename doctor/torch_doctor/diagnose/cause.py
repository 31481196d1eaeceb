"""What a cause is made of: rows of data, from which the registered checks are built."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from torch_doctor import registry
from torch_doctor.facts.log import LogFacts, MachineFacts, RunFacts
from torch_doctor.model import Finding, Location, Remediation, Severity

#: a fault that ends a run; a fault that degrades it while it goes on; a text that leaves several causes open;
#: a text that only repeats what another one says
FATAL, DEGRADED, VAGUE, ECHO = "fatal", "degraded", "vague", "echo"
#: a warning in the log that is worth a word, and never ends a run
HINT = "hint"
#: something failed, and no signature knows it
UNKNOWN = "unknown"


class Signature(NamedTuple):  # hundreds are made at each start: half the time of a dataclass
    """One wording of a fault.

    Args:
        needle: plain text that each match holds, or several texts of which each match holds one; cheap to look for.
        sample: a real line (or lines) that matches.
        miss: the nearest thing that must not match.
        pattern: expression over the run's text, ``^`` and ``$`` at lines; the needle itself where empty. Named
            groups fill the message.
        also: expressions of which each must be somewhere in the run.
        unless: expressions of which none may be in the run.
        source: where the wording was seen, with the version; ``seen`` is when that was checked.
    """

    needle: str | tuple[str, ...]
    sample: str
    miss: str
    pattern: str = ""
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    source: str = ""
    seen: str = "2026-11"

    @property
    def needles(self) -> tuple[str, ...]:
        """The needle, as a tuple."""
        return (self.needle,) if isinstance(self.needle, str) else self.needle

    @property
    def expression(self) -> str:
        """The pattern, or what finds the needle itself."""
        return self.pattern or "|".join(map(re.escape, self.needles))


@dataclass(frozen=True)
class Seen:
    """A signature that was found, with all that a cause may look at to judge it."""

    signature: Signature
    groups: Mapping[str, str]
    index: int  # of the line in log.lines
    end: int  # of the last line of the match
    log: LogFacts
    machine: MachineFacts
    run: RunFacts

    def has(self, pattern: str) -> bool:
        """True where the run holds the pattern."""
        return self.log.search(pattern)

    @property
    def oom_kills(self) -> int | None:
        """Kills that the memory cgroup counted, in the session or on the machine; None where nobody looked."""
        if self.run.oom_kills is not None:
            return self.run.oom_kills
        counted = self.machine.number("memory.oom_kills")
        return None if counted is None else int(counted)

    def find(self, pattern: str) -> re.Match[str] | None:
        """The first place of the pattern in the run."""
        return _compiled(pattern).search(self.log.text)

    def told(self, pattern: str) -> re.Match[str] | None:
        """The pattern in the run, or else before it: what df, ulimit or quota say of the machine holds for both."""
        earlier = self.log.earlier
        return self.find(pattern) or (_compiled(pattern).search(earlier.text) if earlier is not None else None)

    def near(self, pattern: str, before: int = 30, after: int = 30) -> re.Match[str] | None:
        """The pattern within so many kept lines of the match."""
        first = max(0, self.index - before)
        text = "\n".join(line.text for line in self.log.lines[first : self.end + after + 1])
        return _compiled(pattern).search(text)


@dataclass(frozen=True)
class Verdict:
    """What ``judge`` makes of a match: the words, and how sure they are."""

    message: str
    remedy: Remediation
    kind: str = FATAL
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Cause(NamedTuple):
    """One root cause, with every wording that tells of it.

    Args:
        id: 2xx with the subject's prefix. name: the fault in kebab-case.
        summary: one line; the first of the documentation.
        why: what happens, and why the text misleads.
        message: one line of what was found; ``{name}`` is a group of the signature, and
            ``[[...{name}...]]`` goes where the signature has no such group.
        remedy: what mends it; commands hold ``{name}`` too.
        kind: FATAL, DEGRADED, VAGUE, ECHO or HINT.
        explains: IDs (or prefixes of them) that are consequences where this one is found.
        decide: the one command that tells it from the other causes of the same text.
        alternatives: other causes of the same text, likeliest first.
        judge: reads numbers and facts, and gives the verdict; None where the match is no fault after all.
        references: where this is known from.
    """

    id: str
    name: str
    summary: str
    why: str
    message: str
    remedy: Remediation
    signatures: tuple[Signature, ...]
    kind: str = FATAL
    explains: tuple[str, ...] = ()
    decide: str = ""
    alternatives: tuple[str, ...] = ()
    judge: Callable[[Seen, Verdict], Verdict | None] | None = None
    references: str = ""


#: a group of this name says that the whole log is judged: one place is enough
TREND = "trend"
#: of the places where a cause is found, so many from the start of the run and from its end are looked at
FIRST, LAST = 24, 24
#: of the places of a needle, so many from the start and from the end are looked at
PLACES = 100
#: lines around the needle in which an expression of several lines may match
NEIGHBOURS = 48
#: lines over which one message may be broken (HDF5 puts a line end after the time)
MESSAGE = 2
#: every registered cause by its ID
CAUSES: dict[str, Cause] = {}


def register(*causes: Cause) -> None:
    """Build a check from each cause and add it to the registry."""
    for cause in causes:
        CAUSES[cause.id] = cause
        registry.add(registry.build(cause.id, cause.name, _check(cause), tags={cause.kind}, doc=partial(_doc, cause)))


def _check(cause: Cause) -> Callable[..., Iterable[Finding]]:
    def judge(log: LogFacts, machine: MachineFacts, run: RunFacts) -> Iterable[Finding]:
        return _findings(cause, log, machine, run) if _may_hold(cause, log) else ()

    return judge


def _may_hold(cause: Cause, log: LogFacts) -> bool:
    # asked of every cause, and nearly always in vain: plain loops
    for signature in cause.signatures:
        for needle in signature.needles:
            if log.may_hold(needle):
                return True
    return False


def _findings(cause: Cause, log: LogFacts, machine: MachineFacts, run: RunFacts) -> Iterator[Finding]:
    places = sorted(matches(cause, log, machine, run), key=lambda seen: seen.index)
    for seen in (*places[:FIRST], *places[FIRST:][-LAST:]):
        found = _finding(cause, seen)
        if found is not None:
            yield found


def matches(cause: Cause, log: LogFacts, machine: MachineFacts, run: RunFacts) -> Iterator[Seen]:
    """Each place in the log where a signature of the cause is found, by signature, then by place."""
    text = log.text
    for signature in cause.signatures:
        if not any(needle in text for needle in signature.needles):
            continue
        if not all(log.search(p) for p in signature.also) or any(log.search(p) for p in signature.unless):
            continue
        for match in _found(_compiled(signature.expression), signature, log):
            groups = {k: v for k, v in match.groupdict().items() if v is not None}
            start = match.end() - len(match[0].lstrip())  # a pattern may begin with the end of the line before
            first, last = log.index_at(start), log.index_at(max(start, match.end() - 1))
            yield Seen(signature, groups, first, last, log, machine, run)
            if TREND in groups:
                break


def _found(pattern: re.Pattern[str], signature: Signature, log: LogFacts) -> Iterator[re.Match[str]]:
    """The matches near the needle: an expression never runs over the whole of a large log."""
    several = any("\n" in needle for needle in signature.needles) or r"\n" in signature.pattern.replace(r"[^\n]", "")
    lines = NEIGHBOURS if several else MESSAGE
    done = -1
    for position in sorted({place for needle in signature.needles for place in _places(needle, log.text)}):
        if position < done:
            continue
        first, last = log.around(position, lines)
        for match in pattern.finditer(log.text, max(first, done, 0), last):
            done = max(done, match.end())
            yield match
        done = max(done, min(last, log.around(position, 0)[1]))


def _places(needle: str, text: str) -> list[int]:
    """Where the needle stands: the first places and the last ones, where there are very many."""
    found: list[int] = []
    position = text.find(needle)
    while position >= 0 and len(found) < PLACES:
        found.append(position)
        position = text.find(needle, position + len(needle))
    late: list[int] = []
    end = len(text)
    while position >= 0 and len(late) < PLACES:
        end = text.rfind(needle, position, end)
        if end < 0:
            break
        late.append(end)
    return [*found, *reversed(late)]


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def _finding(cause: Cause, seen: Seen) -> Finding | None:
    words = _Blank(seen.groups)
    remedy = Remediation(_filled(cause.remedy.text, words), tuple(_filled(c, words) for c in cause.remedy.commands))
    plain = Verdict(_filled(cause.message, words), remedy, cause.kind)
    verdict = cause.judge(seen, plain) if cause.judge is not None else plain
    if verdict is None:
        return None
    line = seen.log.lines[seen.index]
    evidence: dict[str, Any] = {
        "line": line.number,
        "text": [x.text for x in seen.log.lines[seen.index : seen.end + 1]][:8],
    }
    if line.rank is not None:
        evidence["rank"] = line.rank
    if line.source:
        evidence["source"] = line.source
    evidence.update(verdict.evidence)
    if cause.decide:
        evidence["decide_with"] = _filled(cause.decide, words)
    return Finding(
        Severity.ERROR,
        verdict.message,
        verdict.remedy,
        evidence | {"kind": verdict.kind, "signature": cause.signatures.index(seen.signature)},
        Location(seen.log.path, line.number, snippet=line.text.strip()[:240]),
    )


def _filled(text: str, words: Mapping[str, str]) -> str:
    # only {word} is filled: remedies hold braces of shells and Python, too;
    # [[...{word}...]] goes where the word is unknown
    if "{" not in text:
        return text
    text = re.sub(r"\[\[(.*?)\]\]", lambda m: m[1] if _known(m[1], words) else "", text)
    return re.sub(r"\{([a-z_]+)\}", lambda m: words[m[1]].strip(), text)


def _known(text: str, words: Mapping[str, str]) -> bool:
    return all(name in words and words[name].strip() for name in re.findall(r"\{([a-z_]+)\}", text))


def _doc(cause: Cause) -> str:
    samples = "\n".join(
        f"    {line.expandtabs()}" for s in cause.signatures[:3] for line in s.sample.splitlines()[:3]
    )
    commands = "".join(f"\n    {c}" for c in cause.remedy.commands)
    sources = sorted({s.source for s in cause.signatures if s.source})
    references = (
        "\n".join(f"    {r}" for r in filter(None, [cause.references, *sources])) or "    the library's own text"
    )
    wordings = f"The log of a run, for {len(cause.signatures)} wording(s) of this fault."
    return (
        f"{cause.summary}\n\nWhat it checks:\n    {wordings}\nWhy it matters:\n    {cause.why}\n"
        f"Example:\n{samples}\nFix:\n    {cause.remedy.text}{commands}\nReferences:\n{references}\n"
    )


def with_message(verdict: Verdict, message: str, remedy: Remediation | None = None, **evidence: Any) -> Verdict:
    """The verdict with other words, and more evidence."""
    return replace(
        verdict, message=message, remedy=remedy or verdict.remedy, evidence={**verdict.evidence, **evidence}
    )

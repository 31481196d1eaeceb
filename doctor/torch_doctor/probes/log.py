"""Reads a log of any size in constant memory, and keeps the lines that can matter.

Training logs repeat themselves: without digits, a hundred thousand progress lines are one. A block is therefore
reduced to the set of its lines without digits; only a shape that was not seen before is looked at, and only a block
that holds an alarming shape is taken apart.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from torch_doctor.facts.alarms import alarming
from torch_doctor.facts.log import RUN_START, Line, LogFacts, MachineFacts
from torch_doctor.facts.logline import clean
from torch_doctor.facts.request import Request
from torch_doctor.model import ProbeFailure

BLOCK_BYTES = 1 << 16  # from 128 KiB on, the allocator maps each block anew
#: a longer line is cut: nothing that explains a crash stands that far to the right
LINE_BYTES = 1 << 13
HEAD_LINES, TAIL_LINES, SAMPLE_LINES = 64, 160, 128
BEFORE_LINES, AFTER_LINES = 6, 14
#: of one shape of line, this many are kept at the start of a run, and as many at its end
SAME_SHAPE = 48
#: shapes remembered, and lines kept: what makes the memory constant
SHAPES, KEPT_LINES, KEPT_BYTES = 1 << 15, 6000, 2 << 20

TAIL_BYTES = 1 << 14
RECENT = 4 * SAME_SHAPE
#: what a line that starts a run holds, or begins with: tested before the expression
RUN_WORDS, RUN_SIGNS = b"start", (b"-", b"=", b"#", b"*", b"~", b"+", b"$", b">", b"[", b"t")

_TO_NEWLINE = bytes.maketrans(b"\r", b"\n")
#: bytes that no text holds; of a file that is no text they are a tenth. NUL is not one of them: a log that was
#: truncated under its writer begins with a hole of them
_NO_TEXT = bytes({*range(1, 32), 127} - set(b"\t\n\r\b\f\x1b"))
NO_TEXT_SHARE = 0.04
#: what a shape leaves out: numbers and hexadecimal names (hashes, addresses)
_DIGITS = b"0123456789abcdef.-+ "


def probe(request: Request) -> LogFacts | ProbeFailure:
    """The log that the user named; ``-`` is standard input."""
    if request.log is None:
        return ProbeFailure("no log was named")
    if str(request.log) == "-":
        return read(sys.stdin.buffer, "<stdin>")
    with request.log.open("rb") as stream:
        if request.log_offset:
            stream.seek(request.log_offset)
        return read(stream, str(request.log))


def read(stream: BinaryIO, path: str) -> LogFacts | ProbeFailure:
    """One pass over ``stream``. Compressed (gzip) and UTF-16 logs are read as what they hold."""
    reader = _Reader()
    for block in _blocks(_decoded(stream)):
        if not reader.size and not _is_text(block):
            return ProbeFailure("is no log: it holds bytes that no text has")
        reader.feed(block)
    return reader.facts(path)


def _is_text(block: bytes) -> bool:
    bare = block.translate(None, b"\0")
    return len(bare) - len(bare.translate(None, _NO_TEXT)) <= NO_TEXT_SHARE * len(bare)


def _decoded(stream: BinaryIO) -> Callable[[int], bytes]:
    start = stream.read(BLOCK_BYTES)
    rest: Callable[[int], bytes] = stream.read
    if start[:2] == b"\x1f\x8b":
        import gzip

        packed = gzip.GzipFile(fileobj=io.BufferedReader(_Joined(start, rest)))
        return _forgiving(packed.read)
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        return _first(decoder.decode(start).encode(), lambda size: decoder.decode(rest(size)).encode())
    return _first(start.removeprefix(codecs.BOM_UTF8), rest)


def _first(start: bytes, rest: Callable[[int], bytes]) -> Callable[[int], bytes]:
    waiting = [start]
    return lambda size: waiting.pop() if waiting else rest(size)


def _forgiving(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def one(size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, OSError):  # the archive is cut or damaged: what was read before it counts
            return b""

    return one


class _Joined(io.RawIOBase):
    """A stream whose start was read already."""

    def __init__(self, start: bytes, rest: Callable[[int], bytes]) -> None:
        self._start, self._rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._start or self._rest(len(buffer))
        taken, self._start = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def _blocks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Whole lines, a block at a time; a line without an end comes in pieces of a block."""
    carry = b""
    while data := read(BLOCK_BYTES):
        data = carry + data
        end = data.rfind(b"\n") + 1
        if not end:
            end = data.rfind(b"\r") + 1 or (len(data) if len(data) > BLOCK_BYTES else 0)
        carry = data[end:]
        if end:
            yield data[:end]
    if carry:
        yield carry


class _Reader:
    """Takes blocks of whole lines. A line's place is how many pieces came before it."""

    def __init__(self) -> None:
        self.size = 0
        self.number = 1  # of the next line in the file
        self.place = 0
        self.dull: set[bytes] = set()
        self.loud: set[bytes] = set()
        self.kept = _Kept()
        self.before: deque[tuple[int, int, bytes]] = deque(maxlen=TAIL_LINES)
        self.after = 0  # lines still to keep after the last alarm
        self.blocks = 0
        self.passed: tuple[bytes, int, int, int] | None = None  # the last dull block, not taken apart yet
        self.ended = True

    def feed(self, block: bytes) -> None:
        shapes = block.translate(_TO_NEWLINE, _DIGITS).split(b"\n")
        if shapes[-1] == b"":
            shapes.pop()
        new = set(shapes) - self.dull
        if new - self.loud:
            self._learn(block, shapes, new)
        if self.blocks == 0 or self.after or not self.loud.isdisjoint(new):
            self._take(block, shapes)
        else:
            self._pass_by(block, len(shapes))
        self.number += block.count(b"\n") if b"\r" in block else len(shapes) - (not block.endswith(b"\n"))
        self.place += len(shapes)
        self.size += len(block)
        self.ended = block.endswith(b"\n")
        self.blocks += 1

    def _learn(self, block: bytes, shapes: list[bytes], new: set[bytes]) -> None:
        """Sort shapes that were not seen before into dull and loud ones, by the first line that has each."""
        for known in (self.dull, self.loud):
            if len(known) > SHAPES:
                known.clear()
        unknown = new - self.loud
        lines = dict(zip(reversed(shapes), reversed(_lines(block)), strict=False))
        ordered = list(unknown)
        alarms = alarming([lines[shape][:LINE_BYTES] for shape in ordered])
        for i, shape in enumerate(ordered):
            (self.loud if i in alarms else self.dull).add(shape)

    def _take(self, block: bytes, shapes: list[bytes]) -> None:
        """Keep the loud lines of a block with those around them, and the head of the file."""
        self._remember()
        raws = _lines(block)
        numbers = self._numbers(block, len(raws))
        start = HEAD_LINES if self.blocks == 0 else self.after
        done = min(start, len(raws))
        for i in range(done):
            self.kept.add(self.place + i, numbers[i], raws[i])
        self.after = max(0, self.after - len(raws))
        loud = self.loud
        for i in [i for i, shape in enumerate(shapes) if shape in loud]:
            if not self.kept.alarm(self.place + i, numbers[i], raws[i], shapes[i]):
                continue
            if i < BEFORE_LINES:
                for place in list(self.before)[i - BEFORE_LINES :]:
                    self.kept.add(*place)
            end = i + AFTER_LINES + 1
            for k in range(max(done, i - BEFORE_LINES), min(end, len(raws))):
                self.kept.add(self.place + k, numbers[k], raws[k])
            done = max(done, min(end, len(raws)))
            self.after = max(0, end - len(raws))
        first = max(0, len(raws) - TAIL_LINES)
        self.before.extend((self.place + k, numbers[k], raws[k][:LINE_BYTES]) for k in range(first, len(raws)))

    def _numbers(self, block: bytes, count: int) -> Sequence[int]:
        if b"\r" not in block:
            return range(self.number, self.number + count)
        lines = block.split(b"\n")
        return [self.number + k for k, line in enumerate(lines) for _ in range(line.count(b"\r") + 1)]

    def _pass_by(self, block: bytes, count: int) -> None:
        """A dull block: its end is kept in mind for what may come after it, and its last line as a sample."""
        self.passed = (block, count, self.number, self.place)
        if self.blocks % self.kept.every == 0:
            self.kept.sample(self._ends(1)[0])

    def _remember(self) -> None:
        """Take the end of the last dull block apart."""
        self.before.extend(self._ends(TAIL_LINES))
        self.passed = None

    def _ends(self, most: int) -> list[tuple[int, int, bytes]]:
        """The last lines of the last dull block, each with its place and number."""
        if self.passed is None:
            return []
        block, count, number, place = self.passed
        tail = _lines(block[-TAIL_BYTES if most > 1 else -LINE_BYTES :])[-most:]
        ends = block.count(b"\n") if b"\r" in block else count - (not block.endswith(b"\n"))
        last = number + ends - block.endswith(b"\n")
        return [
            (place + count - 1 + k, max(1, last + k), raw[:LINE_BYTES]) for k, raw in enumerate(tail, 1 - len(tail))
        ]

    def facts(self, path: str) -> LogFacts:
        self._remember()
        for place in self.before:
            self.kept.add(*place)
        lines, alarms = self.kept.lines()
        return LogFacts(path, self.size, self.number - 1 + (not self.ended), lines, alarms, not self.ended)


def _lines(block: bytes) -> list[bytes]:
    lines = block.translate(_TO_NEWLINE).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return lines


class _Kept:
    """The lines that stay, by their place: bounded whatever the log holds."""

    def __init__(self) -> None:
        self.by_place: dict[int, tuple[int, bytes]] = {}
        self.alarms: set[int] = set()
        self.seen: dict[bytes, int] = {}
        self.recent: deque[int] = deque()
        self.samples: list[int] = []
        self.every = 1
        self.bytes = 0

    def add(self, place: int, number: int, raw: bytes) -> None:
        if place not in self.by_place:
            self.by_place[place] = (number, raw[:LINE_BYTES])
            self.bytes += min(len(raw), LINE_BYTES)
            if len(self.by_place) > KEPT_LINES or self.bytes > KEPT_BYTES:
                self._shrink()

    def alarm(self, place: int, number: int, raw: bytes, shape: bytes) -> bool:
        """Keep an alarming line; False where its shape was seen so often that its surroundings add nothing."""
        if (RUN_WORDS in raw or raw[:1] in RUN_SIGNS) and RUN_START.search(raw[:200].decode("utf-8", "replace")):
            self.seen.clear()
        if len(self.seen) > SHAPES:
            self.seen.clear()
        times = self.seen[shape] = self.seen.get(shape, 0) + 1
        self.add(place, number, raw)
        self.alarms.add(place)
        if times <= SAME_SHAPE:
            return True
        self.recent.append(place)
        if len(self.recent) > RECENT:
            gone = self.recent.popleft()
            self.by_place.pop(gone, None)
            self.alarms.discard(gone)
        return False

    def sample(self, line: tuple[int, int, bytes]) -> None:
        """Keep a line of a dull block; every second one goes when there are too many."""
        self.add(*line)
        self.samples.append(line[0])
        if len(self.samples) > SAMPLE_LINES:
            self.every *= 2
            for gone in self.samples[1::2]:
                self.by_place.pop(gone, None)
            self.samples = self.samples[::2]

    def _shrink(self) -> None:
        # the head says what ran, the newest lines how it ended: the middle goes
        order = sorted(self.by_place)
        for gone in order[len(order) // 3 : len(order) * 2 // 3]:
            del self.by_place[gone]
            self.alarms.discard(gone)
        self.bytes = sum(len(raw) for _, raw in self.by_place.values())

    def lines(self) -> tuple[tuple[Line, ...], frozenset[int]]:
        lines: list[Line] = []
        alarms: set[int] = set()
        last = 0
        for place in sorted(self.by_place):
            number, raw = self.by_place[place]
            if number == last and not raw.strip():
                continue  # what stands between a carriage return and its line feed
            last = number
            for line in clean(number, raw):
                if place in self.alarms:
                    alarms.add(len(lines))
                lines.append(line)
        return tuple(lines), frozenset(alarms)


def machine(request: Request) -> MachineFacts | ProbeFailure:
    """The facts in the JSON report that the user gave."""
    if request.facts is None:
        return ProbeFailure("no facts were given")
    try:
        report = json.loads(request.facts.read_text(encoding="utf-8"))
    except ValueError as error:
        return ProbeFailure(f"is no JSON: {error}")
    values = report.get("facts", report) if isinstance(report, dict) else None
    if not isinstance(values, dict):
        return ProbeFailure("is no report of torch-doctor check --format json")
    return MachineFacts(values, str(request.facts))


PROBES = {LogFacts: probe, MachineFacts: machine}

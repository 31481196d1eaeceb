"""The reader: constant memory, any bytes, every prefix that engines and launchers put on a line."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from torch_doctor.facts.log import LogFacts
from torch_doctor.probes.log import AFTER_LINES, BEFORE_LINES, BLOCK_BYTES, KEPT_LINES, read

ERROR = "RuntimeError: DataLoader worker (pid 325) is killed by signal: Killed."


def log(text: str | bytes) -> LogFacts:
    return read(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "train.log")


def dull(lines: int, start: int = 0) -> str:
    return "".join(f"it={i} lr 3.00e-04 {400 + i % 50} img/s\n" for i in range(start, start + lines))


@pytest.mark.parametrize(
    ("raw", "text", "rank", "source"),
    [
        (f"[rank3]: {ERROR}", ERROR, 3, ""),
        (f"[rank 3]: {ERROR}", ERROR, 3, ""),
        (f"2026-11-30 10:00:00,123 - trainer - ERROR - {ERROR}", ERROR, None, ""),
        ('[rank3]:   File "/app/train.py", line 3, in main', '  File "/app/train.py", line 3, in main', 3, ""),
        (f"[default2]:{ERROR}", ERROR, 2, ""),
        (f"12: {ERROR}", ERROR, 12, ""),
        (f"[1,5]<stderr>:{ERROR}", ERROR, 5, ""),
        (f"trainer-1  | {ERROR}", ERROR, None, "trainer-1"),
        (f"[pod/train-0/main] {ERROR}", ERROR, None, "train-0/main"),
        (f"2026-11-30T09:12:07.123456789Z {ERROR}", ERROR, None, ""),
        (f"2026-11-30T09:12:07.123456789Z stderr F {ERROR}", ERROR, None, ""),
        (f"2026-11-30T09:12:07+01:00 [rank1]: {ERROR}", ERROR, 1, ""),
        (f"Nov 30 09:12:02 node7 python[4242]: {ERROR}", ERROR, None, "node7"),
        (f"2026-11-30T09:12:02+0100 node7 train[4242]: {ERROR}", ERROR, None, "node7"),
        (f"[prterun-node1-77@1,3]<stderr>: {ERROR}", ERROR, 3, ""),
        (f"[trainer4]:{ERROR}", ERROR, 4, ""),
        (f"Rank 2: {ERROR}", ERROR, 2, ""),
        (f"node02: {ERROR}", ERROR, None, "node02"),
        (f"E       {ERROR}", ERROR, None, ""),
        (f"    | {ERROR}", ERROR, None, ""),
        (f"E1101 10:00:05.000000 140 train.py:90] {ERROR}", ERROR, None, ""),
        (f"2026-11-30 10:00:00.111 | ERROR    | train:main:88 - {ERROR}", ERROR, None, ""),
        (f"[2] {ERROR}", ERROR, 2, ""),
        (f"[80851] {ERROR}", ERROR, None, ""),
        (f"> [rank5]: {ERROR}", ERROR, 5, ""),
        ("Epoch 5:  21%|██        | 21/100 [00:10<00:39,  2.00it/s]Killed", "Killed", None, ""),
        (f"ValueError: {ERROR}", f"ValueError: {ERROR}", None, ""),
        (f"(train pid=4242, ip=10.0.0.2) {ERROR}", ERROR, None, "train pid=4242, ip=10.0.0.2"),
        (f"\x1b[1;31m{ERROR}\x1b[0m\r", ERROR, None, ""),
        (f"\x1b]0;title\x07{ERROR}", ERROR, None, ""),
        (f" 40%|####      | 4/10 [00:01<00:02]\r{ERROR}", ERROR, None, ""),
        (json.dumps({"log": f"{ERROR}\n", "stream": "stderr", "time": "2026-11-30T09:12:07Z"}), ERROR, None, ""),
        ("step 10 | loss 2.1", "step 10 | loss 2.1", None, ""),
        ("404: Not Found error", "Not Found error", 404, ""),
    ],
)
def test_prefixes_are_taken_off(raw: str, text: str, rank: int | None, source: str) -> None:
    line = log(raw + "\n").lines[-1]
    assert (line.text, line.rank, line.source) == (text, rank, source)


def test_a_structured_record_gives_its_traceback_as_lines() -> None:
    record = {
        "ts": 1,
        "msg": "failed",
        "exc_info": 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3',
    }
    found = log(json.dumps(record) + "\n").lines
    assert [line.text for line in found] == [
        "failed",
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        "KeyError: 3",
    ]
    assert {line.number for line in found} == {1}


def test_a_record_inside_of_an_engine_s_record_is_read_too() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3'
    record = json.dumps({"level": "error", "err": {"stack": trace}})
    found = log(
        json.dumps({"log": record + "\n", "stream": "stderr"}) + "\n" + f"2026-11-30T09:12:07Z stderr F {record}\n"
    )
    assert [line.text for line in found.lines] == trace.split("\n") * 2


def test_line_numbers_are_those_of_the_file() -> None:
    text = dull(40000) + ERROR + "\n" + dull(40000)
    assert len(text) > 6 * BLOCK_BYTES
    found = [line for line in log(text).lines if line.text == ERROR]
    assert [line.number for line in found] == [40001]


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
def test_line_numbers_hold_with_carriage_returns(newline: str) -> None:
    bar = "".join(f"\r{i:3d}%|###  | {i}/100 [00:01<00:02, 1.9it/s]" for i in range(100))
    text = newline.join([*(f"it={i}" for i in range(3000)), bar, ERROR, *(f"it={i}" for i in range(3000))])
    facts = log(text)
    assert [line.number for line in facts.lines if line.text == ERROR] == [3002]
    assert facts.lines_total == 6002


def test_the_surroundings_of_an_alarm_are_kept() -> None:
    numbers = {line.number for line in log(dull(30000) + ERROR + "\n" + dull(30000)).lines}
    assert set(range(30001 - BEFORE_LINES, 30001 + AFTER_LINES + 1)) <= numbers
    assert 30001 + AFTER_LINES + 40 not in numbers


@pytest.mark.parametrize("offset", range(-3, 4))
def test_surroundings_reach_over_the_edge_of_a_block(offset: int) -> None:
    line = "x" * 63 + "\n"
    before = BLOCK_BYTES // 64 + offset
    numbers = {n.number for n in log(line * before + ERROR + "\n" + line * 20000).lines}
    assert {before - 2, before - 1, before, before + 1, before + 2, before + 3} <= numbers


def test_head_and_tail_are_kept_and_a_cut_end_is_told() -> None:
    facts = log(dull(60000) + "the end is cu")
    assert facts.lines[0].text.startswith("it=0 ")
    assert facts.lines[-1].text == "the end is cu"
    assert facts.cut
    assert not log("whole\n").cut


def test_bytes_that_are_no_text_stop_nothing() -> None:
    facts = log(b"\xff\xfe\x00bad".replace(b"\xff\xfe", b"\x80\x81") + b"\n" + ERROR.encode() + b"\n\x00\x00\xc3\n")
    assert ERROR in [line.text for line in facts.lines]


def test_gzip_and_utf16_are_read_as_what_they_hold() -> None:
    text = dull(20000) + ERROR + "\n"
    packed = gzip.compress(text.encode())
    assert log(packed).lines[-1].text == ERROR
    assert log(text.encode("utf-16")).lines[-1].text == ERROR
    assert log(packed[: len(packed) // 2]).lines_total > 100


def test_a_line_without_an_end_is_bounded() -> None:
    facts = log(b"x" * (8 * BLOCK_BYTES) + b"\n" + ERROR.encode() + b"\n")
    assert facts.lines[-1].text == ERROR
    assert max(len(line.text) for line in facts.lines) <= 1 << 13


class Endless(io.RawIOBase):
    """A log of so many bytes that is never whole in memory."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def read(self, size: int = -1) -> bytes:
        return next(self._chunks, b"")


@pytest.mark.parametrize("kind", ["repeated", "every line new", "every line an error"])
def test_memory_is_constant(kind: str) -> None:
    def chunks() -> Iterator[bytes]:
        for i in range(16):
            if kind == "repeated":
                yield dull(20000, i * 20000).encode()
            elif kind == "every line new":
                yield "".join(f"sha {hash((i, k)):x} {hash((k, i)):o} name\n" for k in range(15000)).encode()
            else:
                yield "".join(f"ERROR worker {hash((i, k)):x} failed: timeout\n" for k in range(15000)).encode()

    tracemalloc.start()
    facts = read(Endless(chunks()), "train.log")  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert facts.size_bytes > 6 << 20
    assert len(facts.lines) <= KEPT_LINES + 200
    assert peak < 40 << 20


def test_the_first_and_the_last_of_many_same_errors_are_kept() -> None:
    lines = [f"[rank{i % 8}]: ERROR step {i} failed" for i in range(5000)]
    found = [line.text for line in log("\n".join(lines)).lines if "ERROR" in line.text]
    assert found[0] == "ERROR step 0 failed"
    assert found[-1] == "ERROR step 4999 failed"
    assert len(found) < 2000

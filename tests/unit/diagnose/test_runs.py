"""Which run of a file is meant, and whether it went on."""

from __future__ import annotations

import io

import pytest

from torch_doctor.diagnose import runs
from torch_doctor.diagnose.benign import BENIGN, without_benign
from torch_doctor.facts.log import LogFacts
from torch_doctor.probes.log import read

TRACE = "Traceback (most recent call last):\nRuntimeError: first\n"


def log(text: str) -> LogFacts:
    return read(io.BytesIO(text.encode()), "train.log")


def steps(first: int, last: int) -> str:
    return "".join(f"epoch 0 step {i} loss 2.{i}\n" for i in range(first, last))


@pytest.mark.parametrize(
    "header",
    [
        "--- restart ---",
        "=== run 2 ===",
        "$ python train.py",
        "root@0a1b2c:/workspace# torchrun --standalone train.py",
        "+ CUDA_VISIBLE_DEVICES=0 python3 train.py --lr 1e-3",
        "[torch-doctor] run exp1 started",
    ],
)
def test_the_last_run_is_meant(header: str) -> None:
    run = runs.last_run(log(steps(0, 3) + TRACE + header + "\n" + steps(0, 3) + "RuntimeError: second\n"))
    assert run.number == 2
    assert "second" in run.log.text
    assert "first" not in run.log.text
    assert run.log.earlier is not None
    assert "first" in run.log.earlier.text


def test_a_run_that_has_barely_started_says_nothing_yet() -> None:
    assert "first" in runs.last_run(log(steps(0, 3) + TRACE + "$ python train.py\n")).log.text


def test_steps_that_count_from_the_start_again_are_a_new_run() -> None:
    run = runs.last_run(log(steps(0, 9) + TRACE + steps(0, 9)))
    assert run.number == 2
    assert "first" not in run.log.text


def test_steps_that_go_on_are_the_same_run() -> None:
    assert runs.last_run(log(steps(0, 9) + TRACE + steps(9, 12))).number == 1


@pytest.mark.parametrize(
    ("end", "done"),
    [
        ("Training complete\n", True),
        ("`Trainer.fit` stopped: `max_epochs=3` reached.\n", True),
        ("trainer-1 exited with code 0\n", True),
        ("trainer-1 exited with code 1\n", False),
        ("Training complete\nTraceback (most recent call last):\n", False),
        ("", False),
    ],
)
def test_a_proper_end_is_known(end: str, done: bool) -> None:
    assert (runs.completed(log(steps(0, 9) + end)) is not None) is done


def test_lines_that_mean_nothing_are_emptied_and_keep_their_numbers() -> None:
    text = "a\nh1:880:901 [0] NCCL INFO Failed to open libibverbs.so[.1]\nb\n"
    assert [(x.number, x.text) for x in without_benign(log(text)).lines] == [(1, "a"), (2, ""), (3, "b")]


def test_errors_of_destructors_are_taken_out_with_their_traceback() -> None:
    text = "a\nException ignored in: <function f at 0x1>\nTraceback (most recent call last):\n  x\nValueError: y\nb\n"
    assert [x.text for x in without_benign(log(text)).lines if x.text] == ["a", "b"]


def test_each_benign_line_has_a_reason() -> None:
    assert all(reason for _, reason in BENIGN)

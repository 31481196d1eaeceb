"""A probe that several others need runs once per request."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from torch_doctor.facts.request import Request
from torch_doctor.probes.once import once


def test_concurrent_callers_share_one_run() -> None:
    runs: list[Request] = []
    started = threading.Barrier(4)

    @once
    def probe(request: Request) -> object:
        runs.append(request)
        return object()

    request = Request()

    def call() -> object:
        started.wait(timeout=30)
        return probe(request)

    with ThreadPoolExecutor(4) as pool:
        answers = {f.result() for f in [pool.submit(call) for _ in range(4)]}
    assert len(answers) == 1 and len(runs) == 1


def test_another_request_is_another_run_even_where_it_is_equal() -> None:
    probe = once(lambda request: object())
    first, second = Request(), Request()
    assert first == second
    assert probe(first) is not probe(second)


def test_nothing_is_kept_for_a_request_that_is_gone() -> None:
    probe = once(lambda request: object())
    answers = []
    for _ in range(3):  # a new Request may get the address of the one before
        answers.append(probe(Request()))
        gc.collect()
    assert len(set(map(id, answers))) == 3


def test_an_error_is_raised_to_every_caller() -> None:
    @once
    def probe(request: Request) -> object:
        raise OSError("broken")

    request = Request()
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            probe(request)

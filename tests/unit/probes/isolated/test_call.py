"""Children that answer, crash, hang or print: each is a result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import isolated

PREAMBLE = "import json, os, sys, time\nout = os.fdopen(int(sys.argv[1]), 'w')\ngiven = json.load(sys.stdin)\n"


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(isolated, "HERE", tmp_path)

    def call(code: str, timeout: float = 30.0) -> dict[str, object] | ProbeFailure:
        (tmp_path / "it.py").write_text(PREAMBLE + code)
        return isolated.call("it", {"a": 1}, python=sys.executable, timeout=timeout)

    return call


def test_the_answer_is_apart_from_what_the_library_prints(child) -> None:  # type: ignore[no-untyped-def]
    assert child("print('noise'); print('noise', file=sys.stderr); json.dump({'got': given}, out)") == {
        "got": {"a": 1}
    }


def test_a_crash_names_the_signal_and_keeps_the_last_words(child) -> None:  # type: ignore[no-untyped-def]
    found = child("print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)")
    assert isinstance(found, ProbeFailure) and found.kind is FailureKind.SIGNAL
    assert "SIGSEGV" in found.reason and found.evidence["stderr_tail"] == ["last words"]


def test_a_hang_ends_at_the_limit(child) -> None:  # type: ignore[no-untyped-def]
    found = child("time.sleep(600)", timeout=2.0)
    assert isinstance(found, ProbeFailure) and found.kind is FailureKind.TIMEOUT


def test_an_exception_is_the_reason(child) -> None:  # type: ignore[no-untyped-def]
    found = child("raise ImportError('libcudart.so.12: cannot open shared object file')")
    assert isinstance(found, ProbeFailure) and found.kind is FailureKind.ERROR
    assert "libcudart.so.12" in found.reason


def test_an_interpreter_that_is_not_there() -> None:
    found = isolated.call("it", {}, python="/no/python", timeout=5)
    assert isinstance(found, ProbeFailure) and found.kind is FailureKind.UNAVAILABLE


def test_a_large_answer_does_not_block(child) -> None:  # type: ignore[no-untyped-def]
    assert child("json.dump({'x': 'y' * 3_000_000}, out)") == {"x": "y" * 3_000_000}

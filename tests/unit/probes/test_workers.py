"""A real DataLoader in a child process, healthy and broken in ways that users meet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.facts.workers import (
    FILES_CAUSE,
    PROCESSES_CAUSE,
    SHM_CAUSE,
    TEMP_CAUSE,
    LimitFacts,
    WorkerFacts,
)
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import isolated, workers
from torch_doctor.probes import torch as torch_probe

ALL = ("fork", "forkserver", "spawn")


def request(*methods: str, needs: Requirements | None = None) -> Request:
    return Request(requirements=needs or Requirements(), timeout=120, python=sys.executable, start_methods=methods)


def site(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that the child process runs before anything else, in its workers too."""
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def looked(asked: Request) -> WorkerFacts:
    facts = workers.probe(asked)
    assert isinstance(facts, WorkerFacts), facts
    return facts


def test_tensors_are_handed_over_under_every_start_method_in_one_session() -> None:
    asked = request(*ALL, needs=Requirements(start_method="spawn", loaders=(LoaderNeed(1, 1, start_method="fork"),)))
    facts = looked(asked)
    assert {name: result.ok for name, result in facts.methods.items()} == dict.fromkeys(ALL, True), facts
    assert facts.wanted == {"spawn", "fork"} and facts.default in ALL
    # what torch is comes from the same child
    torch = torch_probe.probe(asked)
    assert isinstance(torch, TorchFacts) and torch.sharing_strategy == facts.sharing_strategy


def test_the_default_is_the_interpreters_own() -> None:
    facts = looked(request("default"))
    assert list(facts.methods) == [facts.default] and facts.methods[facts.default].ok


def test_a_safe_path_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    facts = looked(request("default"))
    assert facts.methods[facts.default].ok


def test_no_semaphore_names_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import _multiprocessing, multiprocessing.synchronize as s\n"
        "class SemLock:\n"
        "    SEM_VALUE_MAX = 2**31 - 1\n"
        "    def __init__(self, *a): raise OSError(28, 'No space left on device')\n"
        "s._multiprocessing = type('m', (), {'SemLock': SemLock})\n"
    )
    site(tmp_path, code, monkeypatch)
    result = looked(request("fork")).methods["fork"]
    assert not result.ok and result.cause == SHM_CAUSE
    assert result.error == "OSError: [Errno 28] No space left on device"


def test_wrong_rows_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from torch.utils.data._utils.fetch import _MapDatasetFetcher as F\n"
        "old = F.fetch\n"
        "F.fetch = lambda self, index: old(self, [0 for _ in index])\n"
    )
    site(tmp_path, code, monkeypatch)
    result = looked(request("fork")).methods["fork"]
    assert not result.ok and "came instead of" in result.error


def test_a_loader_that_kills_the_process_leaves_what_torch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import multiprocessing.context as c, os, signal\n"
        "c.ForkContext.Queue = lambda self, *a, **k: os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    site(tmp_path, code, monkeypatch)
    asked = request("fork")
    result = looked(asked).methods["fork"]
    assert not result.ok and "SIGSEGV" in result.error
    assert isinstance(torch_probe.probe(asked), TorchFacts)


def test_a_worker_that_hangs_ends_at_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the worker's loop never starts: it waits in the first thing that it does
    code = (
        "import multiprocessing.process as p, time\n"
        "old = p.BaseProcess._bootstrap\n"
        "p.BaseProcess._bootstrap = lambda self, *a, **k: time.sleep(600)\n"
    )
    site(tmp_path, code, monkeypatch)
    payload = {"methods": ["fork"], "limit_s": 3}
    found = isolated.call("torch_session", payload, python=sys.executable, timeout=240)
    assert isinstance(found, dict), found
    result = found["methods"]["fork"]
    assert not result["ok"] and "3" in result["error"] and result["seconds"] < 120


def test_no_temporary_folder_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import tempfile\ndef none(*a): raise FileNotFoundError(2, 'No usable temporary directory found in []')\n"
    site(tmp_path, code + "tempfile._get_default_tempdir = none\n", monkeypatch)
    monkeypatch.delenv("TMPDIR", raising=False)
    result = looked(request("fork")).methods["fork"]
    assert not result.ok and result.cause == TEMP_CAUSE and result.seconds < 5


def test_a_torch_that_cannot_be_imported_is_nothing_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = request("fork")
    failure = workers.probe(asked)
    assert isinstance(failure, ProbeFailure) and failure.kind is FailureKind.UNAVAILABLE
    torch = torch_probe.probe(asked)
    assert isinstance(torch, ProbeFailure) and torch.kind is FailureKind.ERROR


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("RuntimeError: received 0 items of ancdata", FILES_CAUSE),
        ("OSError: [Errno 24] Too many open files", FILES_CAUSE),
        ("RuntimeError: can't start new thread", PROCESSES_CAUSE),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", PROCESSES_CAUSE),
        ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's "
         "workers are out of shared memory.", SHM_CAUSE),
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_8>: No space left on device (28)",
         SHM_CAUSE),
        ("RuntimeError: unable to open shared memory object </torch_8> in read-write mode: Too many open files (24)",
         FILES_CAUSE),
        ("PicklingError: Can't pickle <function <lambda>>", ""),
        ("RuntimeError: DataLoader timed out after 30 seconds", ""),
    ],
)  # fmt: skip
def test_a_failures_text_names_its_cause(text: str, cause: str) -> None:
    assert workers.cause(text) == cause


def test_the_limits_of_this_process() -> None:
    import resource

    facts = workers.limits(request())
    assert isinstance(facts, LimitFacts)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert facts.files_soft == (None if soft == resource.RLIM_INFINITY else soft)
    assert facts.cpu_threads >= 1 and facts.is_root == (os.geteuid() == 0)
    if facts.processes_soft is not None:
        assert facts.user_threads is not None and facts.user_threads >= 1

"""The torch probe: a real torch, none, and ones that break in the ways that users meet."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torch_doctor.facts.request import Request
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes.torch import probe


def request() -> Request:
    return Request(python=sys.executable, timeout=120)


def fake_torch(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_the_installed_torch_describes_itself() -> None:
    import torch

    facts = probe(request())
    assert isinstance(facts, TorchFacts)
    assert (facts.version, facts.cuda, facts.path) == (
        torch.__version__,
        torch.version.cuda,
        str(Path(torch.__file__).parent),
    )
    assert facts.numpy_error == ""
    assert facts.warnings == ()
    assert facts.release[:2] == tuple(int(x) for x in torch.__version__.split(".")[:2])


def test_no_torch_is_nothing_to_look_at(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    failure = probe(Request(python=str(tmp_path / "empty" / "bin" / "python"), timeout=60))
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.UNAVAILABLE
    assert "torch is not installed" in failure.reason


def test_a_failing_import_gives_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "libcudart.so.12: cannot open shared object file: No such file or directory"
    fake_torch(tmp_path, f"raise ImportError({text!r})", monkeypatch)
    failure = probe(request())
    assert isinstance(failure, ProbeFailure)
    assert (failure.kind, failure.reason) == (FailureKind.ERROR, f"import torch fails: ImportError: {text}")
    assert failure.evidence["path"] == str(tmp_path / "torch")


def test_an_import_that_kills_python_names_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGILL)", monkeypatch)
    failure = probe(request())
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.SIGNAL
    assert "SIGILL" in failure.reason


def test_an_import_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(tmp_path, "import threading; threading.Event().wait()", monkeypatch)
    failure = probe(Request(python=sys.executable, timeout=1))
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.9.1+cu128", (2, 9, 1)),
        ("2.13.0+cpu", (2, 13, 0)),
        ("2.10.0a0+gitab12", (2, 10, 0)),
        ("2.9.1rc2", (2, 9, 1)),
    ],
)
def test_the_release_is_numbers(version: str, release: tuple[int, ...]) -> None:
    assert TorchFacts(version, "", "", "").release == release


def test_the_cuda_release_is_none_without_cuda() -> None:
    with_cuda = TorchFacts("2.9.1+cu128", "", "", "", cuda="12.8")
    assert (with_cuda.cuda_release, TorchFacts("2.9.1", "", "", "").cuda_release) == ((12, 8), None)

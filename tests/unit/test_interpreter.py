"""Which Python a check looks into."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torch_doctor import interpreter
from torch_doctor.errors import DoctorError


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_one_that_is_given_wins(tmp_path: Path) -> None:
    given = program(tmp_path / "mine" / "python")
    assert interpreter.choose(given, {"VIRTUAL_ENV": "/other", "PATH": ""}) == given


def test_a_name_is_looked_up_on_path(tmp_path: Path) -> None:
    found = program(tmp_path / "python3.99")
    assert interpreter.choose("python3.99", {"PATH": str(tmp_path)}) == found


def test_what_is_no_program_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="--python nothing: is not a program"):
        interpreter.choose("nothing", {"PATH": str(tmp_path)})


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_comes_first(tmp_path: Path, variable: str) -> None:
    own = program(tmp_path / "env" / "bin" / "python")
    assert interpreter.choose(None, {variable: str(tmp_path / "env"), "PATH": ""}) == own


def test_this_interpreter_where_it_has_a_torch() -> None:
    assert interpreter.choose(None, {"PATH": "", "VIRTUAL_ENV": "/gone"}) == sys.executable


def test_else_python_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_has_torch", lambda: False)
    found = program(tmp_path / "python3")
    assert interpreter.choose(None, {"PATH": str(tmp_path)}) == found
    assert interpreter.choose(None, {"PATH": ""}) == sys.executable

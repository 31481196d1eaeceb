"""What every command has in common: help, errors, options from everywhere, output, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import environment, torch_doctor

from torch_doctor import __version__
from torch_doctor.cli.command import COMMANDS


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_names_every_command(arguments: list[str]) -> None:
    done = torch_doctor(*arguments)
    listed = {line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()}
    assert set(COMMANDS) <= listed
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = torch_doctor(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Usage: ") and done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_version() -> None:
    assert torch_doctor("--version").stdout == f"torch-doctor {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["chekc"], "chekc"),
        (["check", "--nope"], "--nope"),
        (["check", "--fail-on", "bad"], "bad"),
        (["check", "--select", "nonsense"], "nonsense"),
        (["check", "--timeout", "-1"], "--timeout"),
        (["check", "--format", "xml"], "xml"),
        (["rule", "SHM999"], "SHM999"),
        (["diff", "/no/a.json", "/no/b.json"], "/no/a.json"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_the_input(arguments: list[str], named: str) -> None:
    done = torch_doctor(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert named in done.stderr and "Traceback" not in done.stderr


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [c["id"] for c in json.loads(done.stdout)["checks"]]


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.torch-doctor]\nformat = 'json'\nselect = ['SHM001']\n")
    assert ran(torch_doctor("check", cwd=tmp_path)) == ["SHM001"]
    nothing = {"TORCH_DOCTOR_IGNORE": "shm,gpu"}
    assert ran(torch_doctor("check", cwd=tmp_path, env=nothing)) == []
    assert ran(torch_doctor("check", "--ignore", "gpu", cwd=tmp_path, env=nothing)) == ["SHM001"]
    assert torch_doctor("check", "--format", "nagios", cwd=tmp_path).stdout.startswith("TORCH-DOCTOR ")


def test_a_broken_environment_value_names_the_variable() -> None:
    done = torch_doctor("check", env={"TORCH_DOCTOR_TIMEOUT": "soon"})
    assert done.returncode == 2 and "TORCH_DOCTOR_TIMEOUT" in done.stderr


def test_an_option_that_a_command_does_not_have_is_refused_in_its_table(tmp_path: Path) -> None:
    (tmp_path / "torch-doctor.toml").write_text("[check]\nfialon = 'note'\n")
    done = torch_doctor("check", cwd=tmp_path)
    assert done.returncode == 2 and "fialon" in done.stderr and "torch-doctor.toml" in done.stderr


def test_output_goes_to_the_file_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    done = torch_doctor("check", "--select", "SHM001", "--format", "json", "--output", target)
    assert done.stdout == "" and json.loads(target.read_text())["command"] == "check"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    missing = torch_doctor("check", "--select", "SHM001", "--output", tmp_path / "no" / "r.json")
    assert missing.returncode == 2 and str(tmp_path / "no" / "r.json") in missing.stderr


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    script = f"{sys.executable} -m torch_doctor rule | head -c 1"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("arguments", ["rule", "--version", "explain train.log", "explain -"])
def test_output_that_cannot_be_written_is_no_finding_and_no_traceback(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("epoch 1\nValueError: optimizer got an empty parameter list\n")
    script = f"{sys.executable} -m torch_doctor {arguments} > /dev/full < train.log"
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr == "error: standard output: No space left on device\nhint: df -h\n"


def test_a_command_loads_none_of_the_others_and_an_unknown_one_is_told_what_was_meant() -> None:
    code = (
        "import sys, contextlib\n"
        "from torch_doctor.cli.app import main\n"
        "sys.argv = ['torch-doctor', 'ps', '--help']\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print('LOADED', *sorted(m for m in sys.modules if m.startswith('torch_doctor.cli.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split("LOADED", 1)[1].split())
    assert {name for name in COMMANDS if f"torch_doctor.cli.{name}" in loaded} == {"ps"}
    assert "Did you mean 'explain'?" in torch_doctor("explian").stderr


def test_a_latin1_terminal_gets_escapes_and_no_error() -> None:
    done = torch_doctor("check", "--select", "SHM001", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stdout.isascii()


def test_colour_only_where_a_person_looks() -> None:
    assert "\x1b" not in torch_doctor("check", "--select", "SHM001").stdout
    assert "\x1b" in torch_doctor("check", "--select", "SHM001", env={"FORCE_COLOR": "1"}).stdout
    both = {"FORCE_COLOR": "1", "NO_COLOR": "1"}
    assert "\x1b" not in torch_doctor("check", "--select", "SHM001", env=both).stdout

"""The entrypoint's functions, sourced into bash; tests/images runs the whole of it in containers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).resolve().parents[2] / "entrypoint" / "entrypoint.sh"


def call(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Sources the entrypoint, then runs the script; torch-doctor and the command are what ``folder`` holds."""
    return subprocess.run(
        ["bash", "-c", f'source "{ENTRYPOINT}"; {script}'],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **environment},
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a torch-doctor that says how it was called, and the names of two subcommands."""
    command = tmp_path / "torch-doctor"
    command.write_text('#!/bin/sh\necho "doctor: $*"\nexit "${DOCTOR_STATUS:-0}"\n', encoding="utf-8")
    command.chmod(0o755)
    (tmp_path / "subcommands").write_text("check\ndiff\n", encoding="utf-8")
    return tmp_path


def main(place: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = " ".join(f"'{word}'" for word in args)
    return call(f"main {words}", place, TORCH_DOCTOR_SUBCOMMANDS=str(place / "subcommands"), **environment)


def test_sourcing_it_does_nothing(tmp_path: Path) -> None:
    done = call("echo sourced", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sourced\n", "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "doctor: check\n"),
        (("--version",), "doctor: --version\n"),
        (("-h",), "doctor: -h\n"),
        (("diff", "a b", "c"), "doctor: diff a b c\n"),
    ],
)
def test_what_goes_to_torch_doctor(place: Path, args: tuple[str, ...], said: str) -> None:
    assert main(place, *args).stdout == said


def test_a_command_gets_its_words_and_its_status_back(place: Path) -> None:
    done = main(place, "sh", "-c", 'printf "<%s>" "$@"; exit 9', "_", "a b", "", "*")
    assert (done.returncode, done.stdout) == (9, "<a b><><*>")


@pytest.mark.parametrize(
    ("mode", "status", "code", "ran"),
    [
        ("warn", "1", 0, True),
        ("warn", "3", 0, True),
        ("strict", "1", 1, False),
        ("strict", "0", 0, True),
        ("off", "1", 0, True),
    ],
)
def test_what_the_preflight_finds_decides_by_the_mode(
    place: Path, mode: str, status: str, code: int, ran: bool
) -> None:
    # mounts without a size for /dev/shm: the quick look cannot say that all is well
    (place / "mounts").write_text("", encoding="utf-8")
    done = main(
        place,
        "echo",
        "ran",
        TORCH_DOCTOR_PREFLIGHT=mode,
        DOCTOR_STATUS=status,
        TORCH_DOCTOR_MOUNTS=str(place / "mounts"),
    )
    assert (done.returncode, done.stdout) == (code, "ran\n" if ran else "")
    assert ("doctor: check" in done.stderr) == (mode != "off" and status != "0")


@pytest.mark.parametrize(
    ("mounts", "kib"),
    [
        ("shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n", "65536"),
        ("tmpfs /dev/shm tmpfs rw,size=8388608k,mode=1777 0 0\n", "8388608"),
        ("tmpfs /dev/shm tmpfs rw,relatime 0 0\n", "0"),
        ("tmpfs /dev/shm2 tmpfs rw,size=9k 0 0\ntmpfs /x tmpfs rw,size=9k 0 0\n", "0"),
        ("", "0"),
    ],
)
def test_the_size_of_dev_shm_is_read_from_its_mount(tmp_path: Path, mounts: str, kib: str) -> None:
    (tmp_path / "mounts").write_text(mounts, encoding="utf-8")
    assert call("shm_kib", tmp_path, TORCH_DOCTOR_MOUNTS=str(tmp_path / "mounts")).stdout == f"{kib}\n"


@pytest.mark.parametrize("words", ["bash", "bash -l", "bash -i", "/bin/sh", "bash --login"])
def test_an_interactive_shell(tmp_path: Path, words: str) -> None:
    assert call(f"is_interactive_shell {words}", tmp_path).returncode == 0


@pytest.mark.parametrize("words", ["bash -c true", "bash train.sh", "python", "bashful", "sh -x -c true"])
def test_no_interactive_shell(tmp_path: Path, words: str) -> None:
    assert call(f"is_interactive_shell {words}", tmp_path).returncode == 1


def test_a_home_that_cannot_be_written_is_moved(tmp_path: Path) -> None:
    home = "/proc/self/home"  # not even root makes a folder there
    done = call('prepare_home; echo "$HOME"', tmp_path, HOME=home)
    assert done.stdout == f"/tmp/home-{os.geteuid()}\n"


def test_a_home_that_can_be_written_stays(tmp_path: Path) -> None:
    assert call('prepare_home; echo "$HOME"', tmp_path).stdout == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("term", "becomes"), [("xterm", "xterm"), ("dumb", "dumb"), ("", ""), ("no-such", "xterm-256color")]
)
def test_only_an_unknown_terminal_is_replaced(tmp_path: Path, term: str, becomes: str) -> None:
    done = call('prepare_term; echo "$TERM"', tmp_path, TERM=term)
    assert done.stdout == f"{becomes}\n"
    assert bool(done.stderr) == (term == "no-such")


@pytest.mark.parametrize("mode", ["loud", "WARN", "on"])
def test_a_mode_that_does_not_exist_is_refused(place: Path, mode: str) -> None:
    done = main(place, "true", TORCH_DOCTOR_PREFLIGHT=mode)
    assert done.returncode == 2
    assert "none of off, warn, strict" in done.stderr

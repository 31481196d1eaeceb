"""The session probe: in child processes with the environment, signals and terminal that are to be seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torch_doctor
from torch_doctor.probes import terminal

SHOW = """
import dataclasses, json
from torch_doctor.facts.request import Request
from torch_doctor.probes import terminal
found = dataclasses.asdict(terminal.probe(Request()))
found["ignored"], found["blocked"] = sorted(found["ignored"]), sorted(found["blocked"])
print(json.dumps(found))
"""
BASE = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(torch_doctor.__file__).parents[1])}


def seen(environment: dict[str, str], before: str = "") -> dict[str, Any]:
    """SessionFacts of a process that was started so."""
    done = subprocess.run(
        ["bash", "-c", f'{before}\nexec "$0" -c "$1"', sys.executable, SHOW],
        env={**BASE, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("environment", "variable", "name", "installed"),
    [
        ({"LANG": "C"}, "LANG", "C", True),
        ({"LANG": "C.UTF-8"}, "LANG", "C.UTF-8", True),
        ({"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, "LC_ALL", "POSIX", True),
        ({"LANG": "xx_YY.UTF-8"}, "LANG", "xx_YY.UTF-8", False),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": ""}, "", "", None),
        # Python sets LC_CTYPE itself in a C locale: what it was started with counts
        ({}, "", "", None),
    ],
)
def test_the_locale_that_counts(
    environment: dict[str, str], variable: str, name: str, installed: bool | None
) -> None:
    # every machine that these tests run on has C.UTF-8
    other = None if installed and "UTF-8" in name else True
    expected = {"variable": variable, "name": name, "installed": installed, "other_utf8": other}
    assert seen(environment)["locale"] == expected


@pytest.mark.parametrize(
    ("term", "found"),
    [("xterm-256color", True), ("xterm-unknown", False), ("../xterm", False), ("dumb", True)],
)
def test_the_terminal_database(term: str, found: bool) -> None:
    facts = seen({"TERM": term})
    assert (facts["term"], facts["terminfo_found"], facts["terminal"]) == (term, found, False)


def test_no_term_is_no_terminal() -> None:
    facts = seen({})
    assert (facts["term"], facts["terminfo_found"]) == (None, None)


def test_an_entry_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / ".terminfo" / "x").mkdir(parents=True)
    (tmp_path / ".terminfo" / "x" / "xterm-mine").touch()
    assert terminal.find_terminfo("xterm-mine", {"HOME": str(tmp_path)}, ()) is True
    # folders named by a letter's code, as on file systems that ignore case
    (tmp_path / "db" / "78").mkdir(parents=True)
    (tmp_path / "db" / "78" / "xterm-code").touch()
    assert terminal.find_terminfo("xterm-code", {"TERMINFO": str(tmp_path / "db")}, ()) is True


def test_signals_that_a_shell_took_away() -> None:
    facts = seen({}, before="trap '' TERM HUP")
    assert facts["ignored"] == ["SIGHUP", "SIGTERM"]
    assert seen({})["ignored"] == []


def test_masks_of_signals() -> None:
    status = "Name:\tx\nSigBlk:\t0000000000004002\nSigIgn:\t0000000000001000\n"
    assert terminal.signals(status, "SigBlk") == {"SIGINT", "SIGTERM"}
    assert terminal.signals(status, "SigIgn") == {"SIGPIPE"}
    assert terminal.signals("", "SigIgn") == frozenset()


def test_what_it_runs_in() -> None:
    facts = seen({"TMUX": "/tmp/tmux-0/default,1,0", "SSH_CONNECTION": "a 1 b 2", "PYTHONUNBUFFERED": "1"})
    assert (facts["inside"], facts["over_ssh"], facts["unbuffered"]) == ("tmux", True, True)


def test_a_terminal_is_seen(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"{sys.executable} -c 'import sys; exec(sys.stdin.read())' < {tmp_path / 'show.py'}"
    (tmp_path / "show.py").write_text(SHOW)
    subprocess.run(
        ["script", "-qec", command, str(out)],
        env={**BASE, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    line = next(line for line in out.read_text().splitlines() if line.startswith("{"))
    assert json.loads(line)["stdout_terminal"] is True


def test_sockets_of_tmux(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    programs = {"tmux": "/usr/bin/tmux"}
    path = tmp_path / f"tmux-{os.geteuid()}"
    (new,) = terminal.sockets(programs, {"TMUX_TMPDIR": str(tmp_path)}, ())
    assert (new.path, new.exists, new.usable) == (str(path), False, True)
    path.mkdir(mode=0o700)
    path.chmod(0o755)
    (made,) = terminal.sockets(programs, {"TMUX_TMPDIR": str(tmp_path)}, ())
    assert (made.exists, made.owner_uid, made.mode) == (True, os.geteuid(), 0o755)
    # tmux itself goes to /tmp where the folder is not there
    (fallback,) = terminal.sockets(programs, {"TMUX_TMPDIR": str(tmp_path / "none")}, ())
    assert fallback.base == "/tmp"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed here; the image's tests have it")
def test_tmux_refuses_what_the_check_calls_unsafe(tmp_path: Path) -> None:
    path = tmp_path / f"tmux-{os.geteuid()}"
    path.mkdir()
    refused = {}
    for mode in (0o700, 0o750, 0o755, 0o701):
        path.chmod(mode)
        done = subprocess.run(
            ["tmux", "ls"], env={**BASE, "TMUX_TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=30
        )
        refused[mode] = "unsafe permissions" in done.stderr
    assert refused == {0o700: False, 0o750: False, 0o755: True, 0o701: True}


def test_process_one_and_its_zombies(tmp_path: Path) -> None:
    for number, stat in {
        "1": "1 (python) S 0 1",
        "7": "7 (a) b) Z 1 7",
        "8": "8 (c) Z 5 8",
        "9": "9 (d) S 1 9",
    }.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "stat").write_text(stat + " 0 0\n")
    (tmp_path / "1" / "comm").write_text("python\n")
    (tmp_path / "1" / "cmdline").write_bytes(b"python\0train.py\0")
    (tmp_path / "self").mkdir()
    found = terminal.pid_one(tmp_path)
    assert found is not None
    assert (found.name, found.command, found.zombies) == ("python", ("python", "train.py"), 1)
    assert terminal.pid_one(tmp_path / "self") is None


def test_a_real_namespace_without_an_init_keeps_its_zombies() -> None:
    # sleep is process 1 and never waits: the orphan that the inner shell leaves becomes its zombie
    if os.geteuid() == 0:
        unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    else:
        unshare = ["unshare", "-r", "--pid", "--fork", "--mount-proc"]
    script = (
        "import json, os, sys, time\nfrom pathlib import Path\n"
        "from torch_doctor.probes import terminal\n"
        "middle = os.fork()\n"
        "if middle == 0:\n"
        "    if os.fork() == 0:\n        os._exit(0)\n"
        "    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n"
        "    os._exit(0)\n"
        "os.waitpid(middle, 0)\n"
        "found = terminal.pid_one()\n"
        "print(json.dumps([found.name, found.zombies]))\n"
    )
    done = subprocess.run(
        [*unshare, sys.executable, "-c", script], env=BASE, capture_output=True, text=True, timeout=60, check=True
    )
    name, zombies = json.loads(done.stdout)
    assert (name.startswith("python"), zombies) == (True, 1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, True),
        (
            {
                "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n",
                "etc/systemd/logind.conf.d/10.conf": "[Login]\nKillUserProcesses = no\n",
            },
            False,
        ),
    ],
)
def test_logind_ends_sessions(tmp_path: Path, files: dict[str, str], expected: bool) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert terminal.logout_kills(tmp_path, uid=1000) is expected
    assert terminal.logout_kills(tmp_path, uid=0) is False

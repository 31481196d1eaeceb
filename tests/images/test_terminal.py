"""Terminals, sessions, PID 1."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from support import containers

TERMINALS = (
    "xterm",
    "xterm-256color",
    "tmux-256color",
    "screen-256color",
    "xterm-kitty",
    "xterm-ghostty",
    "alacritty",
    "foot",
    "wezterm",
    "rxvt-unicode-256color",
    "linux",
    "vt100",
)


def test_the_locale_is_utf8(host: Any) -> None:
    assert host.check_output("locale charmap") == "UTF-8"
    assert host.check_output("python -c 'import sys; print(sys.stdout.encoding)'").lower() == "utf-8"


@pytest.mark.parametrize("term", TERMINALS)
def test_terminfo_knows(host: Any, term: str) -> None:
    assert host.check_output(f"TERM={term} tput colors").isdigit() or term == "vt100"


@pytest.mark.parametrize("shell", ["bash -lc", "sh -lc", "bash -c"])
def test_a_login_shell_finds_the_virtual_environment(host: Any, shell: str) -> None:
    assert host.check_output(f"{shell} 'command -v python; command -v torch-doctor'") == (
        "/opt/venv/bin/python\n/opt/venv/bin/torch-doctor"
    )


def test_a_bare_tmux_has_the_mouse_and_a_long_history(host: Any) -> None:
    host.check_output("tmux -L bare new-session -d")
    assert host.check_output("tmux -L bare show-options -gv history-limit; tmux -L bare show-options -gv mouse") == (
        "50000\non"
    )
    host.check_output("tmux -L bare kill-server")


@pytest.mark.parametrize(
    "options", [(), ("--user=12345:12345", "--read-only", "--tmpfs=/tmp:exec")], ids=["trainer", "any"]
)
def test_tmux_and_screen_hold_a_session(hosts: Callable[..., Any], options: tuple[str, ...]) -> None:
    host = hosts(*options)
    host.check_output("tmux -L t -f /etc/torch-doctor/tmux.conf new-session -d -s held 'exec sleep 1000'")
    assert "held" in host.check_output("tmux -L t list-sessions")
    assert (
        host.check_output("tmux -L t show-options -gv history-limit; tmux -L t show-options -gv mouse") == "50000\non"
    )
    host.check_output("tmux -L t kill-server")
    host.check_output("screen -c /etc/torch-doctor/screenrc -d -m -S held sleep 1000")
    assert ".held" in host.run("screen -ls").stdout
    host.check_output("screen -S held -X quit")


def test_pid_1_is_tini_and_reaps_orphans(host: Any) -> None:
    assert host.check_output("cat /proc/1/comm") == "tini"
    # the shell in the middle dies at once; its child is then a child of PID 1
    host.check_output("sh -c 'sh -c \"exec sleep 0.2\" & echo $! > /tmp/orphan'")
    orphan = host.check_output("cat /tmp/orphan")
    host.check_output(f"timeout 20 tail --pid={orphan} -f /dev/null")
    assert host.check_output("ps -eo stat= | grep -c ^Z || :") == "0"


@pytest.mark.parametrize(
    ("options", "folder"),
    [((), "/workspace/.torch-doctor"), (("--user=12345:12345", "--read-only", "--tmpfs=/tmp:exec"), "/tmp")],
    ids=["workspace", "read-only"],
)
def test_a_session_is_kept_and_found_from_outside(image: str, options: tuple[str, ...], folder: str) -> None:
    command = ("run", "--name", "exp1", "--", "sh", "-c", "echo hello; exec sleep 1000")
    with containers.container(image, [*containers.ROOMY, *options], command) as running:
        deadline = time.monotonic() + 120
        while "hello" not in running.exec("torch-doctor", "logs", "exp1", check=False):
            assert time.monotonic() < deadline, containers.docker("logs", running.id).stderr
            time.sleep(0.2)
        assert "exp1" in running.exec("torch-doctor", "ps")
        assert running.exec("find", folder, "-path", "*sessions/exp1*", "-prune") != ""


def test_docker_stop_reaches_the_command(image: str) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('up'); signal.pause()"
    with containers.container(image, command=("python", "-c", script)) as running:
        deadline = time.monotonic() + 60
        while "up" not in containers.docker("logs", running.id).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        containers.docker("stop", "--time", "30", running.id)
        assert containers.docker("inspect", "--format", "{{.State.ExitCode}}", running.id).stdout.strip() == "7"


def test_output_of_python_is_not_buffered(host: Any) -> None:
    assert host.check_output("python -c 'import sys; print(sys.stdout.write_through)'") == "True"

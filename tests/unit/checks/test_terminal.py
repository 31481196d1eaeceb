"""Checks of sessions and terminals on facts of hosts and containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import terminal as checks
from torch_doctor.facts.terminal import Locale, PidOne, SessionFacts, SocketFolder
from torch_doctor.model import Finding, Severity

UTF8 = Locale("LANG", "C.UTF-8", True)
SOCKETS = SocketFolder("tmux", "/tmp", "/tmp/tmux-1000", True, True, 1000, 0o700)
HOST = SessionFacts({"tmux": "/usr/bin/tmux"}, (SOCKETS,), uid=1000, locale=UTF8, term="xterm", terminfo_found=True)
CONTAINER = replace(HOST, manager="docker", term=None, pid_one=PidOne("tini"), unbuffered=True)
ALL = (
    checks.terminal_multiplexer_missing,
    checks.multiplexer_sockets_unusable,
    checks.locale_not_utf8,
    checks.terminal_type_unknown,
    checks.pid_1_does_not_reap,
    checks.python_output_buffered,
    checks.signals_held_back,
    checks.run_ends_with_connection,
    checks.logout_kills_sessions,
)


def found(facts: SessionFacts) -> list[Finding]:
    return [finding for check in ALL for finding in check(facts)]


@pytest.mark.parametrize(
    "facts",
    [
        HOST,
        CONTAINER,
        replace(HOST, over_ssh=True, inside="tmux"),
        replace(HOST, over_ssh=True, ignored=frozenset({"SIGHUP"})),
        replace(HOST, ignored=frozenset({"SIGINT", "SIGHUP"})),
        replace(HOST, term=None),
        replace(HOST, terminfo_found=None),
        replace(HOST, locale=Locale("LC_ALL", "de_DE.utf8", True)),
        replace(HOST, locale=Locale("LANG", "en_US.UTF-8")),
        replace(CONTAINER, unbuffered=False, stdout_terminal=True),
        replace(HOST, unbuffered=False),
        replace(CONTAINER, pid_one=None),
        replace(HOST, sockets=(replace(SOCKETS, exists=False, usable=False),)),
        replace(HOST, sockets=(replace(SOCKETS, mode=0o750),)),
        replace(
            HOST, programs={"tmux": "t", "screen": "s"}, sockets=(SOCKETS, SocketFolder("screen", "/run/x", "y"))
        ),
    ],
)
def test_a_healthy_session_has_no_finding(facts: SessionFacts) -> None:
    assert found(facts) == []


@pytest.mark.parametrize(("over_ssh", "severity"), [(False, Severity.NOTE), (True, Severity.WARNING)])
def test_no_multiplexer(over_ssh: bool, severity: Severity) -> None:
    facts = replace(HOST, programs={"nohup": "/usr/bin/nohup"}, sockets=(), over_ssh=over_ssh, inside="tmux")
    assert [(f.severity, f.message) for f in found(facts)] == [(severity, "neither tmux nor screen is installed")]


@pytest.mark.parametrize(
    ("sockets", "command"),
    [
        (replace(SOCKETS, mode=0o777), "chmod 700 /tmp/tmux-1000"),
        (replace(SOCKETS, mode=0o701), "chmod 700 /tmp/tmux-1000"),
        (replace(SOCKETS, usable=False), "mkdir -m 700 -p ~/.tmux-sockets"),
        (replace(SOCKETS, owner_uid=0), "mkdir -m 700 -p ~/.tmux-sockets"),
        (SocketFolder("tmux", "/ro", "/ro/tmux-1000", usable=False), "mkdir -m 700 -p ~/.tmux-sockets"),
    ],
)
def test_a_socket_folder_that_tmux_refuses(sockets: SocketFolder, command: str) -> None:
    (finding,) = found(replace(HOST, sockets=(sockets,)))
    assert finding.severity is Severity.WARNING
    assert finding.remediation.commands[0] == command


def test_in_a_container_a_variable_names_another_folder() -> None:
    (finding,) = found(replace(CONTAINER, sockets=(SocketFolder("tmux", "/ro", "/ro/tmux-1000", usable=False),)))
    assert finding.remediation.commands == ("docker run -e TMUX_TMPDIR=/tmp ...",)


def test_screen_is_judged_where_there_is_no_tmux() -> None:
    screen = SocketFolder("screen", "/run/screen", "/run/screen/S-u", usable=False)
    (finding,) = found(replace(HOST, programs={"screen": "/usr/bin/screen"}, sockets=(screen,)))
    assert finding.message == "screen cannot make its socket folder in /run/screen"
    assert finding.remediation.commands[1] == "export SCREENDIR=~/.screen-sockets"


@pytest.mark.parametrize(
    ("locale", "severity", "message", "setting"),
    [
        (Locale("LANG", "C", True), Severity.WARNING, "the locale LANG=C is not UTF-8", "LANG"),
        (Locale("LC_ALL", "POSIX", True), Severity.WARNING, "the locale LC_ALL=POSIX is not UTF-8", "LC_ALL"),
        (Locale("LC_ALL", "de_DE.ISO-8859-1", True), Severity.WARNING, "", "LC_ALL"),
        (
            Locale("LANG", "en_US.UTF-8", False),
            Severity.WARNING,
            "the locale LANG=en_US.UTF-8 is not installed",
            "LANG",
        ),
        (Locale(), Severity.NOTE, "", "LANG"),
        (Locale(other_utf8=False), Severity.WARNING, "so that tmux does not start", "LANG"),
    ],
)
def test_a_locale_that_is_not_utf8(locale: Locale, severity: Severity, message: str, setting: str) -> None:
    (finding,) = found(replace(CONTAINER, locale=locale))
    assert finding.severity is severity
    assert message in finding.message
    assert finding.remediation.commands == (f"docker run -e {setting}=C.UTF-8 ...",)


def test_a_terminal_that_is_not_known() -> None:
    (finding,) = found(replace(CONTAINER, term="xterm-unknown", terminfo_found=False))
    assert (finding.severity, finding.message) == (
        Severity.WARNING,
        "TERM=xterm-unknown is not in the terminal database",
    )
    assert finding.remediation.commands == ("docker run -e TERM=xterm-256color ...",)


def test_over_ssh_its_entry_can_be_copied() -> None:
    (finding,) = found(replace(HOST, term="xterm-ghostty", terminfo_found=False, over_ssh=True, inside="tmux"))
    assert finding.remediation.commands == (
        "export TERM=xterm-256color",
        "infocmp -x xterm-ghostty | ssh HOST tic -x -",
    )


def test_no_term_matters_on_a_terminal_only() -> None:
    assert [f.message for f in found(replace(HOST, term=None, terminal=True))] == ["TERM is not set on a terminal"]


@pytest.mark.parametrize("name", ["tini", "docker-init", "systemd", "dumb-init", "s6-svscan", "catatonit", "pause"])
def test_an_init_reaps(name: str) -> None:
    assert found(replace(CONTAINER, pid_one=PidOne(name, (name,)))) == []


def test_the_supervisor_of_a_run_reaps_and_a_check_does_not() -> None:
    interpreter = ("/opt/venv/bin/python", "/opt/venv/bin/torch-doctor")
    assert found(replace(CONTAINER, pid_one=PidOne("torch-doctor", (*interpreter, "run", "--", "python")))) == []
    assert len(found(replace(CONTAINER, pid_one=PidOne("torch-doctor", (*interpreter, "check"))))) == 1


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (PidOne("python"), "PID 1 is python, which does not reap orphans"),
        (PidOne("bash", zombies=2), "PID 1 is bash, which passes no signals on; 2 zombies left"),
        (PidOne("sleep", zombies=1), "PID 1 is sleep, which does not reap orphans; 1 zombie left"),
    ],
)
def test_a_first_process_that_is_no_init(first: PidOne, message: str) -> None:
    (finding,) = found(replace(CONTAINER, pid_one=first))
    assert (finding.severity, finding.message) == (Severity.WARNING, message)
    assert finding.remediation.commands == ("docker run --init ...",)


def test_in_a_pod_there_is_no_flag() -> None:
    (finding,) = found(replace(CONTAINER, pid_one=PidOne("python"), manager="kubernetes"))
    assert "shareProcessNamespace: true" in finding.remediation.text


def test_buffered_output_in_a_container_is_a_note() -> None:
    (finding,) = found(replace(CONTAINER, unbuffered=False))
    assert (finding.severity, finding.remediation.commands) == (
        Severity.NOTE,
        ("docker run -e PYTHONUNBUFFERED=1 ...",),
    )


def test_signals_that_do_not_arrive() -> None:
    (finding,) = found(replace(HOST, ignored=frozenset({"SIGTERM"}), blocked=frozenset({"SIGINT", "SIGUSR1"})))
    assert finding.message == "started with SIGTERM ignored, SIGINT and SIGUSR1 blocked"
    assert finding.remediation.commands == ("trap - TERM",)


def test_ssh_without_a_multiplexer_is_a_note() -> None:
    assert [f.severity for f in found(replace(HOST, over_ssh=True))] == [Severity.NOTE]


def test_a_machine_that_ends_sessions_at_logout() -> None:
    (finding,) = found(replace(HOST, logout_kills=True))
    assert finding.remediation.commands[0] == "loginctl enable-linger"

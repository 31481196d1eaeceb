"""``attach`` in a real terminal: tmux and screen as views, killed, closed, opened again.

The terminal is a window of another tmux server, driven by send-keys and read by capture-pane.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import libtmux
import pytest
from support.sessions import SECONDS, Sessions, gone, sessions, until

from torch_doctor.sessions import places, proc
from torch_doctor.sessions.views import Subject, screen

#: says what it reads, and how large its window is when asked
ECHO = """
import os, sys
print("ready", flush=True)
for line in sys.stdin:
    word = line.strip()
    print("size %d %d" % os.get_terminal_size()[::-1] if word == "size" else "heard " + word, flush=True)
    if word == "bye":
        sys.exit(5)
"""


@pytest.fixture
def doctor(tmp_path: Path) -> Iterator[Sessions]:
    with sessions(tmp_path / "state", HOME=str(tmp_path)) as found:
        yield found


class Terminal:
    """A terminal of 100 x 30 on this machine, as a user has one over SSH."""

    def __init__(self, folder: Path) -> None:
        self.server = libtmux.Server(socket_path=folder / "outer.sock", config_file=os.devnull)
        self.pane: libtmux.Pane | None = None

    def run(self, doctor: Sessions, *args: str, env: str = "") -> None:
        """Type ``torch-doctor ARGS`` into a new window; what it ends with is shown."""
        line = f"trap : INT; {env} {shlex.join(doctor.command(*args))}; echo ended with $?; exec sleep 600"
        variables = shlex.join(f"{k}={v}" for k, v in self._environment(doctor))
        session = self.server.new_session(
            session_name=uuid.uuid4().hex[:8],
            window_command=f"env -i {variables} sh -c {shlex.quote(line)}",
            x=100,
            y=30,
        )
        self.pane = session.active_pane

    def _environment(self, doctor: Sessions) -> list[tuple[str, str]]:
        kept = {k: v for k, v in doctor.environment.items() if k != "COLUMNS"}
        return list({**kept, "TERM": "screen-256color"}.items())

    def shown(self) -> str:
        assert self.pane is not None
        return "\n".join(self.pane.capture_pane())

    def until(self, text: str, seconds: float = SECONDS) -> str:
        try:
            return str(until(lambda: shown if text in (shown := self.shown()) else "", repr(text), seconds))
        except AssertionError as error:
            raise AssertionError(f"{error}; the terminal shows:\n{self.shown()}") from None

    def type(self, text: str) -> None:
        assert self.pane is not None
        self.pane.send_keys(text, enter=True, literal=True)

    def press(self, *keys: str) -> None:
        assert self.pane is not None
        for key in keys:
            self.pane.send_keys(key, enter=False)

    def close(self) -> None:
        self.server.kill()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.close()


def tmux_server(doctor: Sessions) -> int:
    """The PID of the private server that shows the sessions."""
    views = libtmux.Server(socket_path=places.runtime_folder(doctor.root) / "tmux.sock")
    return int(views.cmd("display-message", "-p", "#{pid}").stdout[0])


def screen_server(doctor: Sessions, name: str) -> int:
    """The PID of the screen that shows a session, from its socket's name."""
    folder = screen.sockets(Subject(name, doctor.folder(name)))
    return int(until(lambda: [p.name for p in folder.iterdir()], "screen's socket")[0].split(".")[0])


RUN = ("run", "--check", "off", "--no-postmortem", "--name", "exp.1")
DETACH = {"tmux": ("C-b", "d"), "screen": ("C-a", "d")}


@pytest.mark.parametrize("backend", ["tmux", "screen"])
def test_run_in_a_terminal_shows_the_session_and_detaching_leaves_it(
    doctor: Sessions, terminal: Terminal, backend: str
) -> None:
    terminal.run(doctor, *RUN, "--backend", backend, "--", sys.executable, "-c", ECHO)
    shown = terminal.until("ready")
    assert "exp.1" in shown.splitlines()[-1], "the status line names the session"
    terminal.type("hello")
    terminal.until("heard hello")
    terminal.press(*DETACH[backend])
    shown = terminal.until("ended with 0")
    assert "exp.1: detached, it goes on; torch-doctor attach exp.1" in shown
    assert doctor.state("exp.1").status == "running"


@pytest.mark.parametrize("backend", ["tmux", "screen"])
def test_attach_shows_what_was_written_before_and_ends_with_the_childs_status(
    doctor: Sessions, terminal: Terminal, backend: str
) -> None:
    doctor.python("exp.1", ECHO, options=("--backend", backend))
    terminal.run(doctor, "attach")
    terminal.until("ready")
    terminal.type("bye")
    shown = terminal.until("ended with 5")
    assert "heard bye" in shown and "exp.1: failed after" in shown


@pytest.mark.parametrize("backend", ["tmux", "screen"])
def test_a_killed_view_leaves_the_run_and_its_log_and_attach_opens_a_new_one(
    doctor: Sessions, terminal: Terminal, backend: str
) -> None:
    terminal.run(doctor, *RUN, "--backend", backend, "--", sys.executable, "-c", ECHO)
    terminal.until("ready")
    server = tmux_server(doctor) if backend == "tmux" else screen_server(doctor, "exp.1")
    child = doctor.child("exp.1")
    os.kill(server, signal.SIGKILL)
    until(lambda: gone(server))
    terminal.until("detached, it goes on")
    assert doctor.state("exp.1").status == "running" and not gone(child)
    again = Terminal(doctor.root / "..")
    again.server = terminal.server
    again.run(doctor, "attach", "exp.1")
    again.until("ready")
    again.type("still there")
    again.until("heard still there")
    assert b"heard still there\n" in doctor.log("exp.1")
    assert doctor.child("exp.1") == child


def test_kill_server_leaves_the_run(doctor: Sessions, terminal: Terminal) -> None:
    terminal.run(doctor, *RUN, "--", sys.executable, "-c", ECHO)
    terminal.until("ready")
    views = libtmux.Server(socket_path=places.runtime_folder(doctor.root) / "tmux.sock")
    views.kill()
    terminal.until("detached, it goes on")
    assert doctor.state("exp.1").status == "running"


@pytest.mark.parametrize("backend", ["tmux", "screen", "nohup"])
def test_a_closed_terminal_leaves_the_run(doctor: Sessions, terminal: Terminal, backend: str) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGHUP, lambda *_: (print('hung up', flush=True), sys.exit(1)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.1); print('tick', flush=True)"
    )
    terminal.run(doctor, *RUN, "--backend", backend, "--", sys.executable, "-c", code)
    terminal.until("ready")
    before = len(doctor.log("exp.1"))
    terminal.close()
    until(lambda: len(doctor.log("exp.1")) > before + 50, "more output")
    assert doctor.state("exp.1").status == "running" and b"hung up" not in doctor.log("exp.1")


def test_two_terminals_show_one_session(doctor: Sessions, terminal: Terminal) -> None:
    doctor.python("exp.1", ECHO)
    terminal.run(doctor, "attach")
    terminal.until("ready")
    second = Terminal(doctor.root)
    second.server = terminal.server
    second.run(doctor, "attach")
    second.until("ready")
    second.type("from the second")
    terminal.until("heard from the second")


def test_names_that_tmux_would_take_for_one_are_two_windows(doctor: Sessions, terminal: Terminal) -> None:
    for name in ("a.b", "a_b"):
        doctor.python(name, ECHO.replace('"ready"', f'"ready {name}"'))
    terminal.run(doctor, "attach", "a.b")
    terminal.until("ready a.b")
    second = Terminal(doctor.root)
    second.server = terminal.server
    second.run(doctor, "attach", "a_b")
    assert "ready a.b" not in second.until("ready a_b")


@pytest.mark.parametrize("term", ["", "no-such-terminal", "dumb", "xterm-ghostty-9"])
def test_attach_works_with_a_terminal_type_that_is_unset_or_unknown(
    doctor: Sessions, terminal: Terminal, term: str
) -> None:
    doctor.python("exp.1", ECHO)
    terminal.run(doctor, "attach", env=f"TERM={term}" if term else "env -u TERM")
    terminal.until("ready")
    terminal.type("bye")
    terminal.until("ended with 5")


def test_attach_works_inside_the_users_own_tmux_and_leaves_it_alone(
    doctor: Sessions, terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / ".tmux.conf").write_text("set -g status-left 'MINE'\n")
    doctor.python("exp.1", ECHO)
    own = terminal.server.new_session(session_name="own")
    terminal.run(doctor, "attach", env=f"TMUX={tmp_path}/outer.sock,1,0")
    shown = terminal.until("ready")
    assert "MINE" not in shown
    assert [s.session_name for s in terminal.server.sessions if s.session_name == "own"] == [own.session_name]
    assert "@torch-doctor-name" not in "".join(terminal.server.cmd("show-options", "-g").stdout)


def test_the_users_configuration_is_read_where_asked(doctor: Sessions, terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / ".tmux.conf").write_text("set -g status-left 'MINE'\n")
    doctor.python("exp.1", ECHO)
    terminal.run(doctor, "attach", "--user-config")
    terminal.until("MINE")


def terminal_size(pid: int) -> tuple[int, int]:
    """Rows and columns of a process's terminal."""
    descriptor = os.open(f"/proc/{pid}/fd/1", os.O_RDONLY | os.O_NOCTTY)
    try:
        columns, rows = os.get_terminal_size(descriptor)
    finally:
        os.close(descriptor)
    return rows, columns


def test_the_window_size_reaches_the_command(doctor: Sessions, terminal: Terminal) -> None:
    doctor.python("exp.1", ECHO)
    terminal.run(doctor, "attach")
    terminal.until("ready")
    terminal.type("size")
    terminal.until("size 29 100")
    assert terminal.pane is not None
    terminal.pane.window.resize(width=70, height=20)
    until(lambda: terminal_size(doctor.child("exp.1")) == (19, 70), "the new size")
    terminal.type("size")
    terminal.until("size 19 70")


def test_ctrl_c_goes_to_the_command_and_ctrl_z_does_not_stop_it(doctor: Sessions, terminal: Terminal) -> None:
    code = (
        "import signal\nprint('ready', flush=True)\n"
        "try: signal.pause()\nexcept KeyboardInterrupt: print('interrupted')"
    )
    doctor.python("exp.1", code)
    terminal.run(doctor, "attach")
    terminal.until("ready")
    terminal.press("C-z")
    terminal.until("^Z")
    until(lambda: proc.stat_of(doctor.child("exp.1")).state == "S", "a sleeping command")  # type: ignore[union-attr]
    terminal.press("C-c")
    terminal.until("ended with 0")
    assert b"interrupted" in doctor.log("exp.1")


def test_a_program_that_takes_the_whole_screen_looks_right(doctor: Sessions, terminal: Terminal) -> None:
    code = (
        "import curses, time\n"
        "def main(screen):\n"
        "    curses.curs_set(0)\n"
        "    while True:\n"
        "        for row in range(5): screen.addstr(row, row * 3, f'row {row}')\n"
        "        screen.addstr(10, 10, 'ready'); screen.refresh()\n"
        "        if screen.getkey() == 'q': return\n"  # a change of size is a key, too
        "curses.wrapper(main)\n"
    )
    doctor.python("exp.1", code)
    terminal.run(doctor, "attach")
    lines = terminal.until("ready").splitlines()
    assert [lines[row].rstrip() for row in range(5)] == [" " * row * 3 + f"row {row}" for row in range(5)]
    terminal.type("q")
    terminal.until("ended with 0")


def test_nohup_follows_the_log_and_ctrl_c_leaves_the_run(doctor: Sessions, terminal: Terminal) -> None:
    terminal.run(doctor, *RUN, "--backend", "nohup", "--", sys.executable, "-c", ECHO)
    terminal.until("ready")
    terminal.press("C-c")
    terminal.until("detached, it goes on")
    terminal.until("ended with 0")
    assert doctor.state("exp.1").status == "running"


def test_without_tmux_attach_takes_what_there_is(doctor: Sessions, terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    doctor.python("exp.1", ECHO, options=("--backend", "tmux"))
    terminal.run(doctor, "attach", env=f"PATH={tmp_path}/bin")
    shown = terminal.until("ready")
    assert "no view by tmux: tmux is not installed" in shown
    named = doctor("run", "--backend", "tmux", "--name", "b", "--", "true", env={"PATH": f"{tmp_path}/bin"})
    assert named.returncode == 3 and "tmux is not installed" in named.stderr

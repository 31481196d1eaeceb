"""Sessions in real containers: as the main command, under docker exec, killed, out of memory, on full disks."""

from __future__ import annotations

import json
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import libtmux
import pytest
from support import containers
from support.containers import docker
from support.sessions import SECONDS, until

READY = "import signal; print('ready', flush=True); signal.pause()"
#: writes its checkpoint in the SIGTERM handler, as a training should
CHECKPOINT = (
    "import pathlib, signal, sys, time\n"
    "def save(*_):\n"
    "    time.sleep(1); pathlib.Path('/workspace/checkpoint').write_text('saved')\n"
    "    print('saved', flush=True); sys.exit(7)\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "print('ready', flush=True); signal.pause()\n"
)
#: answers what it reads
ECHO = (
    "import sys\nprint('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    print('heard', line.strip(), flush=True)\n"
    "    if line.strip() == 'bye': sys.exit(5)\n"
)
RUN = ("run", "--check", "off", "--no-postmortem", "--name", "exp")


class Box:
    """A container whose main command is a session."""

    def __init__(self, id: str) -> None:
        self.id = id

    def logs(self) -> str:
        done = docker("logs", self.id)
        return done.stdout + done.stderr

    def exec(self, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return docker("exec", *options, self.id, *command, check=False)

    def ps(self) -> dict[str, dict[str, Any]]:
        done = self.exec("torch-doctor", "ps", "--format", "json")
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)["sessions"]}

    def running(self) -> bool:
        return docker("inspect", "--format", "{{.State.Running}}", self.id).stdout.strip() == "true"

    def wait(self) -> int:
        """The container's exit status."""
        return int(docker("wait", self.id, timeout=120).stdout)

    def ready(self, text: str = "ready") -> None:
        until(lambda: text in self.logs(), f"{text!r} in the log of the container", SECONDS)


@contextmanager
def box(image: str, *command: str, options: Sequence[str] = ()) -> Iterator[Box]:
    """``docker run -d OPTIONS IMAGE COMMAND``; removed at the end, volumes too."""
    id = docker("run", "--detach", *options, image, *command).stdout.strip()
    try:
        yield Box(id)
    finally:
        docker("rm", "--force", "--volumes", id, check=False)


@contextmanager
def volume() -> Iterator[str]:
    name = f"td-test-{uuid.uuid4().hex[:12]}"
    docker("volume", "create", name)
    try:
        yield name
    finally:
        docker("volume", "rm", "--force", name, check=False)


class Terminal:
    """A terminal in which a docker client runs."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.server = libtmux.Server(socket_path=folder / f"{uuid.uuid4().hex[:6]}.sock", config_file="/dev/null")
        line = f"trap : INT; {shlex.join((containers.client(), *args))}; echo ended with $?; sleep 600"
        session = self.server.new_session(window_command=f"sh -c {shlex.quote(line)}", x=100, y=30)
        pane = session.active_pane
        assert pane is not None
        self.pane = pane

    def shown(self) -> str:
        return "\n".join(self.pane.capture_pane())

    def until(self, text: str) -> str:
        try:
            return str(until(lambda: shown if text in (shown := self.shown()) else "", repr(text)))
        except AssertionError as error:
            raise AssertionError(f"{error}; the terminal shows:\n{self.shown()}") from None

    def type(self, text: str) -> None:
        self.pane.send_keys(text, enter=True, literal=True)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.pane.send_keys(key, enter=False)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_one(*args: str) -> Terminal:
        opened.append(Terminal(tmp_path, *args))
        return opened[-1]

    yield open_one
    for one in opened:
        one.server.kill()


def test_output_streams_to_docker_logs_and_the_container_ends_with_the_childs_status(image: str) -> None:
    with box(image, *RUN, "--", "python", "-c", "import os, sys; print('out', os.getuid()); sys.exit(11)") as found:
        assert found.wait() == 11
        assert "out 1000\n" in found.logs() and "exp: failed after" in found.logs()


def test_docker_stop_reaches_the_training_and_its_checkpoint_survives(image: str) -> None:
    with volume() as data:
        options = ("--volume", f"{data}:/workspace")
        with box(image, *RUN, "--", "python", "-c", CHECKPOINT, options=options) as found:
            found.ready()
            docker("stop", "--time", "30", found.id)
            assert found.wait() == 7
            assert "stopped by the container's stop or a preemption: SIGTERM, exit status 7" in found.logs()
        after = containers.run(image, "cat", "/workspace/checkpoint", options=options)
        assert after.stdout == "saved"
        with box(image, "sleep", "infinity", options=options) as second:
            row = second.ps()["exp"]
            assert (row["state"], row["exit_status"], row["stopped_by"]) == ("stopped", 7, "container")
            assert second.exec("torch-doctor", "logs", "exp").stdout == "ready\nsaved\n"


def test_docker_kill_leaves_a_lost_session_that_the_next_container_can_tell_and_replace(image: str) -> None:
    with volume() as data:
        options = ("--volume", f"{data}:/workspace")
        with box(image, *RUN, "--", "python", "-c", READY, options=options) as found:
            found.ready()
            docker("kill", found.id)
            assert found.wait() == 137
            docker("start", found.id)  # --restart=always does the same: the same name again
            until(lambda: found.logs().count("ready") == 2, "the second start")
            assert found.ps()["exp"]["state"] == "running"
            docker("kill", found.id)
        with box(image, "sleep", "infinity", options=options) as second:
            assert second.ps()["exp"]["state"] == "lost"
            assert second.exec("torch-doctor", "health").returncode == 0, "an earlier container's session"
            assert second.exec("torch-doctor", "logs", "exp").stdout == "ready\n"
            assert second.exec("torch-doctor", "wait", "exp").returncode == 3
            assert second.exec("torch-doctor", "rm", "exp").returncode == 0


def test_a_session_in_one_container_is_seen_running_from_another_that_shares_the_volume(image: str) -> None:
    with volume() as data:
        options = ("--volume", f"{data}:/workspace")
        with (
            box(image, *RUN, "--", "python", "-c", READY, options=options) as first,
            box(image, "sleep", "infinity", options=options) as second,
        ):
            first.ready()
            assert second.ps()["exp"]["state"] == "running"
            refused = second.exec("torch-doctor", "run", "--check", "off", "--name", "exp", "--", "true")
            assert refused.returncode == 2 and "already running" in refused.stderr


def test_the_oom_killer_is_named(image: str) -> None:
    code = "blocks = []\nwhile True: blocks.append(bytearray(b'x' * (8 << 20)))"
    options = ("--memory", "200m", "--memory-swap", "200m")
    with box(image, *RUN, "--", "python", "-c", code, options=options) as found:
        assert found.wait() == 137
        assert "SIGKILL by the kernel's OOM killer (memory limit 200 MiB)" in found.logs()


def test_a_worker_that_the_oom_killer_ended_is_named_though_its_parent_ended_by_itself(image: str) -> None:
    code = (
        "import os, sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    blocks = []\n    while True: blocks.append(bytearray(b'x' * (8 << 20)))\n"
        "os.waitpid(pid, 0); sys.exit(1)\n"
    )
    options = ("--memory", "200m", "--memory-swap", "200m")
    with box(image, *RUN, "--", "python", "-c", code, options=options) as found:
        assert found.wait() == 1
        assert (
            "exit status 1; the kernel's OOM killer ended 1 of its processes (memory limit 200 MiB)" in found.logs()
        )


def test_shared_memory_that_is_full_is_named_with_its_size(image: str) -> None:
    code = (
        "import mmap, os\n"
        "stream = open('/dev/shm/x', 'w+b'); stream.truncate(128 << 20)\n"
        "view = mmap.mmap(stream.fileno(), 128 << 20)\n"
        "for at in range(0, 128 << 20, 4096): view[at] = 1\n"
    )
    options = ("--env", "LD_PRELOAD=")
    with box(image, *RUN, "--", "python", "-c", code, options=options) as found:
        assert found.wait() == 135
        assert "SIGBUS: shared memory was full" in found.logs() and "of 64 MiB at the end" in found.logs()


def test_zombies_are_reaped_and_orphans_end_with_the_session(image: str) -> None:
    code = (
        "import os, pathlib, signal, time\n"
        "start, started = os.pipe(); end, ended = os.pipe()\n"
        "for _ in range(50):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: os.close(started); os.read(start, 1); os._exit(0)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "os.close(started); os.close(ended); os.read(end, 1)  # all are orphans; then all have ended\n"
        "def zombies():\n"
        "    found = []\n"
        "    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):\n"
        "        try: found.append(path.read_text().rpartition(')')[2].split()[0])\n"
        "        except OSError: pass\n"
        "    return found.count('Z')\n"
        "limit = time.monotonic() + 20\n"
        "while zombies() and time.monotonic() < limit: time.sleep(0.02)\n"
        "print('zombies', zombies(), flush=True); print('ready', flush=True); signal.pause()\n"
    )
    for options in ((), ("--entrypoint", "torch-doctor"), ("--init", "--entrypoint", "torch-doctor")):
        with box(image, *RUN, "--grace", "2", "--", "python", "-c", code, options=options) as found:
            found.ready()
            assert "zombies 0\n" in found.logs(), options
            docker("stop", "--time", "30", found.id)
            assert found.wait() == 143, options


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--user", "12345:0"),
        ("--user", "54321:54321", "--env", "TERM="),
        ("--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        ("--network", "none", "--env", "TERM=no-such-terminal"),
    ],
    ids=["plain", "any-uid", "any-uid-no-term", "hardened", "unknown-term"],
)
def test_attach_through_docker_exec(image: str, terminal: Any, options: tuple[str, ...]) -> None:
    terms = tuple(o for o in options if o.startswith("TERM="))
    with box(image, *RUN, "--", "python", "-c", ECHO, options=options) as found:
        found.ready()
        passed = [part for term in terms for part in ("--env", term)]
        shown = terminal("exec", "-it", *passed, found.id, "torch-doctor", "attach")
        shown.until("ready")
        shown.until("Ctrl-b d")
        shown.type("hello")
        shown.until("heard hello")
        shown.press("C-b", "d")
        shown.until("ended with 0")
        assert found.running()
        again = terminal("exec", "-it", *passed, found.id, "torch-doctor", "attach", "exp")
        again.until("heard hello")
        again.type("bye")
        again.until("ended with 5")
        assert found.wait() == 5


def test_attach_with_screen_where_the_user_has_a_name(image: str, terminal: Any) -> None:
    with box(image, *RUN, "--backend", "screen", "--", "python", "-c", ECHO) as found:
        found.ready()
        shown = terminal("exec", "-it", found.id, "torch-doctor", "attach")
        shown.until("Ctrl-a d")
        shown.type("hello")
        shown.until("heard hello")
        shown.press("C-a", "d")
        shown.until("ended with 0")
        assert found.running()


def test_docker_run_it_opens_the_view_and_detaching_leaves_the_container_running(image: str, terminal: Any) -> None:
    name = f"td-test-{uuid.uuid4().hex[:12]}"
    shown = terminal("run", "-it", "--name", name, image, *RUN, "--", "python", "-c", ECHO)
    try:
        shown.until("ready")
        shown.until("Ctrl-b d")
        shown.press("C-b", "d")
        shown.until("the container lives on with the run")
        found = Box(name)
        assert found.running() and found.ps()["exp"]["state"] == "running"
        docker("stop", "--time", "30", name)
        shown.until("ended with 143")
    finally:
        docker("rm", "--force", "--volumes", name, check=False)


def test_a_killed_tmux_server_and_a_closed_terminal_leave_the_run(image: str, terminal: Any) -> None:
    with box(image, *RUN, "--", "python", "-c", ECHO) as found:
        found.ready()
        shown = terminal("exec", "-it", found.id, "torch-doctor", "attach")
        shown.until("Ctrl-b d")
        kill = "kill -9 $(tmux -S /tmp/torch-doctor-1000/*/tmux.sock display-message -p '#{pid}')"
        assert found.exec("sh", "-c", kill).returncode == 0
        shown.until("ended with 0")
        again = terminal("exec", "-it", found.id, "torch-doctor", "attach")
        again.until("Ctrl-b d")
        again.server.kill()  # the terminal is closed
        third = terminal("exec", "-it", found.id, "torch-doctor", "attach")
        third.until("Ctrl-b d")
        third.type("still here")
        third.until("heard still here")
        assert found.running()


def test_a_full_log_folder_does_not_stop_the_run_and_the_log_goes_on_when_there_is_room(image: str) -> None:
    code = (
        "import os, sys\nprint('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    if line.strip() == 'more': print('x' * 300000, flush=True); print('written', flush=True)\n"
        "    if line.strip() == 'end': sys.exit(9)\n"
    )
    options = ("--tmpfs", "/state:size=512k,mode=1777", "--env", "TORCH_DOCTOR_STATE_DIR=/state")
    with box(image, *RUN, "--", "python", "-u", "-c", code, options=options) as found:
        found.ready()

        def type_in(text: str, last: bool = False) -> None:
            code = (
                "import sys; from torch_doctor.sessions import protocol, store; "
                "c = protocol.connect(store.read(store.folder('exp')).socket); "
                "typed = protocol.frame(protocol.INPUT, sys.argv[1].encode() + b'\\n'); "
                "c.sendall(protocol.request(op='type') + typed); c.shutdown(1); c.recv(1)"
            )
            # what ends the run ends the container, and may take this process with it
            docker("exec", found.id, "python", "-c", code, text, check=not last)

        docker("exec", found.id, "sh", "-c", "head -c 400k /dev/zero > /state/filler; true")
        type_in("more")
        until(lambda: "written" in found.logs(), "the output, though the log is full")
        assert found.ps()["exp"]["log_error"] == "No space left on device"
        docker("exec", found.id, "rm", "/state/filler")
        until(lambda: found.ps()["exp"]["log_error"] == "", "the log to go on")
        log = found.exec("torch-doctor", "logs", "exp").stdout
        assert "x" * 300000 + "\nwritten\n" in log, "nothing was lost"
        docker("exec", found.id, "sh", "-c", "head -c 500k /dev/zero > /state/filler; true")
        type_in("end", last=True)
        assert found.wait() == 9


def test_the_end_is_recorded_on_a_full_disk(image: str) -> None:
    options = ("--tmpfs", "/state:size=512k,mode=1777", "--env", "TORCH_DOCTOR_STATE_DIR=/state")
    with box(image, "sleep", "infinity", options=options) as found:
        script = "head -c 1m /dev/zero > /state/filler; head -c 1m /dev/zero | tr '\\0' x; echo; echo the end; exit 9"
        done = found.exec("torch-doctor", *RUN, "--", "sh", "-c", script)
        assert done.returncode == 9 and done.stdout.endswith("the end\n")
        assert done.stdout.count("x") <= 1 << 20, "no byte is shown twice"
        row = found.ps()["exp"]
        assert (row["state"], row["exit_status"]) == ("failed", 9)
        assert row["log_lost_bytes"] > 500000
        assert found.exec("torch-doctor", "logs", "exp").stdout.endswith("the end\n"), "kept beside the sockets"


@pytest.mark.parametrize(
    "options",
    [
        ("--read-only", "--tmpfs", "/tmp:exec"),
        ("--read-only",),
        ("--volume", "/usr/share:/workspace:ro"),
    ],
    ids=["read-only", "read-only-without-tmp", "read-only-workspace"],
)
def test_a_session_runs_where_its_usual_folder_cannot_be_written(image: str, options: tuple[str, ...]) -> None:
    with box(image, *RUN, "--", "python", "-c", READY, options=options) as found:
        found.ready()
        assert found.ps()["exp"]["state"] == "running"
        assert found.exec("torch-doctor", "stop").returncode == 0
        assert found.wait() == 143


def test_strict_refuses_to_start_and_names_the_fault(image: str) -> None:
    options = ("--env", "TORCH_DOCTOR_SELECT=FS002", "--env", "TMPDIR=/proc/none")
    done = containers.run(image, "run", "--check", "strict", "--", "echo", "started", options=options)
    assert done.returncode == 1 and "started" not in done.stdout.split()
    assert "error FS002 tmp-not-writable" in done.stderr


def test_health_is_quick_and_tells_a_dead_session(image: str) -> None:
    with box(image, "sleep", "infinity") as found:
        assert found.exec("torch-doctor", "health").returncode == 0
        assert found.exec("torch-doctor", *RUN, "--", "false").returncode == 1
        dead = found.exec("torch-doctor", "health")
        assert dead.returncode == 1 and dead.stdout.startswith("session exp failed")


def test_the_images_configuration_is_the_packages(image: str) -> None:
    code = (
        "from pathlib import Path; import torch_doctor.sessions.views as v\n"
        "for n in ('tmux.conf', 'screenrc'):\n"
        "    assert (Path(v.__file__).parent / n).read_text() == (Path('/etc/torch-doctor') / n).read_text(), n"
    )
    done = containers.run(image, "python", "-c", code)
    assert done.returncode == 0, done.stderr


def test_tmux_has_the_mouse_and_fifty_thousand_lines(image: str, terminal: Any) -> None:
    with box(image, *RUN, "--", "python", "-c", ECHO) as found:
        found.ready()
        terminal("exec", "-it", found.id, "torch-doctor", "attach").until("Ctrl-b d")
        sockets = found.exec("sh", "-c", "ls /tmp/torch-doctor-1000/*/tmux.sock").stdout.split()
        options = found.exec("tmux", "-S", sockets[0], "show-options", "-g").stdout
        assert "mouse on" in options and "history-limit 50000" in options
        assert found.exec("sh", "-c", "stat -c %a /tmp/torch-doctor-1000").stdout.strip() == "700"


def test_a_command_and_a_shell_without_run_are_no_sessions(image: str) -> None:
    done = containers.run(image, "python", "-c", "print('plain')", options=("--shm-size=2g",))
    assert (done.returncode, done.stdout) == (0, "plain\n")
    with box(image, "sleep", "infinity") as found:
        assert found.ps() == {}

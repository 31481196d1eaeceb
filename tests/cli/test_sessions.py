"""``run``, ``ps``, ``logs``, ``stop``, ``wait``, ``rm``, ``health`` as a user meets them, on the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sessions import Sessions, gone, sessions, until

from torch_doctor.sessions import launch

READY_AND_WAIT = "print('ready', flush=True); import signal; signal.pause()"


@pytest.fixture
def doctor(tmp_path: Path) -> Iterator[Sessions]:
    with sessions(tmp_path / "state") as found:
        yield found


def test_without_a_terminal_run_streams_the_output_and_ends_with_the_childs_status(doctor: Sessions) -> None:
    done = doctor("run", "--check", "off", "--name", "a", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\nerr\n")
    assert "a: failed after" in done.stderr and "exit status 7" in done.stderr
    row = doctor.ps()["a"]
    assert (row["state"], row["exit_status"], row["last_line"]) == ("failed", 7, "err")


def test_options_of_the_command_are_its_own_even_without_dashes(doctor: Sessions) -> None:
    done = doctor(
        "run", "--check", "off", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--name", "x", "-d"
    )
    assert (done.returncode, done.stdout) == (0, "['--name', 'x', '-d']\n")


def test_a_session_is_named_after_its_script_and_numbered(doctor: Sessions, tmp_path: Path) -> None:
    (tmp_path / "train_it.py").write_text("print('ready')")
    for expected in ("train_it", "train_it-2", "train_it-3"):
        done = doctor("run", "-d", "--check", "off", "--", sys.executable, "train_it.py", cwd=tmp_path)
        assert done.stdout == f"{expected}\n"


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "../a", "a b", "a\nb", "a;b", "$(a)", "a:b", "x" * 65, "é"])
def test_a_bad_name_is_refused_and_named(doctor: Sessions, name: str) -> None:
    done = doctor("run", "--check", "off", f"--name={name}", "--", "true")
    assert done.returncode == 2 and repr(name) in done.stderr and done.stdout == ""


def test_a_running_name_is_refused_and_an_ended_one_is_kept_aside(doctor: Sessions) -> None:
    place = doctor.python("exp", READY_AND_WAIT)
    done = doctor("run", "--check", "off", "--name", "exp", "--", "true")
    assert done.returncode == 2 and "exp: a session of this name is already running" in done.stderr
    assert doctor("stop", "exp").returncode == 0
    assert doctor("run", "--check", "off", "--name", "exp", "--", "echo", "second").stdout == "second\n"
    assert (place / "previous" / "1" / "log").read_bytes() == b"ready\n"
    assert doctor("logs", "exp").stdout == "second\n"


def test_two_runs_of_one_name_racing_give_one_session(doctor: Sessions) -> None:
    racing = [doctor.popen("run", "-d", "--check", "off", "--name", "one", "--", "sleep", "600") for _ in range(8)]
    ended = sorted((p.communicate(timeout=120), p.returncode) for p in racing)
    statuses = sorted(status for _, status in ended)
    assert statuses == [0] + [2] * 7
    assert all(b"already running" in err for (_, err), status in ended if status == 2)
    assert list(doctor.ps()) == ["one"]


@pytest.mark.slow
def test_fifty_sessions_started_at_once_all_run_and_are_told_apart(doctor: Sessions) -> None:
    starting = [
        doctor.popen("run", "--check", "off", "--no-postmortem", "--", "sh", "-c", f"echo I am {n}; exit {n}")
        for n in range(50)
    ]
    for number, process in enumerate(starting):
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out) == (number, f"I am {number}\n".encode()), err
    rows = doctor.ps()
    assert len(rows) == 50 and sorted(r["exit_status"] for r in rows.values()) == list(range(50))
    assert all(r["last_line"] == f"I am {r['exit_status']}" for r in rows.values())


def test_a_command_with_every_awkward_character_arrives_as_it_was_given(doctor: Sessions, tmp_path: Path) -> None:
    program = tmp_path / "-we ird\n'\";$(touch pwned)`touch pwned`*.py"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(repr(sys.argv[1:]))\n")
    program.chmod(0o755)
    arguments = [
        "a b",
        "'",
        '"',
        "\n",
        ";",
        "$(touch pwned)",
        "-dash",
        "--",
        "",
        "*",
        "~",
        "%s",
        "#{x}",
        "\\",
        "é",
        "\udcff",
    ]
    done = doctor("run", "--check", "off", "--name", "odd", "--", str(program), *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, repr(arguments))
    on_path = doctor("run", "--check", "off", "--", program.name, "x", env={"PATH": str(tmp_path)}, cwd=tmp_path)
    assert (on_path.returncode, on_path.stdout) == (0, "['x']\n")
    assert not (tmp_path / "pwned").exists()
    assert doctor.ps()["odd"]["command"] == [str(program), *arguments]
    table = doctor("ps")
    assert table.returncode == 0 and "odd" in table.stdout
    assert len(table.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        (("no-such-program-here",), 127, "command not found"),
        (("/no/such/program",), 127, "No such file or directory"),
        (("/etc/passwd",), 126, "Permission denied"),
    ],
)
def test_a_command_that_cannot_be_started_ends_as_in_a_shell(
    doctor: Sessions, command: tuple[str, ...], status: int, text: str
) -> None:
    done = doctor("run", "--check", "off", "--name", "x", "--restart", "on-failure:3", "--", *command)
    assert done.returncode == status and text in done.stderr and "Traceback" not in done.stderr
    assert doctor.ps()["x"]["state"] == "failed"


def test_environment_folder_and_crash_settings_reach_the_command(doctor: Sessions, tmp_path: Path) -> None:
    code = (
        "import json, os; print(json.dumps({k: os.environ.get(k) for k in "
        "('A', 'B', 'PYTHONFAULTHANDLER', 'TORCHELASTIC_ERROR_FILE', 'TORCH_FR_BUFFER_SIZE', 'TMUX', 'COLUMNS')}"
        " | {'cwd': os.getcwd()}))"
    )
    done = doctor(
        *("run", "--check", "off", "--name", "e", "--env", "A=1 2", "--env", "B", "--cwd", tmp_path),
        *("--", sys.executable, "-c", code),
        env={"B": "inherited", "TORCH_FR_BUFFER_SIZE": "7", "TMUX": "/x,1,0"},
    )
    assert json.loads(done.stdout) == {
        "A": "1 2",
        "B": "inherited",
        "PYTHONFAULTHANDLER": "1",
        "TORCHELASTIC_ERROR_FILE": str(doctor.folder("e") / "error.json"),
        "TORCH_FR_BUFFER_SIZE": "7",
        "TMUX": None,
        "COLUMNS": None,
        "cwd": str(tmp_path),
    }


def test_no_value_of_the_environment_is_written_down(doctor: Sessions) -> None:
    doctor("run", "--check", "off", "--name", "s", "--env", "API_KEY=hunter2secret", "--", "true")
    written = b"".join(p.read_bytes() for p in doctor.root.rglob("*") if p.is_file())
    assert b"hunter2secret" not in written


def test_stop_ends_a_session_with_sigterm_and_its_checkpoint_survives(doctor: Sessions, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    code = (
        "import signal, sys, time, pathlib\n"
        f"def save(*_): time.sleep(0.5); pathlib.Path({str(checkpoint)!r}).write_text('saved'); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, save); print('ready', flush=True); signal.pause()"
    )
    doctor.python("t", code)
    done = doctor("stop")
    assert done.returncode == 0 and "stopped by torch-doctor stop: SIGTERM, exit status 5" in done.stderr
    assert checkpoint.read_text() == "saved"
    row = doctor.ps()["t"]
    assert (row["state"], row["exit_status"], row["stopped_by"]) == ("stopped", 5, "stop")
    assert doctor("wait", "t").returncode == 5


def test_a_child_that_ignores_sigterm_is_killed_when_the_grace_time_is_over(doctor: Sessions) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY_AND_WAIT
    doctor.python("deaf", code)
    start = time.monotonic()
    done = doctor("stop", "deaf", "--grace", "1")
    assert 1.0 <= time.monotonic() - start < 15
    assert "SIGTERM, and SIGKILL when the grace time was over" in done.stderr
    assert doctor("wait", "deaf").returncode == 137


def test_daemons_and_orphans_of_the_child_end_with_the_session(doctor: Sessions, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, signal
def tell():
    with open({str(pids)!r}, "a") as stream:
        stream.write(f"{{os.getpid()}}\\n")
def daemon(deaf):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if deaf:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.closerange(0, 3)
            tell()
            signal.pause()
        os._exit(0)
    os.wait()
daemon(False)
daemon(True)
if os.fork() == 0:
    tell()
    signal.pause()
print("ready", flush=True)
signal.pause()
"""
    doctor.python("forks", code)
    started = until(lambda: [int(p) for p in pids.read_text().split()] if pids.exists() else [], "the daemons")
    started = until(lambda: found if len(found := [int(p) for p in pids.read_text().split()]) == 3 else None)
    assert not any(map(gone, started))
    doctor("stop", "forks", "--grace", "1")
    assert all(map(gone, started))
    # it tells the end before it ends itself
    supervisor = doctor.supervisor("forks")
    until(lambda: gone(supervisor), "the supervisor to end")


def test_what_a_child_leaves_when_it_ends_by_itself_is_ended_too(doctor: Sessions) -> None:
    done = doctor(
        *("run", "--check", "off", "--name", "leaves", "--grace", "1", "--"),
        *("sh", "-c", "setsid sh -c 'trap \"\" TERM; echo pid $$; exec sleep 600' & sleep 0.5; exit 0"),
        timeout=60,
    )
    assert done.returncode == 0
    assert gone(int(done.stdout.split()[1]))


def test_workers_of_multiprocessing_are_left_to_their_parent(doctor: Sessions) -> None:
    code = """
import multiprocessing, signal
def work(queue):
    signal.signal(signal.SIGTERM, lambda *_: queue.put("signalled"))
    queue.put("up")
    signal.pause()
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,), daemon=True)
    worker.start()
    queue.get()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM])
    worker.join(0.5)
    print("worker", worker.is_alive(), queue.empty(), flush=True)
"""
    doctor.python("workers", code)
    doctor("stop", "workers", "--grace", "20")
    assert doctor.log("workers") == b"ready\nworker True True\n"


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (signal.SIGKILL, 137, "SIGKILL"),
        (signal.SIGSEGV, 139, "SIGSEGV"),
        (signal.SIGBUS, 135, "SIGBUS: shared memory was full, or a memory-mapped file was cut short; /dev/shm had"),
        (signal.SIGTERM, 143, "SIGTERM from another process"),
    ],
)
def test_a_child_that_a_signal_ends_is_recorded_with_it(
    doctor: Sessions, number: int, status: int, reason: str
) -> None:
    doctor.python("hit", READY_AND_WAIT)
    os.kill(doctor.child("hit"), number)
    done = doctor("wait", "hit")
    assert done.returncode == status and reason in done.stderr
    row = doctor.ps()["hit"]
    assert (row["state"], row["signal"]) == ("failed", signal.Signals(number).name)
    assert row["peak_rss_bytes"] > 1 << 20


def test_a_real_bus_error_is_recorded(doctor: Sessions, tmp_path: Path) -> None:
    code = (
        "import mmap, os\n"
        f"stream = open({str(tmp_path / 'mapped')!r}, 'w+b')\n"
        "stream.truncate(8192); view = mmap.mmap(stream.fileno(), 8192); stream.truncate(0); view[5000]\n"
    )
    done = doctor("run", "--check", "off", "--no-postmortem", "--name", "bus", "--", sys.executable, "-c", code)
    assert done.returncode == 135
    assert "Fatal Python error: Bus error" in done.stdout, "PYTHONFAULTHANDLER tells where"
    assert doctor.ps()["bus"]["signal"] == "SIGBUS"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_that_is_told_to_end_ends_the_run_in_good_order(doctor: Sessions, number: int) -> None:
    code = (
        "import signal, sys\n"
        "for n in (signal.SIGTERM, signal.SIGINT):\n"
        "    signal.signal(n, lambda n, _: (print('got', signal.Signals(n).name, flush=True), sys.exit(4)))\n"
        "print('ready', flush=True); signal.pause()"
    )
    doctor.python("sup", code)
    os.kill(doctor.supervisor("sup"), number)
    ended = doctor.ended("sup")
    assert (ended.status, ended.exit_status) == ("stopped", 4)
    assert ended.exit is not None and ended.exit.stopped_by == "signal"
    assert f"process {os.getpid()}" in ended.exit.reason
    assert doctor.log("sup").decode().endswith(f"got {signal.Signals(number).name}\n")


def test_sighup_reaches_neither_the_supervisor_nor_the_child(doctor: Sessions) -> None:
    # torchrun installs a handler of its own for SIGHUP and ends on it: ignoring it beforehand does not help
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGHUP, lambda *_: (print('hung up', flush=True), sys.exit(1)))\n"
        "print('ready', flush=True); signal.pause()"
    )
    doctor.python("hup", code)
    for _ in range(3):
        os.kill(doctor.supervisor("hup"), signal.SIGHUP)
    assert doctor("ps").returncode == 0
    assert doctor.state("hup").status == "running" and b"hung up" not in doctor.log("hup")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_to_the_foreground_reach_the_command(doctor: Sessions, number: int) -> None:
    code = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: (print('checkpoint', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True); signal.pause()"
    )
    running = doctor.popen("run", "--check", "off", "--name", "u", "--", sys.executable, "-c", code)
    until(lambda: b"ready" in doctor.log("u"))
    running.send_signal(number)
    out, _ = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, b"ready\ncheckpoint\n")


def test_sigterm_to_the_foreground_stops_the_run_and_sighup_does_not(doctor: Sessions) -> None:
    code = READY_AND_WAIT
    running = doctor.popen("run", "--check", "off", "--name", "fg", "--", sys.executable, "-c", code)
    until(lambda: b"ready" in doctor.log("fg"))
    running.send_signal(signal.SIGHUP)  # the connection that run was typed in
    running.communicate(timeout=60)
    assert doctor.state("fg").status == "running"
    other = doctor.popen("run", "--check", "off", "--name", "fg2", "--", sys.executable, "-c", code)
    until(lambda: b"ready" in doctor.log("fg2"))
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=60)
    assert other.returncode == 143 and doctor.ps()["fg2"]["stopped_by"] == "signal"


def test_a_supervisor_that_is_killed_leaves_a_lost_session_that_stop_cleans_up(doctor: Sessions) -> None:
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); " + READY_AND_WAIT
    doctor.python("lost", code)
    child = doctor.child("lost")
    os.kill(doctor.supervisor("lost"), signal.SIGKILL)
    until(lambda: doctor.ps()["lost"]["state"] == "lost")
    unhealthy = doctor("health")
    assert (unhealthy.returncode, unhealthy.stdout) == (1, "session lost lost\n")
    assert doctor("rm", "lost").returncode == 2, "its process still lives"
    again = doctor("run", "--check", "off", "--name", "lost", "--", "true")
    assert again.returncode == 2 and str(child) in again.stderr
    assert doctor("wait", "lost").returncode == 3
    assert not gone(child)
    doctor("stop", "lost")
    assert gone(child)
    assert doctor("run", "--check", "off", "--name", "lost", "--", "true").returncode == 0


def test_restart_on_failure_starts_again_so_many_times(doctor: Sessions, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/starts; test $(wc -l < {tmp_path}/starts) -ge 3 && exit 0; exit 9"
    done = doctor("run", "--check", "off", "--name", "again", "--restart", "on-failure:5", "--", "sh", "-c", script)
    assert done.returncode == 0 and (tmp_path / "starts").read_text() == "x\n" * 3
    assert doctor.ps()["again"]["restarts"] == 2
    done = doctor(
        "run", "--check", "off", "--restart", "on-failure:1", "--name", "b", "--", "sh", "-c", "echo t; exit 9"
    )
    assert (done.returncode, done.stdout) == (9, "t\nt\n")


@pytest.mark.parametrize("wish", ["always", "on-failure", "on-failure:x", "on-failure:-1"])
def test_a_restart_policy_that_is_none_is_named(doctor: Sessions, wish: str) -> None:
    done = doctor("run", "--restart", wish, "--", "true")
    assert done.returncode == 2 and wish in done.stderr


def test_stop_between_two_attempts_ends_the_session(doctor: Sessions) -> None:
    doctor.start("r", "sh", "-c", "exit 9", options=("--restart", "on-failure:1000"))
    until(lambda: doctor.state("r").status == "restarting")
    assert doctor("stop", "r").returncode == 0
    assert doctor.state("r").status == "stopped"


def test_the_preflight_report_is_kept_and_strict_refuses_on_an_error(doctor: Sessions, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    run = ("run", "--name", "p", "--", sys.executable, "train.py")
    failing = {"TMPDIR": "/proc/no/such/folder", "TORCH_DOCTOR_SELECT": "FS002"}
    warned = doctor(*run, cwd=tmp_path, env=failing)
    assert warned.returncode == 0 and warned.stdout == "trained\n"
    assert "error FS002 tmp-not-writable: temporary files have no place" in warned.stderr
    assert json.loads((doctor.folder("p") / "preflight.json").read_text())["findings"][0]["id"] == "FS002"
    strict = doctor("run", "--check", "strict", *run[1:], cwd=tmp_path, env=failing)
    assert strict.returncode == 1 and strict.stdout == "" and "FS002" in strict.stderr
    assert not (doctor.folder("p") / "previous").exists(), "nothing was started"
    passed = doctor("run", "--check", "strict", *run[1:], cwd=tmp_path, env={"TORCH_DOCTOR_SELECT": "FS002"})
    assert passed.returncode == 0


def test_a_folder_with_python_modules_of_the_same_names_does_not_disturb(doctor: Sessions, tmp_path: Path) -> None:
    for name in ("json", "socket", "signal", "typing", "selectors", "torch_doctor"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    done = subprocess.run(
        launch.doctor_command("run", "--name", "s", "--", "echo", "fine"),
        env={**doctor.environment, "TORCH_DOCTOR_SELECT": "SHM001"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert "preflight" in done.stderr and "did not run" not in done.stderr


def test_logs_by_lines_plain_and_followed(doctor: Sessions) -> None:
    script = r"printf 'one\n\033[31mtwo\033[0m\n 10%%\r 50%%\r100%%\nlast\n'; sleep 0.3; echo late"
    following = None
    doctor.start("l", "sh", "-c", script)
    following = doctor.popen("logs", "l", "-f")
    assert following.communicate(timeout=60)[0] == doctor.log("l")
    assert doctor.log("l") == b"one\n\x1b[31mtwo\x1b[0m\n 10%\r 50%\r100%\nlast\nlate\n"
    assert doctor("logs", "-n", "2").stdout == "last\nlate\n"
    assert doctor("logs", "l", "--plain").stdout == "one\ntwo\n100%\nlast\nlate\n"
    assert doctor("logs", "l", "--plain", "-f", "-n", "3").stdout == "100%\nlast\nlate\n"


def test_plain_and_followed_while_it_runs(doctor: Sessions) -> None:
    doctor.start("l", "sh", "-c", r"printf ' 1%%\r 2%%\n'; sleep 1; printf ' 3%%\r 4%%\n'")
    done = doctor("logs", "l", "-f", "--plain")
    assert done.stdout == " 2%\n 4%\n"


def test_the_log_is_rotated_where_asked_and_logs_reads_over_it(doctor: Sessions) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
    done = doctor("run", "--check", "off", "--name", "rot", "--log-size", "16k", "--", "sh", "-c", script)
    expected = "".join(f"line {i}\n" for i in range(3000))
    assert done.stdout == expected
    assert (doctor.folder("rot") / "log.1").exists()
    assert doctor("logs", "rot").stdout == expected


def test_a_failure_is_explained_when_the_session_ends(doctor: Sessions) -> None:
    error = "DataLoader worker (pid 123) is killed by signal: Bus error."
    done = doctor("run", "--check", "off", "--name", "x", "--", "sh", "-c", f"echo 'RuntimeError: {error}'; exit 1")
    assert done.returncode == 1
    assert "cause: SHM201" in done.stderr and "details: torch-doctor explain --session x" in done.stderr
    assert json.loads((doctor.folder("x") / "postmortem.json").read_text())["command"] == "explain"
    assert doctor.ps()["x"]["cause"].startswith("SHM201")
    assert "cause: SHM201" in doctor("wait", "x").stderr
    without = doctor(
        "run", "--check", "off", "--no-postmortem", "--name", "y", "--", "sh", "-c", f"echo '{error}'; exit 1"
    )
    assert "cause" not in without.stderr and not (doctor.folder("y") / "postmortem.json").exists()


def test_one_session_need_not_be_named_and_several_must(doctor: Sessions) -> None:
    none = doctor("stop")
    assert none.returncode == 2 and "there is none" in none.stderr
    doctor.python("a", READY_AND_WAIT)
    doctor("run", "--check", "off", "--name", "b", "--", "echo", "b")
    several = doctor("logs")
    assert several.returncode == 2 and "a, b" in several.stderr
    assert doctor("stop").returncode == 0, "only one of them runs"
    assert doctor.ps()["a"]["state"] == "stopped"
    unknown = doctor("logs", "nobody")
    assert unknown.returncode == 2 and "nobody" in unknown.stderr


def test_rm_forgets_ended_sessions_and_refuses_running_ones(doctor: Sessions) -> None:
    doctor.python("live", READY_AND_WAIT)
    doctor("run", "--check", "off", "--name", "b", "--", "true")
    doctor("run", "--check", "off", "--name", "c", "--", "true")
    refused = doctor("rm", "live")
    assert refused.returncode == 2 and "live: is running" in refused.stderr
    assert doctor("rm", "b").stdout == "b\n"
    assert doctor("rm", "--ended").stdout == "c\n"
    assert list(doctor.ps()) == ["live"]
    assert doctor("rm", "../sessions/live").returncode == 2


def test_attach_to_an_ended_session_shows_its_end_and_ends_with_its_status(doctor: Sessions) -> None:
    doctor("run", "--check", "off", "--name", "e", "--", "sh", "-c", "seq 1 50; exit 6")
    done = doctor("attach", "e")
    assert done.returncode == 6
    assert done.stdout == "".join(f"{n}\n" for n in range(31, 51))
    assert "e: failed after" in done.stderr


def test_attach_without_a_terminal_follows_to_the_end(doctor: Sessions) -> None:
    doctor.start("f", "sh", "-c", "echo one; sleep 1; echo two; exit 3")
    done = doctor("attach", "f")
    assert (done.returncode, done.stdout) == (3, "one\ntwo\n")


def test_wait_ends_with_the_childs_status_however_many_wait(doctor: Sessions) -> None:
    doctor.start("w", "sh", "-c", "sleep 1; exit 12")
    waiting = [doctor.popen("wait", "w") for _ in range(3)]
    assert [(p.communicate(timeout=60), p.returncode)[1] for p in waiting] == [12, 12, 12]


def test_health_is_one_line_and_a_failed_session_of_this_boot_is_dead(doctor: Sessions) -> None:
    healthy = doctor("health")
    assert healthy.returncode == 0 and len(healthy.stdout.splitlines()) == 1
    doctor.python("up", READY_AND_WAIT)
    assert doctor("health").returncode == 0
    doctor("stop", "up")
    assert doctor("health").returncode == 0, "stopped on purpose is not dead"
    doctor("run", "--check", "off", "--name", "bad", "--", "false")
    dead = doctor("health")
    assert (dead.returncode, dead.stdout) == (1, "session bad failed (exit status 1)\n")
    assert list(doctor.ps()) and doctor.state("bad").status == "failed", "it restarts nothing"
    doctor("rm", "bad")
    assert doctor("health").returncode == 0


def test_a_reader_that_stops_reading_does_not_hold_the_run_up(doctor: Sessions) -> None:
    running = doctor.popen(
        *("run", "--check", "off", "--name", "full", "--", "sh", "-c", "head -c 5000000 /dev/zero; echo end")
    )
    # nobody reads the pipe: it is full after 64 KiB
    until(lambda: doctor.log("full").endswith(b"end\n"), "the end of the output")
    assert running.poll() is None
    out, _ = running.communicate(timeout=60)
    assert len(out) == 5000004 and running.returncode == 0


def test_a_reader_that_goes_away_does_not_end_the_run(doctor: Sessions) -> None:
    running = doctor.popen(
        "run", "--check", "off", "--name", "gone", "--", "sh", "-c", "sleep 1; seq 1 100000; exit 2"
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.wait(timeout=60) == 2
    assert running.stderr is not None
    running.stderr.close()
    assert doctor.ps()["gone"]["last_line"] == "100000"


@pytest.mark.slow
def test_a_gigabyte_at_full_speed_is_in_the_log_byte_for_byte(doctor: Sessions, tmp_path: Path) -> None:
    code = (
        "import hashlib, os, sys\n"
        "block = bytes(range(256)) + b''.join(b'%07d%s\\r%s\\n' % (i, b'.' * 40, b'#' * 40) for i in range(20000))\n"
        "digest, total = hashlib.sha256(), 0\n"
        "while total < 1 << 30:\n"
        "    digest.update(block); total += len(block); view = memoryview(block)\n"
        "    while view: view = view[os.write(1, view):]\n"
        f"open({str(tmp_path / 'sum')!r}, 'w').write(f'{{total}} {{digest.hexdigest()}}')\n"
    )
    doctor.start("gb", sys.executable, "-c", code)
    rss = []
    while doctor.state("gb").live:
        found = Path(f"/proc/{doctor.supervisor('gb')}/status")
        if found.exists():
            text = found.read_text()
            rss += [int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")]
        time.sleep(0.2)
    total, digest = (tmp_path / "sum").read_text().split()
    log = doctor.folder("gb") / "log"
    assert log.stat().st_size == int(total)
    told = subprocess.run(["sha256sum", str(log)], capture_output=True, text=True, check=True)
    assert told.stdout.split()[0] == digest
    assert rss and max(rss) < 40 * 1024, f"the supervisor took {max(rss)} KiB"


def test_input_typed_by_nobody_leaves_a_reader_waiting_not_failing(doctor: Sessions) -> None:
    doctor.python("in", "print('ready', flush=True); input()")
    assert doctor.state("in").status == "running"


def test_the_clock_set_back_changes_nothing(doctor: Sessions, tmp_path: Path) -> None:
    source = tmp_path / "clock.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
        "int clock_gettime(clockid_t id, struct timespec *at) {\n"
        "  int status = syscall(SYS_clock_gettime, id, at);\n"
        f'  if (id == CLOCK_REALTIME && access("{tmp_path}/back", F_OK) == 0) at->tv_sec -= 86400 * 400;\n'
        "  return status;\n}\n"
    )
    library = tmp_path / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    doctor.environment["LD_PRELOAD"] = str(library)
    doctor.python("clock", READY_AND_WAIT)
    before = time.monotonic()
    (tmp_path / "back").touch()
    shown = subprocess.run(
        ["env", f"LD_PRELOAD={library}", sys.executable, "-c", "import time; print(time.time())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(shown.stdout) < time.time() - 86400 * 300, "the clock is really back"
    row = doctor.ps()["clock"]
    assert row["state"] == "running" and 0 <= row["age_s"] < 600
    assert doctor("run", "--check", "off", "--name", "clock", "--", "true").returncode == 2
    assert doctor("stop", "clock").returncode == 0
    row = doctor.ps()["clock"]
    assert row["state"] == "stopped" and 0 <= row["duration_s"] <= time.monotonic() - before + 60
    assert doctor("wait", "clock").returncode == 143
    assert doctor("ps").returncode == 0


def test_a_log_that_cannot_grow_does_not_stop_the_run(doctor: Sessions) -> None:
    code = (
        "import resource, subprocess, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))\n"
        "subprocess.run(sys.argv[1:])\n"
    )
    inner = doctor.command("run", "-d", "--check", "off", "--no-postmortem", "--name", "cut", "--")
    script = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end of output; exit 4"
    subprocess.run(
        [sys.executable, "-c", code, *inner, "sh", "-c", script], env=doctor.environment, check=True, timeout=60
    )
    ended = doctor.ended("cut")
    assert (ended.status, ended.exit_status) == ("failed", 4), "the run went on, and its end is recorded"
    size = len(doctor.log("cut"))
    assert size == 200000 and ended.log_gaps[0].offset == size
    assert ended.log_gaps[0].error == "File too large" and ended.log_gaps[0].lost_bytes == 1000015 - size


def test_a_state_folder_that_is_too_long_for_a_socket_works(tmp_path: Path) -> None:
    with sessions(tmp_path / ("deep" * 30) / ("er" * 40)) as doctor:
        doctor.python("far", READY_AND_WAIT)
        assert doctor("stop", "far").returncode == 0


def test_a_state_folder_that_cannot_be_written_gives_way_to_one_under_tmp(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with sessions(tmp_path / "file" / "state") as doctor:
        done = doctor("run", "--check", "off", "--name", f"t{os.getpid()}", "--", "echo", "fine")
        assert (done.returncode, done.stdout) == (0, "fine\n")
        assert f"t{os.getpid()}" in doctor.ps()
        assert doctor("rm", f"t{os.getpid()}").returncode == 0


def test_folders_and_sockets_are_the_owners_alone(doctor: Sessions) -> None:
    doctor.python("m", READY_AND_WAIT)
    place = doctor.folder("m")
    assert place.parent.stat().st_mode & 0o777 == 0o700 and place.stat().st_mode & 0o777 == 0o700
    for path in place.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_supervisor_holds_no_descriptor_of_whoever_started_it(doctor: Sessions) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    done = subprocess.run(
        doctor.command("run", "-d", "--check", "off", "--name", "d", "--", "sleep", "600"),
        env=doctor.environment,
        capture_output=True,
        close_fds=False,
        timeout=60,
        check=True,
    )
    os.close(writer)
    assert done.stdout == b"d\n"
    assert os.read(reader, 1) == b"", "the pipe's end is not held open by the session"
    os.close(reader)

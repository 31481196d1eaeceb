"""The state file: whole at every moment, whatever kills the writer, and recorded on a full disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import places, state, store
from torch_doctor.sessions.state import Attempt, Exit, LogGap, Process, State

#: writes a second state, and is killed by SIGKILL in the middle of the N-th system call that touches the disk
KILLED_WRITER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from torch_doctor.sessions import store, state
from torch_doctor.sessions.state import State
remaining = int(sys.argv[3])
def deadly(function, half=None):
    def call(*args, **options):
        global remaining
        remaining -= 1
        if remaining == 0:
            if half is not None:
                half(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        return result
    return call
write = os.write
os.open = deadly(os.open)
os.write = deadly(os.write, lambda descriptor, data: write(descriptor, bytes(data)[: len(data) // 2]))
os.fsync = deadly(os.fsync)
os.close = deadly(os.close)
os.replace = deadly(os.replace)
store.write(Path(sys.argv[2]), State("a", ("new", "x" * 5000), revision=2))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(places.STATE_VARIABLE, str(tmp_path))
    folder = tmp_path / "sessions" / "a"
    folder.mkdir(parents=True)
    return folder


def test_a_state_comes_back_as_it_was_written(place: Path) -> None:
    known = State(
        "a",
        ("python", "-c", "\udcff\n"),
        supervisor=Process(1, 2, "b", "n", 4, "h", 3),
        attempts=(Attempt(1, 2.5, 3, "SIGKILL"),),
        exit=Exit(137, "SIGKILL", oom_kills=1),
        log_gaps=(LogGap(1, 2, "full"),),
    )
    assert store.write(place, known) == ""
    assert store.read(place) == known


def test_keys_of_a_newer_version_are_passed_over(place: Path) -> None:
    values = state.to_json(State("a", ("true",), exit=Exit(1)))
    values["news"] = values["exit"]["news"] = 1
    (place / store.STATE).write_text(json.dumps(values))
    assert store.read(place).exit_status == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"name": "a"}', '"x"', '{"command": 3, "name": "a"}'])
def test_a_file_that_is_no_state_is_an_error_that_names_it(place: Path, text: str) -> None:
    (place / store.STATE).write_text(text)
    with pytest.raises(DoctorError) as error:
        store.read(place)
    assert str(place / store.STATE) in str(error.value) and error.value.hint == "torch-doctor rm a"


def test_a_writer_killed_at_any_point_leaves_the_old_state_or_the_new_one(place: Path) -> None:
    root = Path(store.__file__).parents[2]
    seen = set()
    for point in range(1, 30):
        store.write(place, State("a", ("old",), revision=1))
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", KILLED_WRITER, str(root), str(place), str(point)],
            env=os.environ,
            timeout=60,
            check=False,
            capture_output=True,
        )
        found = store.read(place)
        assert found.command[0] in ("old", "new") and (found.revision == 2) == (found.command[0] == "new")
        seen.add((done.returncode, found.command[0]))
        if done.returncode == 0:
            break
    assert seen == {(-signal.SIGKILL, "old"), (-signal.SIGKILL, "new"), (0, "new")}, (
        "killed before and after the rename"
    )


def test_where_the_folder_takes_nothing_the_state_is_found_all_the_same(place: Path) -> None:
    store.write(place, State("a", ("x",), revision=1))
    (place / f".{store.STATE}.tmp").mkdir()  # nothing can be written there, not even by root
    assert store.write(place, State("a", ("x",), status="done", revision=2)) == "Is a directory"
    assert store.read(place).status == "done"
    store.fallback_to(place).unlink()


def test_a_folder_without_a_state_is_no_session(place: Path) -> None:
    assert list(store.session_folders()) == []
    with pytest.raises(DoctorError, match="a: there is no session"):
        store.folder("a")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "\0", "x" * 5000])
def test_a_name_that_is_a_path_finds_nothing(place: Path, name: str) -> None:
    store.write(place, State("a", ("x",)))
    with pytest.raises(DoctorError):
        store.folder(name)


def test_facts_for_the_post_mortem(place: Path) -> None:
    how = Exit(137, "SIGKILL", duration=2.5, stopped_by="stop", oom_kills=1, memory_limit_bytes=5, shm_free_bytes=7)
    known = State("a", ("python", "t.py"), cwd="/w", status="failed", exit=how, attempts=(Attempt(), Attempt(99)))
    store.write(place, known)
    facts = store.facts("a")
    assert (facts.log, facts.log_offset, facts.attempts) == (str(place / "log"), 99, 2)
    assert (facts.exit_status, facts.signal, facts.out_of_memory, facts.stopped_by) == (137, "SIGKILL", True, "stop")
    assert (facts.memory_limit_bytes, facts.shm_free_bytes, facts.duration) == (5, 7, 2.5)


def test_facts_of_a_session_that_runs(place: Path) -> None:
    store.write(place, State("a", ("x",), status="running"))
    assert store.facts("a").exit_status is None and not store.facts("a").out_of_memory


def test_the_reserve_is_there_and_is_given_up_once(place: Path) -> None:
    store.reserve(place)
    assert (place / store.RESERVE).stat().st_blocks * 512 >= store.RESERVE_BYTES

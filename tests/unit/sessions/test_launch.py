"""The supervisor started as ``run`` starts it: what becomes of a post-mortem, a lock, an earlier run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sessions import until

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import client, environment, launch, lock, places, proc, store
from torch_doctor.sessions.spec import Spec
from torch_doctor.sessions.state import State


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(places.STATE_VARIABLE, str(tmp_path))
    yield tmp_path
    for place in store.session_folders():
        client.stop(place, 0.0, "stop")


def start(name: str, *command: str, **settings: Any) -> Path:
    place = launch.reserve(name, command, None)
    launch.keep_previous(place)
    wanted = Spec(name, str(place.folder), command, "/", "nohup", sockets=launch.sockets(place), **settings)
    variables = environment.for_command(os.environ, {}, name, place.folder, "dumb")
    assert launch.start(wanted, place, variables) is None
    return place.folder


def ended(place: Path) -> State:
    known = client.wait(place)
    until(lambda: not lock.is_held(place), "the end of the supervisor")
    return known


def test_a_post_mortem_that_hangs_is_cut_off(root: Path) -> None:
    known = ended(start("a", "false", postmortem=("/bin/sleep", "600"), postmortem_timeout=0.3))
    assert (known.status, known.exit_status, known.postmortem) == ("failed", 1, "")


def test_a_post_mortem_that_is_not_there_changes_nothing(root: Path) -> None:
    assert ended(start("a", "false", postmortem=("/no/such/program",))).status == "failed"


def test_stop_during_the_post_mortem_ends_it(root: Path) -> None:
    place = start("a", "false", postmortem=("/bin/sleep", "600"))
    until(lambda: store.read(place).exit is not None)
    assert client.request_stop(place, None, "stop")
    assert ended(place).status == "failed"


def test_the_command_does_not_hold_the_lock(root: Path) -> None:
    place = start("a", "sleep", "600")
    child = store.read(place).child
    assert child is not None
    held = {os.readlink(f) for f in Path(f"/proc/{child.pid}/fd").iterdir()}  # noqa: PTH115
    assert len(held) == 1 and next(iter(held)).startswith("/dev/pts/"), "nothing but its terminal"


def test_what_an_earlier_run_left_is_numbered(root: Path) -> None:
    for number in ("one", "two", "three"):
        ended(start("a", "echo", number))
    place = root / "sessions" / "a"
    assert (place / "log").read_text() == "three\n"
    assert [(place / "previous" / n / "log").read_text() for n in ("1", "2")] == ["one\n", "two\n"]


def test_a_name_given_up_before_a_start_leaves_no_folder_and_an_earlier_run_whole(root: Path) -> None:
    launch.reserve("a", ("x",), None).release()
    assert not (root / "sessions" / "a").exists()
    place = start("a", "echo", "kept")
    ended(place)
    launch.reserve("a", ("x",), None).release()
    assert (place / "log").read_text() == "kept\n" and store.read(place).status == "done"


def test_the_end_is_told_to_who_waits_and_read_by_who_comes_late(root: Path) -> None:
    place = start("a", "sh", "-c", "exit 3")
    assert client.ended_status(client.wait(place)) == 3
    assert client.ended_status(client.wait(place)) == 3


def test_a_process_left_by_a_dead_supervisor_keeps_its_name_taken(root: Path) -> None:
    place = start("a", "sh", "-c", "trap '' HUP; while :; do sleep 1; done")
    known = store.read(place)
    assert known.supervisor is not None
    os.kill(known.supervisor.pid, 9)
    until(lambda: launch.current(place).status == "lost")
    with pytest.raises(DoctorError, match="still live"):
        launch.reserve("a", ("x",), None)
    client.stop(place, 0.1, "stop")
    assert not proc.of_session("a", str(place), proc.all_processes())
    launch.reserve("a", ("x",), None).release()

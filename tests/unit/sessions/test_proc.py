"""Processes: parsing, identity that survives reuse of a PID, descendants, and whom a stop signals."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from support.sessions import until

from torch_doctor.sessions import proc
from torch_doctor.sessions.proc import Stat

LINE = (
    "4242 (a) b (c) S 17 4240 4200 34816 4242 4194304 1 0 0 0 3 1 0 0 20 0 1 0 98765 10485760 512 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0"
)


def stat(pid: int, parent: int, group: int = 0, state: str = "S") -> Stat:
    return Stat(pid, "x", state, parent, group, 0, 0)


def test_a_name_with_brackets_and_spaces_is_parsed() -> None:
    assert proc.parse_stat(LINE) == Stat(4242, "a) b (c", "S", 17, 4240, 98765, 512 * proc.PAGE_BYTES)


@pytest.mark.parametrize("text", ["", "1 (x", "x (y) z", "1 (x) S 1"])
def test_what_is_no_stat_line_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        proc.parse_stat(text)


def test_a_process_is_itself_only_with_its_start_time() -> None:
    me = proc.identity(os.getpid())
    assert me is not None and proc.alive(me)
    assert not proc.alive(dataclasses.replace(me, start_ticks=me.start_ticks + 1)), "a PID that was reused"
    assert not proc.alive(dataclasses.replace(me, boot_id="another boot"))
    assert proc.elsewhere(dataclasses.replace(me, pid_namespace="pid:[1]"))
    assert proc.elsewhere(dataclasses.replace(me, first_ticks=me.first_ticks + 1)), (
        "a namespace number that was reused"
    )
    assert not proc.elsewhere(dataclasses.replace(me, first_ticks=0)), "PID 1 was hidden from its user"
    assert not proc.elsewhere(me) and not proc.alive(None)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = proc.identity(child.pid)
    assert proc.alive(known)
    child.communicate(b"\n")
    assert not proc.alive(known)


def test_descendants_are_found_to_any_depth() -> None:
    family = {s.pid: s for s in (stat(2, 1), stat(3, 2), stat(4, 3), stat(5, 1), stat(6, 0))}
    assert sorted(s.pid for s in proc.descendants(1, family)) == [2, 3, 4, 5]
    assert proc.descendants(6, family) == []


@pytest.mark.parametrize(
    ("line", "parents", "worker"),
    [
        ("python\0train.py", "python\0train.py", True),
        ("/usr/bin/python3.11\0train.py", "/usr/bin/python3.11\0train.py", True),
        ("python\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", "python\0t.py", True),
        ("python\0-c\0from multiprocessing.forkserver import main; main(3)", "python\0t.py", True),
        ("python\0-c\0from multiprocessing.resource_tracker import main;main(4)", "python\0t.py", True),
        ("python\0-m\0train", "bash\0-c\0python -m train", False),
        ("sh\0-c\0x", "sh\0-c\0x", False),
        ("python\0other.py", "python\0train.py", False),
        ("python\0multiprocessing_demo.py", "bash", False),
    ],
)
def test_workers_of_multiprocessing_are_told_from_other_children(line: str, parents: str, worker: bool) -> None:
    assert proc._is_worker(line.encode(), parents.encode()) is worker


def test_a_zombie_and_another_group_are_not_signalled() -> None:
    family = {s.pid: s for s in (stat(10, 1, 10), stat(11, 10, 10, "Z"), stat(12, 10, 12))}
    assert proc.group_to_stop(10, family) == [10]


def test_what_belongs_to_a_session_is_known_by_its_environment() -> None:
    settings = {"TORCH_DOCTOR_SESSION": "s", "TORCH_DOCTOR_SESSION_DIR": "/d/s"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, **settings}) as child:
        # the kernel shows the new environment a moment after the exec
        assert until(lambda: proc.of_session("s", "/d/s", [child.pid, os.getpid()])) == [child.pid]
        assert proc.of_session("s", "/other/s", [child.pid]) == []


def test_signals_have_names() -> None:
    assert (proc.signal_name(9), proc.signal_name(35)) == ("SIGKILL", "signal 35")

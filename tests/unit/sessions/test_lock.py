"""One holder per name: between processes, over rm, and where the file system has no locks."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torch_doctor.sessions import lock, places, store

HOLD = "import sys, os; sys.path.insert(0, sys.argv[1]); from pathlib import Path; " + (
    "from torch_doctor.sessions import lock; lock.acquire(Path(sys.argv[2])); print('held', flush=True); input()"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(places.STATE_VARIABLE, str(tmp_path))
    return tmp_path / "sessions" / "a"


def test_one_holder(place: Path) -> None:
    assert lock.is_held(place) is False
    held = lock.acquire(place)
    assert held is not None and lock.is_held(place) is True
    assert lock.acquire(place, patience=0) is None
    os.close(held)
    assert lock.is_held(place) is False


def test_the_lock_goes_with_its_holder_however_it_dies(place: Path) -> None:
    root = str(Path(lock.__file__).parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, root, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert lock.is_held(place) and lock.acquire(place, patience=0) is None
        holder.kill()
    assert not lock.is_held(place)


def test_a_folder_that_rm_took_away_is_made_again(place: Path) -> None:
    held = lock.acquire(place)
    assert held is not None
    shutil.rmtree(place)
    other = lock.acquire(place, patience=0)
    assert other is not None and (place / store.LOCK).exists(), "the old lock is on a file that is gone"
    os.close(held)
    os.close(other)


def test_a_file_system_without_locks_is_locked_beside_the_sockets(place: Path) -> None:
    import fcntl

    folder = os.fspath(place)

    def refusing(descriptor: int, kind: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(folder):  # noqa: PTH115
            raise OSError(errno.ENOLCK, "No locks available")
        fcntl.flock(descriptor, kind)

    held = lock.acquire(place, 0, refusing)
    assert held is not None
    assert lock.acquire(place, 0, refusing) is None and lock.is_held(place, refusing) is True
    os.close(held)
    assert lock.is_held(place, refusing) is False


def test_waiting_ends_when_the_holder_is_gone(place: Path) -> None:
    root = str(Path(lock.__file__).parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, root, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        waiting = [
            sys.executable,
            "-c",
            HOLD.replace("acquire", "wait_released").replace("; input()", ""),
            root,
            str(place),
        ]
        with subprocess.Popen(waiting, stdout=subprocess.PIPE) as waiter:
            time.sleep(0.3)
            assert waiter.poll() is None
            holder.kill()
            assert waiter.communicate(timeout=60)[0] == b"held\n"

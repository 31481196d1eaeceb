"""Locks and h5py on a real file system, and on one whose locks a preloaded library takes away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torch_doctor.facts.handles import DataFolder, DataFolderFacts, H5pyFacts
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import handles

NO_LOCKS = """
#include <errno.h>
int flock(int fd, int operation) { errno = ENOLCK; return -1; }
"""
#: a library that reads with a shared place, as HDF5 did before it used pread
NO_PREAD = """
#include <unistd.h>
ssize_t pread64(int fd, void *data, size_t size, off_t at) {
    return lseek(fd, at, SEEK_SET) < 0 ? -1 : read(fd, data, size);
}
ssize_t pread(int fd, void *data, size_t size, off_t at) { return pread64(fd, data, size, at); }
"""


def preload(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "shim.c").write_text(source)
    library = folder / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "shim.c"], check=True, timeout=120)
    monkeypatch.setenv("LD_PRELOAD", str(library))


def look(data: Path | None = None, *, deep: bool = False, needs: Requirements | None = None) -> DataFolder:
    asked = Request(requirements=needs or Requirements(), timeout=120, python=sys.executable, data=data, deep=deep)
    facts = handles.data_folders(asked)
    assert isinstance(facts, DataFolderFacts), facts
    return facts.folders[0]


def test_a_healthy_folder(tmp_path: Path) -> None:
    folder = look(tmp_path, deep=True)
    assert (folder.writable, folder.flock_error, folder.flock_excludes) == (True, "", True)
    assert (folder.record_lock_error, folder.record_lock_excludes) == ("", True)
    assert (folder.hdf5_error, folder.fork_moves_offset, folder.swmr_error) == ("", False, "")
    assert list(tmp_path.iterdir()) == []  # nothing is left


def test_h5py_says_its_versions() -> None:
    import h5py

    facts = handles.h5py(Request(python=sys.executable, timeout=120))
    assert isinstance(facts, H5pyFacts)
    assert facts.version == h5py.__version__ and facts.hdf5 == facts.hdf5_built


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preload(tmp_path, NO_LOCKS, monkeypatch)
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "TRUE")
    data = tmp_path / "data"
    data.mkdir()
    folder = look(data)
    assert folder.flock_error == "ENOLCK" and "unable to lock file" in folder.hdf5_error.lower()
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")  # the printed remedy
    assert look(data).hdf5_error == ""


def test_a_library_whose_handles_must_not_cross_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preload(tmp_path, NO_PREAD, monkeypatch)
    assert look(tmp_path).fork_moves_offset is True


def test_h5py_that_is_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h5py").mkdir()
    (tmp_path / "h5py" / "__init__.py").write_text("raise ValueError('numpy.dtype size changed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = handles.h5py(Request(python=sys.executable, timeout=120))
    assert isinstance(facts, ProbeFailure) and facts.kind is FailureKind.ERROR
    assert facts.reason == "import h5py fails: ValueError: numpy.dtype size changed"
    (tmp_path / "h5py" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'h5py'\", name='h5py')"
    )
    facts = handles.h5py(Request(python=sys.executable, timeout=120))
    assert isinstance(facts, ProbeFailure) and facts.kind is FailureKind.UNAVAILABLE
    assert look(tmp_path).flock_excludes is True  # the locks are looked at without it


def test_the_folder_is_the_scripts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import h5py

    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "a.h5", "w") as file:
        file["x"] = [1]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    script = tmp_path / "train.py"
    needs = Requirements(data_paths=("data/a.h5", "/no/such/file.h5"))
    wanted = handles.folders(Request(script=script, requirements=needs))
    assert wanted == [(str(tmp_path / "data"), str(tmp_path / "data" / "a.h5"), "data/a.h5")]
    monkeypatch.chdir(tmp_path)
    folder = look(needs=needs)
    assert folder.hdf5_file == str(tmp_path / "data" / "a.h5") or folder.hdf5_error == ""
    assert handles.folders(Request())[0][0] == str(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert look(tmp_path / "none").error in ("ENOENT", "")


def test_a_folder_where_nothing_can_be_tried_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc/sys")  # not even root can make a file there, and it holds folders only
    failure = handles.data_folders(Request(timeout=120, python=sys.executable))
    assert isinstance(failure, ProbeFailure) and failure.kind is FailureKind.UNAVAILABLE
    assert failure.reason == "nothing can be written to /proc/sys, and it holds no file to try"


def test_a_folder_that_is_only_read_is_tried_with_shared_locks(tmp_path: Path) -> None:
    import h5py

    from torch_doctor.probes.isolated import handles as child

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    found = child.read_only({"path": str(tmp_path), "file": ""}, True)
    assert (found["flock_error"], found["record_lock_error"], found["hdf5_error"]) == ("", "", "")
    assert found["hdf5_file"] == str(tmp_path / "a.h5") and found["locked_shared"]

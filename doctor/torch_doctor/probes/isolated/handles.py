"""Tries locks, and h5py where it is installed, in the folders of the training data.

In: {"folders": [{"path": ..., "file": a file of the run, or ""}], "swmr": whether to try that, too}.
Out: {"h5py": {...}, "folders": [{...}]} in the same order. Whatever it makes it removes.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

ROWS = 64
MOST_ENTRIES = 1000
HDF5_ENDINGS = (".h5", ".hdf5", ".he5", ".hdf")


def main() -> None:
    """Write what was found to the descriptor in the last argument."""
    payload = json.load(sys.stdin)
    h5py = look_at_h5py()
    folders = [look(item, bool(h5py["version"]), payload["swmr"]) for item in payload["folders"]]
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump({"h5py": h5py, "folders": folders}, stream)


def look_at_h5py() -> dict[str, Any]:
    """Versions of h5py and HDF5, or why it cannot be imported."""
    found = {"version": "", "hdf5": "", "hdf5_built": "", "missing": False, "error": "", "python": sys.executable}
    try:
        import h5py  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        return {**found, "missing": error.name == "h5py", "error": "" if error.name == "h5py" else str(error)}
    except Exception as error:
        return {
            **found,
            "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}",
        }
    loaded = ".".join(map(str, h5py.version.hdf5_version_tuple[:3]))
    built = getattr(h5py.version, "hdf5_built_version_tuple", None) or getattr(
        h5py.h5, "HDF5_VERSION_COMPILED_AGAINST", h5py.version.hdf5_version_tuple
    )
    return {**found, "version": h5py.version.version, "hdf5": loaded, "hdf5_built": ".".join(map(str, built[:3]))}


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def look(item: dict[str, str], has_h5py: bool, with_swmr: bool) -> dict[str, Any]:
    """One folder: locks on a file of its own, or on the run's file where the folder cannot be written."""
    folder = item["path"]
    if not os.path.isdir(folder):
        return {"error": "ENOENT" if not os.path.exists(folder) else "ENOTDIR"}
    try:
        descriptor, path = tempfile.mkstemp(dir=folder, prefix=".torch-doctor-", suffix=".h5")
    except OSError:
        return read_only(item, has_h5py)
    os.close(descriptor)
    try:
        found = {"writable": True, **locks(path, os.O_RDWR)}
        if has_h5py:
            found.update(hdf5(path, with_swmr))
            if item["file"]:
                found.update(open_file(item["file"], found.get("hdf5_error", "")))
        return found
    finally:
        os.unlink(path)


def read_only(item: dict[str, str], has_h5py: bool) -> dict[str, Any]:
    """Shared locks on a file that is there: what a reader of the data does."""
    path = item["file"] or first_file(item["path"])
    if not path:
        return {"writable": False}
    found: dict[str, Any] = {"writable": False, "locked_shared": True, **locks(path, os.O_RDONLY)}
    if has_h5py and path.lower().endswith(HDF5_ENDINGS):
        found.update(open_file(path, ""))
    return found


def first_file(folder: str) -> str:
    """A file to lock for reading, HDF5 ones first; empty where there is none."""
    with os.scandir(folder) as entries:
        some = itertools.islice(entries, MOST_ENTRIES)  # an image folder may hold millions
        files = [entry.path for entry in some if entry.is_file() and os.access(entry.path, os.R_OK)]
    return min(files, key=lambda path: (not path.lower().endswith(HDF5_ENDINGS), path), default="")


# -- locks ---------------------------------------------------------------------------------------------------


def locks(path: str, mode: int) -> dict[str, Any]:
    """flock and record locks: whether they are supported, and whether they keep a second process out."""
    exclusive = mode == os.O_RDWR
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    found: dict[str, Any] = {}
    for name, lock in (("flock", fcntl.flock), ("record_lock", fcntl.lockf)):
        descriptor = os.open(path, mode)
        try:
            lock(descriptor, kind | fcntl.LOCK_NB)
            found[f"{name}_error"] = ""
            found[f"{name}_excludes"] = keeps_out(path, lock) if exclusive else None
        except OSError as error:
            busy = error.errno in (errno.EAGAIN, errno.EACCES)  # another process uses it: so locks work
            found[f"{name}_error"] = "" if busy else name_of(error)
            found[f"{name}_excludes"] = True if busy else None
        finally:
            os.close(descriptor)
    return found


def keeps_out(path: str, lock: Callable[[int, int], None]) -> bool:
    """Whether another process cannot take the lock that this one holds."""

    def attempt() -> int:
        descriptor = os.open(path, os.O_RDWR)
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        return 1

    return in_child(attempt) == 0


def in_child(function: Callable[[], int]) -> int:
    """The status that ``function`` gives in a forked child; 99 where it raised."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = function()
        except BaseException:  # the child must end here whatever happened
            status = 99
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -- HDF5 ----------------------------------------------------------------------------------------------------


def hdf5(path: str, with_swmr: bool) -> dict[str, Any]:
    """A file made with h5py: is it written and read, does a forked reader move our place in it, does SWMR work?"""
    found: dict[str, Any] = {"hdf5_error": "", "fork_moves_offset": None, "swmr_error": None}
    try:
        write(path)
        found["fork_moves_offset"] = fork_moves_offset(path)
    except (OSError, RuntimeError, ValueError) as error:
        return {**found, "hdf5_error": one_line(error)}
    try:
        found["swmr_error"] = swmr(path) if with_swmr else None
    except (OSError, RuntimeError, ValueError, AttributeError) as error:
        found["swmr_error"] = one_line(error)
    return found


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def write(path: str) -> None:
    import h5py
    import numpy

    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numpy.arange(ROWS * 1024, dtype="i8").reshape(ROWS, 1024), chunks=(1, 1024))


def open_file(path: str, before: str) -> dict[str, Any]:
    """The run's own file, opened for reading; the error of a file that is not HDF5 is not the file system's."""
    import h5py

    if before or not path.lower().endswith(HDF5_ENDINGS) or not os.path.isfile(path):
        return {"hdf5_error": before}
    try:
        with h5py.File(path, "r"):
            return {"hdf5_error": "", "hdf5_file": path}
    except (OSError, RuntimeError) as error:
        return {"hdf5_error": one_line(error), "hdf5_file": path}


def fork_moves_offset(path: str) -> bool:
    """Open here, read in a forked child: does our own place in the file move?"""
    import h5py

    with h5py.File(path, "r") as file:
        descriptor = int(file.id.get_vfd_handle())
        data = file["x"]
        os.lseek(descriptor, 7, os.SEEK_SET)
        status = in_child(lambda: 0 if int(data[ROWS - 1, 0]) == (ROWS - 1) * 1024 else 1)
        return os.lseek(descriptor, 0, os.SEEK_CUR) != 7 or status != 0


def swmr(path: str) -> str:
    """A writer appends, another process reads at the same time; empty where it sees the rows."""
    import h5py

    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("x", shape=(0,), maxshape=(None,), chunks=(16,), dtype="i8")
        file.swmr_mode = True
        data.resize((16,))
        data[:] = range(16)
        data.flush()
        status = read_in_other_process(path)
    return "" if status == 0 else f"a reader ended with status {status}"


def read_in_other_process(path: str) -> int:
    """0 where a new interpreter sees the 16 rows that were appended."""
    import subprocess

    code = (
        "import sys, h5py\n"
        "with h5py.File(sys.argv[1], 'r', swmr=True) as f:\n"
        "    d = f['x']; d.refresh(); sys.exit(0 if d.shape[0] == 16 and int(d[15]) == 15 else 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=20)
    return done.returncode


if __name__ == "__main__":
    main()

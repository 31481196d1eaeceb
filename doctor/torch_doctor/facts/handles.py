"""What h5py, LMDB and SQLite meet on the file system that holds the training data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class H5pyFacts:
    """The h5py that the run will use. Where it is missing or its import fails, there is a ProbeFailure instead.

    Args:
        version: of h5py.
        hdf5: version of the HDF5 library that is loaded.
        hdf5_built: version that h5py was built against.
        python: the interpreter.
    """

    version: str
    hdf5: str
    hdf5_built: str
    python: str = "python"


@dataclass(frozen=True)
class DataFolder:
    """What was tried in one folder. None: not tried, since nothing could be written there, or h5py is missing.

    Args:
        path: the folder.
        named_by: what names it: ``--data``, the script's line, or empty for the working folder.
        kind: type of its file system.
        is_network: whether another machine serves it.
        writable: whether a file could be made.
        error: why nothing could be looked at (``ENOENT``); empty otherwise.
        flock_error: symbolic errno of flock(2), which HDF5 uses; empty where it works.
        flock_excludes: whether a second process is kept out.
        record_lock_error: symbolic errno of fcntl(2) record locks, which SQLite and LMDB use.
        record_lock_excludes: whether a second process is kept out.
        hdf5_error: why h5py cannot make or read a file there; empty where it can.
        fork_moves_offset: whether a read in a forked child moves the parent's place in the file: the library
            then reads with a shared offset, and parent and workers get each other's rows.
        swmr_error: why a reader does not see what a writer appends (single writer, multiple readers).
        locked_shared: whether a shared lock was taken on a file that was there, in a folder that is only read.
        hdf5_file: the file of the run itself that was opened for reading; empty where none was.
    """

    path: str
    named_by: str = ""
    kind: str = ""
    is_network: bool = False
    writable: bool = False
    error: str = ""
    flock_error: str = ""
    flock_excludes: bool | None = None
    record_lock_error: str = ""
    record_lock_excludes: bool | None = None
    locked_shared: bool = False
    hdf5_error: str = ""
    fork_moves_offset: bool | None = None
    swmr_error: str | None = None
    hdf5_file: str = ""

    @property
    def was_looked_at(self) -> bool:
        """False where there was no file to try a lock on, and none could be made."""
        return bool(self.flock_error) or self.flock_excludes is not None or self.locked_shared


@dataclass(frozen=True)
class DataFolderFacts:
    """The folders of the training data, and HDF5_USE_FILE_LOCKING as set."""

    folders: tuple[DataFolder, ...]
    locking_variable: str = ""

"""HDF5, LMDB and SQLite: locks of the data's file system, handles over a fork, SWMR, library versions."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.handles import DataFolder, DataFolderFacts, H5pyFacts
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import FailureKind, Finding, ProbeFailure, Remediation, Severity
from torch_doctor.registry import check

#: values of HDF5_USE_FILE_LOCKING that turn locks off
_OFF = frozenset({"FALSE", "0"})
#: first release with SWMR and with locks: https://support.hdfgroup.org/documentation/hdf5/latest/
_FIRST_SWMR = (1, 10, 0)


def _place(folder: DataFolder) -> str:
    kind = f" ({folder.kind})" if folder.kind else ""
    return f"{folder.path}{kind}"


def _evidence(folder: DataFolder) -> dict[str, object]:
    return {
        "path": folder.path,
        "named_by": folder.named_by,
        "file_system": folder.kind,
        "writable": folder.writable,
        "flock_error": folder.flock_error,
        "record_lock_error": folder.record_lock_error,
        "hdf5_error": folder.hdf5_error,
    }


@check("HDF001", "hdf5-locking-unsupported", tags={"data"})
def hdf5_locking_unsupported(data: DataFolderFacts, h5py: H5pyFacts, needs: Requirements) -> Iterator[Finding]:
    """The data's file system refuses the lock that HDF5 takes when it opens a file.

    What it checks:
        A file made and opened with h5py in the script's data folder (--data, the paths in the script, else the
        working folder), or the run's own file opened for reading where that folder cannot be written.
    Why it matters:
        "BlockingIOError: unable to lock file, errno = 11" or "errno = 37, No locks available" from h5py.File, in
        every worker, on NFS without its lock daemon, on some FUSE and cluster file systems.
    Example:
        h5py.File("/mnt/nfs/train.h5")
    Fix:
        HDF5_USE_FILE_LOCKING=FALSE, or h5py.File(..., locking=False), where nobody writes while others read.
    References:
        https://docs.h5py.org/en/stable/high/file.html
    """
    for folder in data.folders:
        text = folder.hdf5_error
        if "lock" not in text.lower() or not (folder.flock_error or "unable to lock" in text.lower()):
            continue
        level = Severity.ERROR if "h5py" in needs.uses else Severity.WARNING
        reason = folder.flock_error or text
        yield Finding(
            level,
            f"HDF5 cannot lock a file in {_place(folder)}: {reason}",
            Remediation(
                "Turn its locks off where nobody writes while others read, or copy the data to a local disk",
                ("export HDF5_USE_FILE_LOCKING=FALSE",),
            ),
            _evidence(folder),
        )


@check("HDF002", "hdf5-handle-crosses-fork", tags={"data", "dataloader"})
def hdf5_handle_crosses_fork(data: DataFolderFacts, h5py: H5pyFacts, needs: Requirements) -> Iterator[Finding]:
    """This HDF5 library reads with a place in the file that forked workers share.

    What it checks:
        A file is opened with h5py, a forked child reads from it, and the parent looks whether its own place in
        the file moved. Libraries that read with pread leave it alone.
    Why it matters:
        A handle that is opened before the workers start crosses the fork. Then parent and workers move each
        other's place: wrong rows without an error, or "inflate() failed", "bad object header".
    Example:
        class Data(Dataset):
            def __init__(self): self.file = h5py.File("train.h5")
    Fix:
        Open the file in each worker, at its first item; or start workers with spawn or forkserver.
    References:
        https://docs.h5py.org/en/stable/mpi.html
        https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
    """
    for folder in data.folders:
        if not folder.fork_moves_offset:
            continue
        forked = needs.start_method in (None, "fork") and needs.workers > 0
        level = Severity.ERROR if "h5py" in needs.uses and forked else Severity.WARNING
        yield Finding(
            level,
            "an open HDF5 file shares its place with forked workers: they read each other's rows",
            Remediation(
                "Open the file lazily in each worker, or install an h5py whose HDF5 reads with pread",
                ("pip install --upgrade h5py", "DataLoader(..., multiprocessing_context='forkserver')"),
            ),
            _evidence(folder),
        )
        return


@check("HDF003", "hdf5-swmr-fails", tags={"data"})
def hdf5_swmr_fails(data: DataFolderFacts, h5py: H5pyFacts, needs: Requirements) -> Iterator[Finding]:
    """A reader does not see what a writer appends to an HDF5 file (SWMR).

    What it checks:
        With a script that uses SWMR, or --deep: a writer appends with swmr_mode, another process reads; and
        whether the file system is a network one, which SWMR does not support whatever a short test says.
    Why it matters:
        Readers fail or see half-written chunks.
    Example:
        h5py.File("/mnt/nfs/log.h5", "r", swmr=True)
    Fix:
        Keep that file on a local disk.
    References:
        https://docs.h5py.org/en/stable/swmr.html
    """
    asked = "swmr" in needs.uses
    for folder in data.folders:
        network = asked and folder.is_network
        if not folder.swmr_error and not network:
            continue
        reason = folder.swmr_error or f"{folder.kind} does not keep the order of writes that it needs"
        yield Finding(
            Severity.ERROR if asked and folder.swmr_error else Severity.WARNING,
            f"HDF5's single writer, multiple readers mode does not work in {_place(folder)}: {reason}",
            Remediation("Keep the file on a local disk, or close it before others read"),
            {**_evidence(folder), "swmr_error": folder.swmr_error},
        )


@check("HDF004", "hdf5-version-mismatch", tags={"data", "packages"})
def hdf5_version_mismatch(h5py: H5pyFacts, needs: Requirements) -> Iterator[Finding]:
    """h5py runs with another HDF5 library than it was built for, or with one that is too old.

    What it checks:
        The version of the loaded HDF5 against the one that h5py was built with, and against 1.10, the first with
        SWMR.
    Why it matters:
        A library that LD_LIBRARY_PATH or another package slips in can write files that nobody else reads, or crash.
    Example:
        LD_LIBRARY_PATH=/opt/hdf5/lib python train.py
    Fix:
        Take the other library off the path, or reinstall h5py.
    References:
        https://docs.h5py.org/en/stable/build.html
    """
    pip = f"{h5py.python} -m pip install --force-reinstall h5py"
    evidence = {"h5py": h5py.version, "hdf5": h5py.hdf5, "hdf5_built": h5py.hdf5_built}
    level = Severity.ERROR if "swmr" in needs.uses else Severity.WARNING
    if _numbers(h5py.hdf5) < _FIRST_SWMR:
        remedy = Remediation("Install a newer h5py", (f"{h5py.python} -m pip install --upgrade h5py",))
        yield Finding(
            level, f"h5py {h5py.version} runs with HDF5 {h5py.hdf5}, which is older than 1.10", remedy, evidence
        )
    elif h5py.hdf5 != h5py.hdf5_built:
        message = f"h5py {h5py.version} was built for HDF5 {h5py.hdf5_built} and runs with {h5py.hdf5}"
        remedy = Remediation("Take the other library off LD_LIBRARY_PATH, or reinstall h5py", (pip,))
        yield Finding(Severity.WARNING, message, remedy, evidence)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


@check("HDF005", "h5py-import-fails", tags={"data", "packages"})
def h5py_import_fails(h5py: H5pyFacts | ProbeFailure, needs: Requirements) -> Iterator[Finding]:
    """h5py cannot be imported.

    What it checks:
        The import of h5py in the interpreter that trains. That it is missing is a fault only where the script uses
        it.
    Why it matters:
        The script ends at its first lines.
    Example:
        pip install numpy==1.26 beside an h5py that was built for NumPy 2
    Fix:
        pip install h5py in that interpreter.
    References:
        https://docs.h5py.org/en/stable/build.html
    """
    if not isinstance(h5py, ProbeFailure):
        return
    python, asked = h5py.evidence.get("python", "python"), "h5py" in needs.uses
    if h5py.kind is not FailureKind.UNAVAILABLE:
        remedy = Remediation("Install it anew", (f"{python} -m pip install --force-reinstall h5py",))
        yield Finding(Severity.ERROR if asked else Severity.WARNING, h5py.reason, remedy, dict(h5py.evidence))
    elif asked:
        message = f"{needs.script or 'the run'} uses h5py; {h5py.reason}"
        remedy = Remediation("Install it", (f"{python} -m pip install h5py",))
        yield Finding(Severity.ERROR, message, remedy, dict(h5py.evidence))


@check("HDF006", "database-locks-unsupported", tags={"data"})
def database_locks_unsupported(data: DataFolderFacts, needs: Requirements) -> Iterator[Finding]:
    """The data's file system has no record locks, or not between processes; LMDB and SQLite need them.

    What it checks:
        fcntl record locks on a file in the data folder, and whether they keep a second process out.
    Why it matters:
        Without them SQLite says "database is locked" or "disk I/O error", and two writers destroy a database. LMDB
        does not support network file systems at all.
    Example:
        lmdb.open("/mnt/nfs/train.lmdb")
    Fix:
        Copy the database to a local disk; to read only: lmdb.open(path, readonly=True, lock=False), or SQLite's
        file:PATH?immutable=1.
    References:
        https://www.sqlite.org/lockingv3.html
        http://www.lmdb.tech/doc/
    """
    used = sorted(needs.uses & {"lmdb", "sqlite3"})
    if not used:
        return
    names = " and ".join({"lmdb": "LMDB", "sqlite3": "SQLite"}[u] for u in used)
    readers = {
        "lmdb": "lmdb.open(path, readonly=True, lock=False, readahead=False)",
        "sqlite3": "sqlite3.connect('file:PATH?immutable=1', uri=True)",
    }
    remedy = Remediation("Copy it to a local disk; or, to read only", tuple(readers[u] for u in used))
    for folder in data.folders:
        broken = folder.record_lock_error or (folder.record_lock_excludes is False and "locks keep nobody out")
        if broken:
            message = f"{names} cannot lock in {_place(folder)}: {broken}"
            yield Finding(Severity.ERROR, message, remedy, _evidence(folder))
        elif folder.is_network and "lmdb" in used:
            message = f"LMDB does not support network file systems; the data is in {_place(folder)}"
            yield Finding(Severity.WARNING, message, remedy, _evidence(folder))


@check("HDF007", "database-folder-read-only", tags={"data"})
def database_folder_read_only(data: DataFolderFacts, needs: Requirements) -> Iterator[Finding]:
    """The data folder cannot be written, where LMDB wants its lock file and SQLite its journal.

    What it checks:
        Whether a file can be made in the data folder, for scripts that use lmdb or sqlite3.
    Why it matters:
        lmdb.open fails with "Read-only file system" or "Permission denied" for data that is only read.
    Example:
        docker run -v /data:/data:ro IMAGE python train.py
    Fix:
        lmdb.open(path, readonly=True, lock=False); sqlite3.connect("file:PATH?immutable=1", uri=True).
    References:
        https://lmdb.readthedocs.io/en/release/#environment-class
    """
    if "lmdb" not in needs.uses:
        return
    for folder in data.folders:
        if folder.named_by and not folder.writable and not folder.error:
            yield Finding(
                Severity.WARNING,
                f"{folder.path} cannot be written: lmdb.open fails there unless it opens read-only without a lock",
                Remediation("Open it so", ("lmdb.open(path, readonly=True, lock=False, readahead=False)",)),
                _evidence(folder),
            )

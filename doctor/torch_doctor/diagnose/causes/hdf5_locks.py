"""HDF5 files that are open or locked elsewhere, were never closed, or are closed already."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register, with_message
from torch_doctor.model import Remediation

register(
    Cause(
        "HDF203",
        "hdf5-file-locked",
        "Another process holds the HDF5 file open for writing.",
        "HDF5 takes a lock when it opens a file. A forgotten notebook, or a run that writes, holds it. errno 11 "
        "(EAGAIN) with the words lock file means that, not a limit of processes.",
        "HDF5 could not lock the file (errno {errno}): another process, such as a forgotten notebook kernel, has it "
        "open for writing",
        Remediation(
            "Find and close the other handle; file locking stays on as long as a writer is alive",
            ("fuser -v FILE", "lsof FILE"),
        ),
        (
            Signature(
                "unable to lock file",
                "OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
                "temporarily unavailable')",
                "OSError: Unable to open file (unable to lock file, errno = 37, error message = 'No locks "
                "available')",
                r"unable to lock file, errno = (?P<errno>11|35|13)\b",
                source="h5py 2.8 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "unable to truncate a file which is already open",
                "BlockingIOError: [Errno 11] Unable to synchronously create file (unable to truncate a file which "
                "is already open)",
                "unable to truncate",
                r"unable to truncate a file which is already open(?P<errno>)",
                source="h5py 3.x",
            ),
        ),
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message
            if seen.groups.get("errno")
            else verdict.message.replace(" (errno ?)", "").replace("lock the file", "open the file"),
        ),
        decide="fuser -v FILE",
    ),
    Cause(
        "HDF231",
        "hdf5-file-not-closed-by-writer",
        "The file says that it is open for writing: its last writer ended without closing it, or still lives.",
        "HDF5 marks a file in its superblock while a writer has it open (SWMR, libver='latest'). A writer that was "
        "killed leaves the mark, and no process holds the file.",
        "the HDF5 file is marked as open for writing: its writer was killed before it closed the file, or is still "
        "running",
        Remediation(
            "See that no writer is alive, then clear the mark with h5clear; check the file afterwards",
            ("fuser -v FILE", "cp FILE COPY; h5clear -s FILE  # changes the file", "h5ls -r FILE"),
        ),
        (
            Signature(
                "file is already open for write",
                "OSError: Unable to synchronously open file (file is already open for write (may use <h5clear file> "
                "to clear file consistency flags))",
                "OSError: Unable to open file (file is already open for read-only)",
                r"file is already open for write(?: or SWMR write)?(?:/SWMR write)? \(may use <h5clear",
                source="h5py 2.8 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "not already open for SWMR writing",
                "OSError: Unable to open file (file is not already open for SWMR writing)",
                "file is open for SWMR writing",
                r"file is not already open for SWMR writing",
                source="h5py 2.8 to 3.16",
            ),
        ),
        decide="fuser -v FILE",
    ),
    Cause(
        "HDF232",
        "hdf5-file-open-in-this-process",
        "This process has the HDF5 file open already, in another mode.",
        "HDF5 opens a file once per process; a second handle must ask for the same access.",
        "this process has the HDF5 file open already in another mode ({text}): a handle that was not closed, such as "
        "that of an earlier cell or of the data set",
        Remediation(
            "Close the first handle, or open both with the same mode",
            ("with h5py.File(path, 'r') as f: ...", "lsof -p PID | grep h5"),
        ),
        (
            Signature(
                ("already open for read-only", "file is already open"),
                "OSError: Unable to open file (file is already open for read-only)",
                "OSError: Unable to open file (file is already open for write (may use <h5clear file> to clear file "
                "consistency flags))",
                r"(?P<text>file is already open(?: for read-only)?)\)(?!\))",
                source="h5py 2.8 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF233",
        "hdf5-object-of-closed-file",
        "An HDF5 object was used after its file was closed.",
        "A data set or group is a view of the open file; it is dead when the file is closed, or in a forked worker "
        "that inherited it.",
        "an HDF5 data set or group was used after its file was closed ({text})",
        Remediation(
            "Read inside the with block, or keep the file open in each worker; copy what must outlive it",
            ("x = f['x'][:]  # a NumPy copy",),
        ),
        (
            Signature(
                (
                    "identifier is not of specified type",
                    "Not a dataset",
                    "Not a location",
                    "nvalid location identifier",
                    "Not a group",
                    "Not a file",
                ),
                "RuntimeError: Unable to synchronously get dataspace (identifier is not of specified type)",
                "identifier is not set",
                r"(?P<text>identifier is not of specified type|Not a (?:dataset|location|group|file)(?: id)? \([^)]*\)"
                r"|[Ii]nvalid location identifier[^\n)]*)",
                source="h5py 2.8 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF204",
        "no-file-locks-on-this-file-system",
        "The file system of the HDF5 file has no locks.",
        "NFS, Lustre and ZFS shares without a lock service refuse the lock that HDF5 takes at opening. No second "
        "process is involved.",
        "HDF5 could not lock the file (errno {errno}): the file system (NFS, Lustre, FUSE) has no lock service",
        Remediation(
            "For data that is only read, switch HDF5's locking off before Python starts; or copy the file to a "
            "local disk",
            ("export HDF5_USE_FILE_LOCKING=FALSE", "h5py.File(path, 'r', locking=False)", "stat -f -c %T FILE"),
        ),
        (
            Signature(
                "unable to lock file",
                "OSError: Unable to open file (unable to lock file, errno = 37, error message = 'No locks "
                "available')",
                "OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
                "temporarily unavailable')",
                r"unable to lock file, errno = (?P<errno>37|38|95|45|524|5|52)\b",
                source="h5py 2.8 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "No locks available",
                "OSError: [Errno 37] No locks available",
                "no locks",
                r"\[Errno (?P<errno>37)\] No locks available",
                source="python 3.8 to 3.14, fcntl",
            ),
        ),
        decide="stat -f -c %T FILE",
    ),
)

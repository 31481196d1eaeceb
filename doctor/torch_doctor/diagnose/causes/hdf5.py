"""HDF5: handles over a fork, locks, damaged files."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.words import WORKER
from torch_doctor.model import Remediation

PERWORKER = Remediation(
    "Open the file on the first __getitem__ in each worker, never in __init__ or before the workers start",
    ("def __getitem__(self, i):\n    if self.h5 is None:\n        self.h5 = h5py.File(self.path, 'r')",),
)


#: one process, at a prompt: no handle can have crossed a fork
_INTERACTIVE = r'^>>> |File "<stdin>"|File "<ipython-input|Cell In\[\d+\]'


def garbled(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Without a word of workers the same text may also mean a file that is really damaged."""
    if "NetCDF" in seen.groups.get("text", ""):
        return with_message(
            verdict,
            f"netCDF failed in a worker ({seen.groups['text']}): the file was opened before the fork, or by several "
            "threads, and HDF5 below it is safe for neither",
            Remediation(
                PERWORKER.text,
                (
                    "def __getitem__(self, i):\n    if self.nc is None:\n        self.nc = netCDF4.Dataset(self.path)",
                    "dask.config.set(scheduler='synchronous')  # where xarray reads through dask",
                    "ncdump -h FILE",
                ),
            ),
        )
    if seen.has(WORKER):
        return verdict
    if seen.has(_INTERACTIVE):
        return None
    return with_message(verdict, verdict.message, None, workers_seen=False)


def inherited(seen: Seen, verdict: Verdict) -> Verdict | None:
    """zarr 3 has no lock to inherit: its event loop runs in a thread, which the child does not have."""
    if "zarr" not in seen.groups.get("where", ""):
        return verdict
    return with_message(
        verdict,
        "a worker waits for zarr's event loop (zarr/core/sync.py), whose thread was started before the fork and does not "
        "exist in the child",
        Remediation(
            "Open the store in each worker and read nothing from it before the workers start, or start them with forkserver "
            "or spawn",
            (
                "DataLoader(..., multiprocessing_context='forkserver')",
                "def __getitem__(self, i):\n    if self.store is None:\n        self.store = zarr.open(self.path, mode='r')",
                "py-spy dump --pid WORKER",
            ),
        ),
    )


def cython(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Cython classes of other libraries (an open video, a pysam file) refuse in the same words."""
    named = seen.near(r"in (?P<name>[\w.]+)\.__reduce_cython__", 3, 0)
    if named is None or "h5py" in named["name"]:
        return verdict
    return with_message(
        verdict,
        f"an open {named['name']} is part of the data set, and cannot be pickled for a worker (spawn or forkserver, Python "
        "3.14's default)",
        Remediation(
            PERWORKER.text,
            ("def __getitem__(self, i):\n    if self.handle is None:\n        self.handle = open_it(self.path)",),
        ),
    )


def _wrong_rows(seen: Seen, verdict: Verdict) -> Verdict | None:
    groups = seen.groups
    if "max" not in groups:
        return verdict
    if int(groups["max"]) < int(groups["classes"]):
        return None
    return with_message(
        verdict,
        verdict.message.replace(
            verdict.message[verdict.message.index("(") : verdict.message.index(")") + 1],
            f"(label {groups['max']} of {groups['classes']} classes)",
            1,
        ),
    )


register(
    Cause(
        "HDF201",
        "hdf5-handle-shared-over-fork",
        "An HDF5 file was opened before the workers were forked, and read by several of them.",
        "Forked workers share one file offset (HDF5 up to 1.10.4 seeks, then reads) and the library's caches: reads "
        "interleave, so that a chunk is put together from pieces of several. The text sounds like damage.",
        "HDF5 read a chunk that does not decode ({text}): a handle opened before the fork is shared by the "
        "workers, whose reads "
        "interleave",
        Remediation(
            PERWORKER.text + "; read one chunk in a single process before doubting the data",
            (*PERWORKER.commands, "h5ls -r FILE", "python -c \"import h5py; f = h5py.File('FILE'); f['KEY'][0]\""),
        ),
        (
            Signature(
                "NetCDF: ",
                "RuntimeError: Caught RuntimeError in DataLoader worker process 1.\nRuntimeError: NetCDF: HDF error",
                "NetCDF: HDF error rate",
                r"(?P<text>NetCDF: (?:HDF error|Not a valid ID|Index exceeds dimension bound))\b(?! rate)",
                also=(WORKER,),
                source="netCDF4 1.5 to 1.7",
            ),
            Signature(
                "HDF5 error back trace",
                'tables.exceptions.HDF5ExtError: HDF5 error back trace\n  File "H5Zdeflate.c", line 117\n    '
                "inflate() failed",
                "HDF5 error",
                r"HDF5 error back trace(?:.*\n){1,40}?[^\n]*(?P<text>inflate\(\) failed|wrong B-tree signature|bad "
                r"object header)",
                source="PyTables 3.x",
            ),
            Signature(
                "Can't ",
                "OSError: Can't read data (inflate() failed)",
                "zlib.error: Error -3 while decompressing data: inflate failed",
                r"Can't (?:synchronously )?(?:read|write|get) [^\n]*\((?P<text>inflate\(\) failed|filter returned "
                r"failure[^)]*)\)?",
                source="h5py 2.10 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "B-tree signature",
                "KeyError: 'Unable to open object (wrong B-tree signature)'",
                "B-tree of the index",
                r"\((?P<text>wrong B-tree signature)\)",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                (
                    "(bad ",
                    "(unable to decode",
                    "(addr overflow",
                    "(ring type mismatch",
                    "(incorrect metadata checksum",
                ),
                "KeyError: 'Unable to open object (bad object header version number)'",
                "bad header",
                r"\((?P<text>bad object header version number|bad heap free list|bad local heap signature|bad "
                r"symbol table node signature|bad global heap collection signature|unable to decode[^)]*|addr "
                r"overflow[^)]*|ring type mismatch[^)]*|incorrect metadata checksum[^)]*|bad local heap[^)]*)",
                source="h5py 2.10 to 3.16, HDF5 1.8 to 2.0",
            ),
            Signature(
                "Can't ",
                "OSError: Can't synchronously read data (wrong fletcher32 checksum)",
                "OSError: Can't connect (refused)",
                r"Can't (?:synchronously )?read data \((?P<text>(?:wrong |data error detected by "
                r")?[Ff]letcher32[^)]*|(?!required filter|can't open dir)[^)]*(?:decompress|blosc|lzf|lz4|zstd|filter)[^)]*|file read failed(?!(?:[^)\n]|\n)*errno = 5\b)[^)\n]*)",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "Unspecified error in H5",
                "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: Unspecified "
                "error in H5Dget_num_attrs (return value <0)",
                "Unspecified error",
                r"(?P<text>Unspecified error in H5\w+) \(return value",
                also=(WORKER,),
                source="h5py 2.10 to 3.16",
            ),
        ),
        decide="the same run with num_workers=0; python -c \"import h5py; h5py.File('FILE')['KEY'][:]\"",
        alternatives=("HDF207",),
        judge=garbled,
        references="https://github.com/pytorch/pytorch/issues/11929",
    ),
    Cause(
        "HDF202",
        "hdf5-silent-wrong-rows",
        "Forked workers read other rows than they asked for, without an error.",
        "HDF5 up to 1.10.4 seeks and then reads. Forked workers share one file offset, so seek and read pairs of "
        "different "
        "workers interleave, and a worker gets another row's bytes. Newer wheels use positioned reads.",
        "the data differs with the number of workers ({detail}): forked workers share one file offset of an HDF5 "
        "handle that "
        "was opened before the fork, and get bytes of other rows without an exception",
        PERWORKER,
        (
            Signature(
                "num_workers",
                "(no error) labels.max() == 255 with num_workers=2; 39 with num_workers=0",
                "labels.max() == 39 with num_workers=2",
                r"(?P<detail>\blabels?\b[^\n]{0,30}\bmax\b[^\n]{0,12}\d+ with "
                r"num_workers=[1-9]\d*[^\n]{0,40}num_workers=0)",
                source="pytorch/pytorch#1919",
            ),
            Signature(
                "label",
                "h5py 2.10.0 HDF5 1.10.4, num_workers=8, start method fork\nepoch 0 step 100 loss 3.695  label min "
                "0 max 255 (classes 40)",
                "epoch 0 step 100 loss 3.695  label min 0 max 39 (classes 40)",
                r"\blabels?\b[^\n]{0,20}\bmax\D{0,4}(?P<max>\d+)[^\n]{0,12}\bclasses\D{0,3}(?P<classes>\d+)",
                also=(r"(?i)h5py|hdf5",),
                source="pytorch/pytorch#1919, reproduced with h5py 2.10.0",
            ),
            Signature(
                "num_workers=0",
                "same run, num_workers=0: label max 39, val acc 71.2%\nepoch 0 HDF5 num_workers=8",
                "num_workers=0: label max 39",
                r"(?P<detail>same run[^\n]{0,20}num_workers=0\b[^\n]*)",
                also=(r"(?i)h5py|hdf5", r"num_workers=[1-9]"),
                source="pytorch/pytorch#11929",
            ),
        ),
        kind=DEGRADED,
        judge=lambda seen, verdict: _wrong_rows(seen, verdict),
        decide="the same epoch with num_workers=0, rows compared with their index",
        references="https://github.com/pytorch/pytorch/issues/11929",
    ),
    Cause(
        "HDF203",
        "hdf5-file-locked",
        "Another process holds the HDF5 file open for writing.",
        "HDF5 takes a lock when it opens a file. A forgotten notebook, or a run that writes, holds it. errno 11 "
        "(EAGAIN) with "
        "the words lock file means that, not a limit of processes.",
        "HDF5 could not lock the file (errno {errno}): another process, such as a forgotten notebook kernel, has "
        "it open for "
        "writing",
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
            ("fuser -v FILE", "h5clear -s FILE", "h5ls -r FILE"),
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
                    "Invalid location identifier",
                    "Not a group",
                    "Not a file",
                ),
                "RuntimeError: Unable to synchronously get dataspace (identifier is not of specified type)",
                "identifier is not set",
                r"(?P<text>identifier is not of specified type|Not a (?:dataset|location|group|file)(?: id)? \([^)]*\)"
                r"|Invalid location identifier[^\n)]*)",
                source="h5py 2.8 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF235",
        "hdf5-filter-plugin-missing",
        "The data is compressed with a filter that this HDF5 does not have.",
        "blosc, lz4, zstd and bitshuffle are plugins; the file was written where they are installed.",
        "the data set is compressed with a filter that is not installed here ({what})",
        Remediation(
            "Install the filter plugins and import them before the file is read",
            (
                "pip install hdf5plugin",
                "import hdf5plugin, h5py  # for zarr: pip install imagecodecs; imagecodecs.numcodecs.register_codecs()",
                "h5dump -pH FILE | grep -A3 FILTER",
            ),
        ),
        (
            Signature(
                "required filter",
                "OSError: Can't synchronously read data (required filter 'blosc' is not registered)",
                "filter registered",
                r"(?P<what>required filter '[^']*' is not registered)",
                source="h5py 2.10 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "codec not available",
                "ValueError: codec not available: 'imagecodecs_jpegxl'",
                "codec is available",
                r"(?P<what>codec not available: '[^']*')",
                source="numcodecs 0.6 to 0.16, zarr",
            ),
            Signature(
                "can't open directory",
                "OSError: Can't read data (can't open directory: /usr/local/hdf5/lib/plugin)",
                "can't open directory /data",
                r"\(can't open directory:? ?\(?(?P<what>[^)\n]*plugin[^)\n]*)\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF236",
        "hdf5-object-not-in-file",
        "The file has no data set or group of that name.",
        "Another version of the file, another spelling, or a file that was written only in part.",
        "the HDF5 file has no object of that name ({what})",
        Remediation(
            "List what it holds",
            (
                "h5ls -r FILE",
                "python -c \"import h5py; h5py.File('FILE').visit(print)\"",
            ),
        ),
        (
            Signature(
                "open object (",
                "KeyError: \"Unable to synchronously open object (object 'labels' doesn't exist)\"",
                "table doesn't exist",
                r"Unable to (?:synchronously )?open object \((?P<what>(?:object|component|symbol)[^)]*(?:doesn't exist|not found))\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF204",
        "no-file-locks-on-this-file-system",
        "The file system of the HDF5 file has no locks.",
        "NFS, Lustre and ZFS shares without a lock service refuse the lock that HDF5 takes at opening. No second "
        "process is "
        "involved.",
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
    Cause(
        "HDF205",
        "lock-inherited-over-fork",
        "A forked worker waits for a lock that a thread of the parent held.",
        "The child inherits h5py's global lock (or any other) in its locked state; its owner, a thread, does not "
        "exist there. "
        "Nothing fails: the worker hangs.",
        "a worker waits in {where} for a lock that it inherited locked over the fork; the thread that owned it "
        "does not exist in "
        "the child",
        Remediation(
            "Start the workers before any thread reads HDF5, or start them with spawn or forkserver",
            ("DataLoader(..., multiprocessing_context='forkserver')", "py-spy dump --pid WORKER"),
        ),
        (
            Signature(
                "FastRLock.acquire",
                "(hang, no error) worker stack ends in h5py._objects.FastRLock.acquire",
                "FastRLock.release",
                r"(?P<where>h5py\._objects\.FastRLock\.acquire|FastRLock\.acquire)",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "zarr/core/sync.py",
                'Thread 711 (idle): "MainThread"\n    wait (threading.py:355)\n    sync (zarr/core/sync.py:133)\n    '
                "__getitem__ (data.py:22)\n    _worker_loop (torch/utils/data/_utils/worker.py:349)",
                '  File "zarr/core/sync.py", line 142, in sync\nValueError: bad chunk',
                r"^Thread [^\n]*\n(?:.*\n){0,16}?[^\n]*\((?P<where>zarr/core/sync\.py):\d+\)(?:.*\n){1,12}?[^\n]*_worker_loop",
                source="py-spy of zarr 3: its event loop runs in a thread, which a fork does not copy",
            ),
            Signature(
                "h5py/_objects.pyx",
                "Thread 4242 (idle): py-spy\n    with_phil.wrapper (h5py/_objects.pyx:54)",
                '  File "h5py/_objects.pyx", line 54, in h5py._objects.with_phil.wrapper\nOSError: Can\'t read data',
                r"(?:py-spy|Thread 0x|hang|stuck|Timeout)[^\n]*\n(?:.*\n){0,20}?[^\n]*(?P<where>h5py/_objects\.pyx)",
                unless=(r"^(?:OSError|KeyError|RuntimeError|BlockingIOError)\b",),
                source="h5py 2.10 to 3.16",
            ),
        ),
        judge=inherited,
        explains=("SES212", "WRK208"),
        decide="py-spy dump --pid WORKER",
    ),
    Cause(
        "HDF206",
        "hdf5-handle-not-picklable",
        "An open HDF5 handle is part of the data set that was sent to a worker.",
        "With spawn or forkserver (the default on Linux from Python 3.14 on) the data set is pickled, and h5py "
        "refuses to pickle "
        "open objects.",
        "an open h5py object is part of the data set, and cannot be pickled for a worker (spawn or forkserver, "
        "Python 3.14's "
        "default)",
        PERWORKER,
        (
            Signature(
                "h5py objects cannot be pickled",
                "TypeError: h5py objects cannot be pickled",
                "TypeError: cannot pickle '_io.TextIOWrapper' object",
                source="h5py 2.10 to 3.16, h5py/_hl/base.py",
            ),
            Signature(
                "no default __reduce__ due to non-trivial __cinit__",
                "TypeError: no default __reduce__ due to non-trivial __cinit__",
                "TypeError: no default",
                source="Cython classes: h5py ids, pysam, tables",
            ),
        ),
        judge=cython,
        explains=("WRK2", "SES"),
    ),
    Cause(
        "HDF207",
        "hdf5-file-truncated",
        "The HDF5 file is shorter than its header says, or is none.",
        "A download or copy was cut, or the writer died before it closed the file.",
        "the HDF5 file is cut short or is no HDF5 file ({text})",
        Remediation(
            "Compare its size and checksum with the source and copy it again",
            ("ls -l FILE; sha256sum FILE", "h5ls FILE", "file FILE"),
        ),
        (
            Signature(
                "truncated file",
                "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
                "truncated log",
                r"(?P<text>truncated file: eof = \d+[^)]*)",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "inflate() failed",
                "OSError: Can't read data (inflate() failed)",
                "OSError: Caught OSError in DataLoader worker process 3.\nOSError: Can't read data (inflate() "
                "failed)",
                r"Can't (?:synchronously )?read data \((?P<text>inflate\(\) failed)",
                unless=(WORKER,),
                source="h5py 2.10 to 3.16: a file that is really damaged",
            ),
            Signature(
                ("file signature not found", "bad superblock"),
                "OSError: Unable to synchronously open file (file signature not found)",
                "signature not found",
                r"Unable to (?:synchronously )?open file \((?P<text>file signature not found|bad superblock "
                r"version number[^)]*)\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF241",
        "netcdf-file-unreadable",
        "netCDF could not read its file.",
        "The one text of the HDF5 layer stands for a file that is cut short, a lock of another process or of NFS, and a "
        "file that several threads read at once.",
        "netCDF could not read its file ({text}): it is cut short or no netCDF file, locked by another process or by "
        "NFS, or read by several threads at once",
        Remediation(
            "Read its header alone; compare its size with the source; for data that is only read, switch locking off; "
            "under dask use one thread per process",
            (
                "ncdump -h FILE; ls -l FILE",
                "export HDF5_USE_FILE_LOCKING=FALSE",
                "dask.config.set(scheduler='synchronous')",
            ),
        ),
        (
            Signature(
                "NetCDF: ",
                "RuntimeError: NetCDF: HDF error",
                "NetCDF: HDF error rate",
                r"(?P<text>NetCDF: (?:HDF error|Unknown file format))\b(?! rate)",
                unless=(WORKER,),
                source="netCDF4 1.5 to 1.7, xarray",
            ),
            Signature(
                "NetCDF: Unknown file format",
                "OSError: [Errno -51] NetCDF: Unknown file format: '/data/era5_2019.nc'",
                "NetCDF: known file format",
                r"(?P<text>NetCDF: Unknown file format)",
                source="netCDF4 1.5 to 1.7: cut short, an error page, or GRIB and others",
            ),
        ),
        kind=VAGUE,
        decide="ncdump -h FILE",
    ),
    Cause(
        "HDF243",
        "hdf5-versions-mixed",
        "Two versions of HDF5 are loaded into one process.",
        "h5py from pip and PyTables, netCDF4 or a system library from elsewhere bring one each; HDF5 aborts when headers and library differ.",
        "two versions of HDF5 are mixed[[ (built with {headers}, loaded {library})]], and HDF5 aborts",
        Remediation(
            "Take h5py and what else uses HDF5 (netCDF4, tables) from one source, and keep system libraries out of LD_LIBRARY_PATH",
            (
                "pip install --force-reinstall --no-cache-dir h5py netCDF4 tables",
                "conda install -c conda-forge h5py netcdf4 pytables",
                'python -c "import h5py; print(h5py.version.info)"; unset LD_LIBRARY_PATH',
            ),
        ),
        (
            Signature(
                "HDF5 library version mismatched error",
                "Warning! ***HDF5 library version mismatched error***\nThe HDF5 header files used to compile this application do not match\nHeaders are 1.12.1, library is 1.10.7",
                "HDF5 library version 1.12.1",
                r"HDF5 library version mismatched error(?:(?:.*\n){1,12}?[^\n]*Headers are (?P<headers>[\d.]+), library is (?P<library>[\d.]+))?",
                source="HDF5 1.8 to 2.0",
            ),
        ),
        explains=("SES21", "SES22"),
    ),
    Cause(
        "HDF244",
        "hdf5-name-exists",
        "An HDF5 file, data set or group of that name is there already.",
        "create_dataset and mode 'x' or 'w-' refuse what exists; a second run writes into the first one's file.",
        "an HDF5 file or data set of that name exists already: a second run writes into the first one's file",
        Remediation(
            "Write a new file, or open or replace what is there on purpose",
            ("h5py.File(path, 'w')  # replaces the file", "f.require_dataset('x', shape, dtype)  # or: del f['x']"),
        ),
        (
            Signature(
                "name already exists",
                "ValueError: Unable to create dataset (name already exists)",
                "the name already exists in the list",
                r"Unable to (?:synchronously )?create (?:dataset|group|link|attribute|named type|object) \([^)\n]*name already exists\)",
                source="h5py 2.8 to 3.16",
            ),
            Signature(
                "errno = 17",
                "FileExistsError: [Errno 17] Unable to synchronously create file (unable to open file: name = 'out.h5', errno = 17, error message = 'File exists')",
                "errno = 170",
                r"unable to open file: name = '[^']*', errno = 17\b",
                source="h5py 2.8 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF245",
        "zarr-format-not-known",
        "The store is in another zarr format than the installed zarr reads.",
        "zarr 3 writes format 3 by default; zarr 2 reads format 2 only.",
        "the zarr store is in a format that the installed zarr does not read ({what})",
        Remediation(
            "Upgrade zarr where it is read, or write format 2",
            (
                "pip install -U 'zarr>=3'",
                "zarr.create_array(..., zarr_format=2)",
                'python -c "import zarr; print(zarr.__version__)"; ls -a STORE | head',
            ),
        ),
        (
            Signature(
                ("zarr_format'", "unsupported zarr format"),
                "zarr.errors.MetadataValidationError: Invalid value for 'zarr_format'. Expected '2'. Got '3'.",
                "'zarr_format' is 2",
                r"(?P<what>Invalid value for 'zarr_format'[^\n]*|unsupported zarr format:? ?\d*)",
                source="zarr 2.0 to 3.1",
            ),
        ),
    ),
)

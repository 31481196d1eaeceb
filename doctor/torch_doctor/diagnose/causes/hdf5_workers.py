"""HDF5 in DataLoader workers: handles over a fork or in a pickle, and locks that a child inherits."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
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
        "HDF5 read a chunk that does not decode ({text}): a handle opened before the fork is shared by the workers, "
        "whose reads interleave",
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
        "different workers interleave, and a worker gets another row's bytes. Newer wheels use positioned reads.",
        "the data differs with the number of workers ({detail}): forked workers share one file offset of an HDF5 "
        "handle that was opened before the fork, and get bytes of other rows without an exception",
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
        judge=_wrong_rows,
        decide="the same epoch with num_workers=0, rows compared with their index",
        references="https://github.com/pytorch/pytorch/issues/11929",
    ),
    Cause(
        "HDF205",
        "lock-inherited-over-fork",
        "A forked worker waits for a lock that a thread of the parent held.",
        "The child inherits h5py's global lock (or any other) in its locked state; its owner, a thread, does not "
        "exist there. Nothing fails: the worker hangs.",
        "a worker waits in {where} for a lock that it inherited locked over the fork; the thread that owned it does "
        "not exist in the child",
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
        "refuses to pickle open objects.",
        "an open h5py object is part of the data set, and cannot be pickled for a worker (spawn or forkserver, "
        "Python 3.14's default)",
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
)

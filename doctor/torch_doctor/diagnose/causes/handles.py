"""SQLite, LMDB and archives: handles over a fork."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.words import WORKER
from torch_doctor.model import Remediation


def lmdb_file(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A full map is the writer's setting, not damage."""
    text = seen.groups.get("text", "").strip()
    if "MDB_MAP_FULL" not in text:
        return with_message(
            verdict,
            verdict.message,
            Remediation(
                "Compare its size and first bytes with the source and copy it again (a Git LFS pointer or a page in its place "
                "gives the same); open with the subdir= that it was written with",
                (
                    "ls -ls PATH; head -c 100 PATH/data.mdb",
                    "lmdb.open(path, subdir=os.path.isdir(path), readonly=True, lock=False)",
                ),
            ),
        )
    return with_message(
        verdict,
        "the LMDB map is full: map_size, which the writer gave, is smaller than the data",
        Remediation(
            "Open it with a larger map_size (it is address space, not RAM; the file grows as needed), and write on",
            ("lmdb.open(path, map_size=1 << 40)", "env.set_mapsize(1 << 40)  # between transactions", "df -h PATH"),
        ),
    )


def sqlite(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Without a word of workers the file may be damaged, or the file system fails."""
    if seen.has(WORKER):
        return verdict
    text = (seen.find(r"database disk image is malformed|locking protocol|disk I/O error") or ["an error"])[0]
    return with_message(
        verdict,
        f"SQLite failed ({text}): a connection that was made before a fork is used by several processes; where there is only "
        "one, the file lies on NFS or a full disk, or is damaged (copied while it was written, its writer killed)",
        Remediation(
            "Check it in a single process; if it says ok, reconnect in each process, else copy or recover it; keep it on a "
            "local disk",
            (
                "sqlite3 FILE 'PRAGMA integrity_check'",
                "sqlite3 FILE .recover | sqlite3 NEW",
                "stat -f -c %T FILE; df -h FILE",
            ),
        ),
    )


register(
    Cause(
        "HDF208",
        "sqlite-connection-shared-over-fork",
        "An SQLite connection was made before the fork and used in workers.",
        "A connection must not cross a fork: workers share its file descriptor and cache. The text sounds like a "
        "damaged disk image, and PRAGMA integrity_check in one process says ok.",
        "SQLite failed ({text}) in a worker: a connection that was made before the fork is shared by the workers",
        Remediation(
            "Close the connection after __init__ and reconnect in each worker; check once with PRAGMA "
            "integrity_check in a single process",
            (
                "sqlite3 FILE 'PRAGMA integrity_check'",
                "def __getitem__(self, i):\n    if self.db is None:\n        self.db = "
                "sqlite3.connect(f'file:{self.path}?mode=ro', uri=True)",
            ),
        ),
        (
            Signature(
                "database disk image is malformed",
                "sqlite3.DatabaseError: database disk image is malformed",
                "disk image of the VM",
                r"sqlite3?\.?[\w.]*(?:Database|Operational)Error[^\n]*?(?P<text>database disk image is "
                r"malformed)|(?:DatabaseError|OperationalError): [^\n]*(?:database disk image is malformed)",
                source="SQLite 3.x, python 3.8 to 3.14",
            ),
            Signature(
                ("locking protocol", "disk I/O"),
                "sqlite3.OperationalError: locking protocol",
                "a locking protocol",
                r"sqlite3\.OperationalError\)?:? (?:\(sqlite3\.OperationalError\) )?(?P<text>locking protocol|disk "
                r"I/O error)",
                source="SQLite 3.x",
            ),
            Signature(
                "file is not a database",
                "sqlite3.DatabaseError: Caught DatabaseError in DataLoader worker process "
                "1.\nsqlite3.DatabaseError: file is not a database",
                "sqlite3.DatabaseError: file is not a database",
                r"(?P<text>file is not a database)",
                also=(WORKER,),
                source="SQLite 3.x",
            ),
        ),
        judge=sqlite,
        references="https://www.sqlite.org/howtocorrupt.html",
    ),
    Cause(
        "HDF209",
        "sqlite-database-locked",
        "Another connection holds the SQLite database locked.",
        "SQLite has one writer at a time; on NFS its locks do not work.",
        "the SQLite database is locked by another connection or process (an experiment tracker or Optuna study "
        "with several writers, or a file on NFS)",
        Remediation(
            "Let one process write, set a timeout, or use a database server; keep the file on a local disk",
            ("fuser -v FILE", "sqlite3.connect(path, timeout=60)"),
        ),
        (
            Signature(
                "database is locked",
                "sqlite3.OperationalError: database is locked",
                "the table is locked",
                source="SQLite 3.x, python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "HDF234",
        "sqlite-connection-of-another-thread",
        "An SQLite connection was used in another thread than the one that made it.",
        "Python refuses that, since a connection without locks of its own must not be shared.",
        "an SQLite connection was used in another thread than the one that made it",
        Remediation(
            "Make one connection per thread; check_same_thread=False only with a lock of your own around each use",
            (
                "local = threading.local(); local.db = sqlite3.connect(path)",
                "sqlite3.connect(path, check_same_thread=False)",
            ),
        ),
        (
            Signature(
                "SQLite objects created in a thread",
                "sqlite3.ProgrammingError: SQLite objects created in a thread can only be used in that same thread.",
                "objects created in a thread",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "HDF210",
        "lmdb-environment-shared-over-fork",
        "An LMDB environment was opened before the fork, or in more workers than it allows.",
        "An LMDB environment must be opened in the process that uses it; its reader table is keyed by thread and "
        "process.",
        "LMDB failed ({text}): the environment was opened before the fork or in the same process twice, or more "
        "readers came than max_readers allows",
        Remediation(
            "Open the environment once per process, lazily in each worker, with readonly=True, lock=False; close it "
            "before it is opened anew",
            ("lmdb.open(path, readonly=True, lock=False, readahead=False, max_readers=512)",),
        ),
        (
            Signature(
                "MDB_",
                "lmdb.BadRslotError: mdb_txn_begin: MDB_BAD_RSLOT: Invalid reuse of reader locktable slot",
                "lmdb.MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached",
                r"(?P<text>MDB_BAD_RSLOT|MDB_READERS_FULL|MDB_BAD_TXN)",
                source="lmdb 0.9x to 1.7",
            ),
            Signature(
                "MDB_READERS_FULL",
                "lmdb.ReadersFullError: mdb_txn_begin: MDB_READERS_FULL: Environment maxreaders limit reached",
                "readers full",
                r"(?P<text>MDB_READERS_FULL)",
                source="lmdb 0.9x to 1.7",
            ),
            Signature(
                "is already open in this process",
                "lmdb.Error: The environment '/data/train.lmdb' is already open in this process.",
                "file is already open",
                r"(?P<text>The environment '[^']*' is already open in this process)",
                source="lmdb 1.2 to 1.7",
            ),
            Signature(
                "MDB_",
                "lmdb.CorruptedError: Caught CorruptedError in DataLoader worker process 0.\nlmdb.CorruptedError: "
                "mdb_get: MDB_CORRUPTED: Located page was wrong type",
                "page corrupted",
                r"(?P<text>MDB_(?:CORRUPTED|PAGE_NOTFOUND|PANIC)[^\n]*)",
                also=(WORKER,),
                source="lmdb 0.9x to 1.7",
            ),
        ),
        references="https://lmdb.readthedocs.io/en/release/#environment-class",
    ),
    Cause(
        "HDF211",
        "lmdb-file-unusable",
        "The LMDB file is cut short, missing, or too small for what is written.",
        "A copy of an LMDB file that was cut gives MDB_INVALID or a bus error; a writer needs a map_size as large "
        "as the data.",
        "LMDB could not use its file ({text})",
        Remediation(
            "Compare its size with the source and copy it again; raise map_size for a writer",
            ("ls -ls PATH", "lmdb.open(path, map_size=1 << 40)"),
        ),
        (
            Signature(
                "MDB_",
                "lmdb.InvalidError: /data/train.lmdb: MDB_INVALID: File is not an LMDB file",
                "invalid file",
                r"(?P<text>MDB_(?:INVALID|VERSION_MISMATCH)[^\n]*)",
                source="lmdb 0.9x to 1.7",
            ),
            Signature(
                "MDB_MAP_",
                "lmdb.MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached",
                "map is full",
                r"(?P<text>MDB_MAP_(?:FULL|RESIZED)[^\n(]*)",
                source="lmdb 0.9x to 1.7",
            ),
        ),
        judge=lmdb_file,
    ),
    Cause(
        "HDF213",
        "database-connection-shared-over-fork",
        "A connection to a database server was made before the fork and used in workers.",
        "Workers share one socket and one TLS state; answers of the server reach the wrong one.",
        "a database or TLS connection failed ({text}): it was made before the fork, and the workers share its socket",
        Remediation(
            "Connect lazily in each worker, or dispose of the pool after the fork",
            ("engine.dispose()", "DataLoader(..., multiprocessing_context='spawn')"),
        ),
        (
            Signature(
                "decryption failed or bad record mac",
                "psycopg2.OperationalError: SSL error: decryption failed or bad record mac",
                "bad record",
                r"(?P<text>decryption failed or bad record mac)",
                source="OpenSSL under psycopg2, MySQL, S3",
            ),
            Signature(
                "lost synchronization with server",
                "psycopg2.OperationalError: lost synchronization with server: got message type",
                "synchronization with server",
                r"(?P<text>lost synchronization with server)",
                source="libpq 9 to 17",
            ),
            Signature(
                "PGRES_TUPLES_OK and no message from the libpq",
                "psycopg2.DatabaseError: error with status PGRES_TUPLES_OK and no message from the libpq",
                "PGRES_TUPLES_OK",
                r"(?P<text>PGRES_TUPLES_OK and no message from the libpq)",
                source="psycopg2 2.x",
            ),
        ),
    ),
    Cause(
        "HDF239",
        "database-file-not-writable",
        "SQLite or LMDB cannot write to its file, its folder or its lock file.",
        "LMDB writes to its lock file even when it only reads; SQLite needs to write to the folder for its journal. A read-only mount or another owner refuses both.",
        "the database cannot write to its file, folder or lock file ({what}): a read-only mount, or another owner",
        Remediation(
            "For data that is only read, open it read-only without locks; else give this user the folder",
            (
                "lmdb.open(path, readonly=True, lock=False)",
                "sqlite3.connect('file:' + path + '?mode=ro&immutable=1', uri=True)",
                "ls -ld FOLDER FOLDER/*; id; findmnt -T FOLDER -o OPTIONS",
            ),
        ),
        (
            Signature(
                "lmdb.",
                "lmdb.LockError: /data/train.lmdb: Permission denied",
                "lmdb.Error: /data/train.lmdb: No such file or directory",
                r"lmdb\.\w*Error: (?P<what>[^\n]*(?:Permission denied|Read-only file system))",
                source="lmdb 0.9x to 1.7",
            ),
            Signature(
                "attempt to write a readonly database",
                "sqlite3.OperationalError: attempt to write a readonly database",
                "readonly database",
                r"(?P<what>attempt to write a readonly database)",
                source="SQLite 3.x",
            ),
            Signature(
                "unable to open database file",
                "sqlite3.OperationalError: unable to open database file",
                "open database file",
                r"(?P<what>unable to open database file)",
                source="SQLite 3.x: the folder is missing or not writable",
            ),
        ),
        explains=("FS202", "FS204"),
    ),
    Cause(
        "HDF240",
        "lmdb-map-does-not-fit-in-memory",
        "LMDB could not reserve its map in the address space.",
        "map_size is reserved as address space, not as RAM; ulimit -v or strict overcommit refuse a large one.",
        "LMDB could not map its file: map_size does not fit into the address space that is allowed (ulimit -v, strict overcommit)",
        Remediation(
            "Lower map_size for readers, or lift the limit",
            (
                "ulimit -v unlimited",
                "sysctl vm.overcommit_memory",
                "lmdb.open(path, readonly=True, lock=False)",
            ),
        ),
        (
            Signature(
                "lmdb.MemoryError",
                "lmdb.MemoryError: /data/train.lmdb: Cannot allocate memory",
                "lmdb.MapFullError",
                r"lmdb\.MemoryError",
                source="lmdb 0.9x to 1.7",
            ),
        ),
        explains=("MEM205",),
    ),
    Cause(
        "HDF212",
        "zip-handle-shared-over-fork",
        "A zip archive (zarr ZipStore, zipfile, tar) was opened before the fork and read by several workers.",
        "The workers share one file offset; what they read is put together from pieces of several reads. The "
        "archive is fine.",
        "an archive read failed ({text}) in a worker: the zip or tar handle was opened before the fork and is "
        "shared by the workers",
        Remediation(
            "Open the archive lazily in each worker",
            (
                "def __getitem__(self, i):\n    if self.zip is None:\n        self.zip = zipfile.ZipFile(self.path)",
                "unzip -tq FILE",
            ),
        ),
        (
            Signature(
                "BadZipFile",
                "zipfile.BadZipFile: Caught BadZipFile in DataLoader worker process 2.\nzipfile.BadZipFile: Bad "
                "CRC-32 for file 'x/0.0'",
                "zipfile.BadZipFile: File is not a zip file",
                r"BadZipFile: (?P<text>Bad CRC-32[^\n]*|Bad magic number for file header|File name in directory "
                r"[^\n]*|Overlapped entries[^\n]*)",
                also=(WORKER,),
                source="python 3.8 to 3.14, Lib/zipfile",
            ),
            Signature(
                "zlib.error",
                "zlib.error: Caught zlib.error in DataLoader worker process 2.\nzlib.error: Error -3 while "
                "decompressing data: invalid block type",
                "zlib.error: Error -3 while decompressing data: incorrect header check",
                r"zlib\.error: (?P<text>Error -\d while decompressing data[^\n]*)",
                also=(WORKER,),
                source="python 3.8 to 3.14",
            ),
            Signature(
                "tarfile.ReadError",
                "tarfile.ReadError: Caught ReadError in DataLoader worker process 0.\ntarfile.ReadError: "
                "unexpected end of data",
                "tarfile.ReadError: not a gzip file",
                r"tarfile\.ReadError: (?P<text>(?:unexpected end of data|bad checksum|invalid header)[^\n]*)",
                also=(WORKER,),
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "HDF242",
        "video-handle-shared-over-fork",
        "A video decoder failed in a worker.",
        "A decoder that was opened before the fork shares its file offset and threads with the other workers, and decodes "
        "rubbish or hangs; a damaged file gives the same words.",
        "a video could not be decoded in a worker ({text}): the decoder was opened before the fork and is shared by the "
        "workers, or the file is damaged",
        Remediation(
            "Open the decoder in __getitem__ or once per worker, start the workers with spawn or forkserver, and check the "
            "file in a single process",
            (
                "decoder = VideoDecoder(self.path)  # in __getitem__",
                "DataLoader(..., multiprocessing_context='spawn')",
                "ffmpeg -v error -i FILE -f null -",
            ),
        ),
        (
            Signature(
                (
                    "Could not push packet to decoder",
                    "Invalid data found when processing input",
                    "cannot find video stream",
                ),
                "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: Could not push packet to "
                "decoder: Invalid data found when processing input",
                "RuntimeError: Could not push packet to decoder: Invalid data found when processing input",
                r"(?P<text>Could not push packet to decoder|Invalid data found when processing input|cannot find video "
                r"stream)",
                also=(WORKER,),
                source="torchcodec 0.1 to 0.8, PyAV 9 to 15, decord 0.6",
            ),
        ),
        kind=VAGUE,
        decide="ffmpeg -v error -i FILE -f null -; the same run with num_workers=0",
        alternatives=("WRK232",),
    ),
)

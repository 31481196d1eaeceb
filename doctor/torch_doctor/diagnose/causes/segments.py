"""Named shared memory: segments of multiprocessing, and the manager of the file_system strategy."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def left_over(seen: Seen, verdict: Verdict) -> Verdict | None:
    """MosaicML's streaming names its segments by a counter, and brings what removes those of dead runs."""
    if not seen.has(r"streaming/base|Reused local director|clean_stale_shared_memory"):
        return verdict
    return with_message(
        verdict,
        "StreamingDataset found shared memory segments of another run (/dev/shm/00000N_*): left by a run that was killed, "
        "or in use by one that reads the same local folder",
        Remediation(
            "See that no other run uses the folder, then remove the segments once, before the first StreamingDataset, on "
            "one rank; or give each run a local folder of its own",
            (
                'python -c "from streaming.base.util import clean_stale_shared_memory as c; c()"',
                "ls -l /dev/shm/0*; fuser -v /dev/shm/0*",
                "rm -i /dev/shm/0*_*  # asks for each: other runs of this machine have such names, too",
            ),
        ),
    )


register(
    Cause(
        "SHM215",
        "shared-segment-exists",
        "A shared memory segment of that name is there already.",
        "SharedMemory(name=..., create=True) makes a file in /dev/shm. A run that was killed leaves it, and two runs on "
        "one machine with the same name meet there.",
        "the shared memory segment {name} exists already: left in /dev/shm by a run that was killed, or made by another "
        "run on this machine",
        Remediation(
            "See that no process uses it, remove it, and give each run names of its own",
            (
                "ls -l /dev/shm",
                "fuser -v /dev/shm{name}",
                "rm /dev/shm{name}",
                "SharedMemory(create=True, size=n)  # a random name",
            ),
        ),
        (
            Signature(
                ("shared_memory.py", "_posixshmem"),
                '  File "/usr/lib/python3.10/multiprocessing/shared_memory.py", line 104, in __init__\n'
                "    self._fd = _posixshmem.shm_open(\nFileExistsError: [Errno 17] File exists: '/000000_locals'",
                "FileExistsError: [Errno 17] File exists: 'runs/exp1'",
                r"(?:multiprocessing/shared_memory\.py|_posixshmem)[^\n]*\n(?:.*\n){0,6}?.*\[Errno 17\] File exists: "
                r"'(?P<name>/[^']*)'",
                source="python 3.8 to 3.14, multiprocessing/shared_memory.py",
            ),
            Signature(
                "Reused local director",
                "ValueError: Reused local directory: ['/raid/c4/train'] vs ['/raid/c4/train']. Provide a different one.",
                "Reused the local directory",
                r"Reused local director(?:y|ies): \[",
                source="MosaicML streaming 0.4 to 0.12, streaming/base/shared",
            ),
        ),
        judge=left_over,
        explains=("FS2",),
    ),
    Cause(
        "SHM218",
        "object-store-full",
        "Ray's object store is full.",
        "Objects stay in the store as long as a reference lives; the store has its own size, which /dev/shm only bounds.",
        "Ray's object store is full: it is smaller than what tasks keep a reference to[[ (an object of {bytes} bytes)]]",
        Remediation(
            "Drop references (del ref), hand over paths or smaller pieces, or give the store more memory, up to the size "
            "of /dev/shm",
            ("ray memory --stats-only", "ray.init(object_store_memory=20 * 2**30)", "docker run --shm-size=24g ..."),
        ),
        (
            Signature(
                ("ObjectStoreFullError", "the object store is full"),
                "ray.exceptions.ObjectStoreFullError: Failed to put object ffff into the object store because the object "
                "store is full. Object size is 4294967296 bytes.",
                "the object store is up",
                r"ObjectStoreFullError[^\n]*?(?:Object size is (?P<bytes>\d+))?|because the object store is full",
                source="Ray 1.x and 2.x",
            ),
        ),
        explains=("SHM202",),
    ),
    Cause(
        "SHM216",
        "shared-segment-gone",
        "A shared memory segment was gone when a process attached to it.",
        "Before Python 3.13 each process that attaches registers the segment with a resource tracker, which unlinks it "
        "when that process ends, under the others. Or its maker has ended, or lives in a container with another /dev/shm.",
        "the shared memory segment {name} was gone when a process attached to it: its maker or another reader ended, and "
        "the resource tracker unlinked it, or the processes do not share one /dev/shm",
        Remediation(
            "Keep the maker alive until all readers are done; attach without tracking; run the processes in one IPC "
            "namespace",
            (
                "SharedMemory(name=name, track=False)  # Python 3.13",
                "multiprocessing.resource_tracker.unregister(shm._name, 'shared_memory')  # before 3.13, after attaching",
                "docker run --ipc=host ...",
                "ls -l /dev/shm",
            ),
        ),
        (
            Signature(
                ("shared_memory.py", "_posixshmem"),
                '  File "/usr/lib/python3.10/multiprocessing/shared_memory.py", line 104, in __init__\n'
                "    self._fd = _posixshmem.shm_open(\n"
                "FileNotFoundError: [Errno 2] No such file or directory: '/psm_5d2f0a11'",
                "FileNotFoundError: [Errno 2] No such file or directory: 'data/a.npy'",
                r"(?:multiprocessing/shared_memory\.py|_posixshmem)[^\n]*\n(?:.*\n){0,6}?"
                r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<name>/[^']*)'",
                source="python 3.8 to 3.14, multiprocessing/shared_memory.py",
            ),
        ),
        kind=VAGUE,
        explains=("FS2", "SES223"),
        decide="ls -l /dev/shm",
    ),
    Cause(
        "SHM217",
        "torch-shm-manager-failed",
        "torch_shm_manager, the helper of the file_system sharing strategy, did not start or answer.",
        "With set_sharing_strategy('file_system') a small program in torch/bin watches the segments. It must be "
        "executable, find its libraries, and make a socket in the temporary folder.",
        "torch_shm_manager, the helper program of the file_system sharing strategy, did not start or answer",
        Remediation(
            "Use the file_descriptor strategy with a higher limit of open files; else see that the program is "
            "executable (no noexec mount), finds its libraries, and that the temporary folder is writable",
            (
                "torch.multiprocessing.set_sharing_strategy('file_descriptor')",
                "ulimit -n 65536",
                'd=$(python -c "import torch, pathlib; print(pathlib.Path(torch.__file__).parent)"); '
                "ls -l $d/bin/torch_shm_manager; ldd $d/bin/torch_shm_manager | grep 'not found'",
                "df -h ${TMPDIR:-/tmp}; ls -ld ${TMPDIR:-/tmp}",
            ),
        ),
        (
            Signature(
                "torch_shm_manager",
                'RuntimeError: error executing torch_shm_manager at "/opt/venv/lib/python3.11/site-packages/torch/bin/'
                'torch_shm_manager" at ../torch/lib/libshm/core.cpp:99',
                "torch_shm_manager started",
                r"(?:error executing|no response from|Cannot execute|[Uu]nable to (?:start|execute)) torch_shm_manager"
                r"|torch_shm_manager[^\n]*(?:Permission denied|No such file)",
                source="torch 0.4 to 2.15, torch/lib/libshm",
            ),
            Signature(
                ("Shared memory manager connection has timed out", "could not generate a random directory for"),
                "RuntimeError: Shared memory manager connection has timed out",
                "Shared memory manager connected",
                r"Shared memory manager connection has timed out|could not generate a random directory for (?:shared "
                r"memory )?manager socket",
                source="torch 0.4 to 2.15, torch/lib/libshm",
            ),
        ),
        explains=("WRK20", "WRK21", "FS202", "PKG204"),
        references="https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",
    ),
    Cause(
        "SHM219",
        "socket-path-too-long",
        "The temporary folder's path is too long for a socket.",
        "Workers hand over descriptors through a socket in a folder under TMPDIR; the path of a socket has at most 107 bytes.",
        "the path of a socket is too long (107 bytes at most): TMPDIR, under which multiprocessing makes its sockets, is a long path",
        Remediation(
            "Let TMPDIR name a short path before Python starts",
            (
                "export TMPDIR=/tmp",
                'python -c "import tempfile; print(len(tempfile.gettempdir()), tempfile.gettempdir())"',
            ),
        ),
        (
            Signature(
                "AF_UNIX path too long",
                "OSError: AF_UNIX path too long",
                "the AF_UNIX path is short",
                source="python 3.8 to 3.14, multiprocessing/connection.py",
            ),
        ),
        explains=("WRK22",),
    ),
    Cause(
        "SHM221",
        "descriptor-handed-over-twice",
        "The same file descriptor was to be handed to a child twice.",
        "With the file_descriptor strategy each shared tensor brings a descriptor; a storage that is shared under two names (tied weights) brings it twice, and spawn refuses that.",
        "spawn was to hand the same descriptor to a child twice: shared tensors of one storage (tied weights, views) are passed more than once",
        Remediation(
            "Share through the file system, or pass each storage once",
            (
                "torch.multiprocessing.set_sharing_strategy('file_system')",
                "model.share_memory()  # and pass the model, not its parameters",
            ),
        ),
        (
            Signature(
                "in fds_to_keep",
                "ValueError: bad value(s) in fds_to_keep",
                "values in fds_to_keep",
                r"bad value\(s\) in fds_to_keep",
                source="python 3.8 to 3.14, _posixsubprocess",
            ),
        ),
    ),
)

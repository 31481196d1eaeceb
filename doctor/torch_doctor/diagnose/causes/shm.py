"""Shared memory: /dev/shm and the sharing of tensors between processes."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation, mib

MORE_SHM = Remediation(
    "Give the container more shared memory: --shm-size=8g or --ipc=host with docker run, shm_size: 8g in compose, in "
    "Kubernetes an emptyDir with medium: Memory mounted at /dev/shm; or fewer workers and a smaller prefetch_factor",
    ("docker run --shm-size=8g ...", "df -h /dev/shm"),
)
#: free bytes from which a full /dev/shm is not believed
PLENTY = 4 << 30
#: words of libraries that map files; of a small or full /dev/shm; and the line of df for it
_MAPPED = r"(?i)\blmdb\b|memmap|\bmmap\b|safetensors|\barrow\b|\.lmdb\b"
_SHM_SHORT = r"(?i)/dev/shm[^\n]*\b(?:9\d|100)%|shm[^\n]{0,12}\b64 ?Mi?B?\b|\b(?:9\d|100)% /dev/shm|--shm-size[= ]?64|SHMEM allocation limit is set to the default of 64MB"
_DF = r"^\S+\s+(?P<size>[\d.]+)(?P<unit>[GT])i?\s+\S+\s+\S+\s+(?P<used>\d+)%\s+/dev/shm$"


def bus_error(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A large and free /dev/shm is not what the worker ran out of: then it is a memory map that lost its file."""
    reason = _plenty(seen)
    size = seen.machine.number("shm.size_bytes")
    if size is not None and size < PLENTY:
        return with_message(verdict, f"{verdict.message} (it has {mib(size)})", None, shm_size_bytes=size)
    if not reason and (not seen.has(_MAPPED) or seen.has(_SHM_SHORT)):
        return verdict
    reason = reason or "the data is read from memory-mapped files"
    return with_message(
        verdict,
        f"a DataLoader worker was killed by a bus error (SIGBUS), and {reason}: a page of a memory-mapped file "
        "(LMDB, "
        "np.memmap, safetensors, Arrow) could not be had, since the file was truncated, its disk is full, or its "
        "network "
        "file system failed",
        Remediation(
            "Compare the mapped file's size with its source and copy it again to a local disk with free space, or "
            "read it in place of mapping it; look at the free space of /dev/shm as well",
            ("ls -ls DATA", "df -h . /dev/shm", "dmesg | tail -50", "stat -f -c %T DATA"),
        ),
    )


def _plenty(seen: Seen) -> str:
    free = seen.machine.number("shm.free_bytes", "shm.available_bytes")
    if free is not None:
        return f"/dev/shm has {mib(free)} free on this machine" if free >= PLENTY else ""
    line = seen.told(_DF)
    if line and int(line["used"]) < 80 and (float(line["size"]) >= 4 or line["unit"] == "T"):
        return f"/dev/shm has {line['size']}{line['unit']}iB of which {line['used']} % are used"
    return ""


register(
    Cause(
        "SHM201",
        "shm-bus-error",
        "A DataLoader worker died of a bus error because /dev/shm was full.",
        "Workers hand batches over in files in /dev/shm. When that tmpfs is full, touching a fresh page raises "
        "SIGBUS and the worker is gone, often hours into a run.",
        "a DataLoader worker[[ ({pid})]] was killed by a bus error (SIGBUS): /dev/shm, the shared memory in which "
        "workers hand over batches, is full",
        MORE_SHM,
        (
            Signature(
                "killed by signal: Bus error",
                "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error. It is possible that "
                "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
                "RuntimeError: DataLoader worker (pid 325) is killed by signal: Killed.",
                r"DataLoader worker \(pid\(?s?\)?:? (?P<pid>[\d, ]+)\) is killed by signal: Bus error",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
            Signature(
                "Unexpected bus error encountered in worker",
                "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
                "memory (shm).",
                "ERROR: Unexpected segmentation fault encountered in worker.",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
            Signature(
                "insufficient shared memory (shm)",
                "This might be caused by insufficient shared memory (shm).",
                "insufficient memory",
                source="torch 0.4 to 2.15",
            ),
        ),
        explains=("WRK20", "WRK21", "SES20", "SHM20", "SHM21"),
        decide="df -h /dev/shm; dmesg | tail",
        judge=bus_error,
        references="https://github.com/pytorch/pytorch/issues/5040",
    ),
    Cause(
        "SHM202",
        "shm-no-space-left",
        "/dev/shm was full when a tensor was to be shared.",
        "Newer torch reserves the blocks of a shared tensor first, so a full /dev/shm is an exception with the text "
        "of errno 28 in place of a bus error.",
        "/dev/shm is full: a worker could not allocate shared memory for a tensor (errno 28 of the tmpfs on "
        "/dev/shm)",
        MORE_SHM,
        (
            Signature(
                "unable to allocate shared memory(shm)",
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_27075_3743144701_0>: No space "
                "left on device (28)",
                "RuntimeError: unable to open shared memory object </torch_1_2_3> in read-write mode: Too many "
                "open files (24)",
                r"unable to allocate shared memory\(shm\) for file <(?P<file>[^>]*)>: (?:No space left on "
                r"device|Success)",
                source="torch 2.1 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
            Signature(
                "unable to resize file",
                "RuntimeError: unable to resize file </torch_8_9_1> to the right size: No space left on device (28)",
                "RuntimeError: unable to resize file <data.bin> to the right size: No space left on device (28)",
                r"unable to resize file </?(?:dev/shm/)?torch_[^>]*> to the right size: (?:No space "
                r"left|Success|Invalid)",
                source="torch 0.4 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
            Signature(
                "unable to write to file",
                "RuntimeError: unable to write to file </torch_29919_1396182366_0>",
                "RuntimeError: unable to write to file <model.bin>",
                r"unable to write to file </torch_\d+[^>]*>",
                source="torch 1.0 to 1.13, TH/THAllocator.c and ATen/MapAllocator.cpp",
            ),
            Signature(
                "/dev/shm",
                "OSError: [Errno 28] No space left on device: '/dev/shm/pym-4242-abc'",
                "OSError: [Errno 28] No space left on device: '/data/out.pt'",
                r"\[Errno 28\] No space left on device: '/dev/shm/[^']*'|/dev/shm/(?!nccl)\S*: No space left on "
                r"device",
                source="python 3.8 to 3.14, multiprocessing and cp",
            ),
            Signature(
                "_multiprocessing.SemLock",
                '  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__\n'
                "    sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device",
                "    sl = self._semlock = _multiprocessing.SemLock(\nPermissionError: [Errno 13] Permission denied",
                r"_multiprocessing\.SemLock\((?:.*\n){1,6}?.*\[Errno 28\] No space left on device",
                source="python 3.8 to 3.14, multiprocessing/synchronize.py",
            ),
            Signature(
                "shared_memory.py",
                '  File "/usr/lib/python3.11/multiprocessing/shared_memory.py", line 121, in __init__\n'
                "    os.ftruncate(self._fd, size)\nOSError: [Errno 28] No space left on device",
                '  File "/usr/lib/python3.11/multiprocessing/shared_memory.py", line 104, in __init__\n'
                "FileExistsError: [Errno 17] File exists: '/cache_0'",
                r"multiprocessing/shared_memory\.py\"[^\n]*\n(?:.*\n){1,6}?.*\[Errno 28\] No space left on device",
                source="python 3.8 to 3.14, multiprocessing/shared_memory.py",
            ),
            Signature(
                ("plasma", "object store"),
                "The object store is using /dev/shm ... plasma: No space left on device",
                "plasma store started",
                r"(?:plasma|object store)[^\n]*(?:/dev/shm|shm)[^\n]*(?:No space left|not enough|full)",
                source="Ray",
            ),
            Signature(
                "unable to allocate shared memory(shm)",
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_41_1804289383_12>: Resource temporarily unavailable (11)",
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_3>: Permission denied (13)",
                r"unable to allocate shared memory\(shm\) for file <(?P<file>[^>]*)>: (?:Resource temporarily unavailable|Cannot allocate memory|Disk quota exceeded)",
                source="torch 2.1 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
            Signature(
                "unable to mmap",
                "shm              64M   64M     0 100% /dev/shm\nRuntimeError: unable to mmap 602112 bytes from file "
                "</torch_99_2810_3>: Invalid argument (22)",
                "RuntimeError: unable to mmap 602112 bytes from file </torch_99_2810_3>: Invalid argument (22)",
                r"unable to mmap \d+ bytes from file </torch_[^>]*>: (?:Invalid argument|No space left)",
                also=(_SHM_SHORT,),
                source="torch 1.0 to 2.15, with df beside it",
            ),
            Signature(
                "joblib_memmapping_folder",
                "/dev/shm/joblib_memmapping_folder_77_abc\nOSError: [Errno 28] No space left on device",
                "joblib_memmapping_folder_77",
                r"/dev/shm/joblib_memmapping_folder",
                also=("No space left on device",),
                source="joblib 0.12 to 1.5: set JOBLIB_TEMP_FOLDER to a disk",
            ),
            Signature(
                "exceeds /dev/shm size",
                "ValueError: The configured object store size (12.5 GB) exceeds /dev/shm size (0.067 GB). This will harm performance.",
                "within /dev/shm size",
                source="Ray 1.x and 2.x",
            ),
        ),
        explains=("WRK20", "WRK23", "FS20", "SHM201", "SES"),
        decide="df -h /dev/shm",
        references="https://github.com/pytorch/pytorch/issues/5247",
    ),
    Cause(
        "SHM204",
        "open-file-limit-of-shared-tensors",
        "The limit of open files is reached by the descriptors of shared tensors.",
        "With the file_descriptor strategy each tensor that a worker sends keeps a descriptor open as long as it "
        "lives. At the limit the kernel drops the descriptor from the message, and the receiver gets nothing.",
        "the limit of open files (ulimit -n) is reached: each tensor received from a worker keeps a file "
        "descriptor open",
        Remediation(
            "Raise the limit of open files, or share through the file system, or keep copies (clone(), NumPy) of "
            "what you store from each batch",
            (
                "ulimit -n 65536",
                "docker run --ulimit nofile=65536:65536 ...",
                "torch.multiprocessing.set_sharing_strategy('file_system')",
            ),
        ),
        (
            Signature(
                "items of ancdata",
                "RuntimeError: received 0 items of ancdata",
                "RuntimeError: received 0 items",
                r"received \d+ items of ancdata",
                source="python 3.8 to 3.14, multiprocessing/reduction.py",
            ),
            Signature(
                "unable to open shared memory object",
                "RuntimeError: unable to open shared memory object </torch_19_20_21> in read-write mode: Too many "
                "open files (24)",
                "OSError: [Errno 24] Too many open files: 'data/1.jpg'",
                r"unable to open shared memory object <[^>]*> in [\w-]+ mode(?:: Too many open files|$)",
                source="torch 1.5 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
            Signature(
                "Too many open files. Communication with the workers is no longer possible",
                "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please "
                "increase the limit using `ulimit -n` in the shell or change the sharing strategy by calling "
                "`torch.multiprocessing.set_sharing_strategy('file_system')` at the beginning of your code",
                "too many files",
                source="torch 1.7 to 2.15, torch/utils/data/dataloader.py",
            ),
        ),
        explains=("WRK20", "FS2", "SHM205"),
        decide="ulimit -n; ls /proc/PID/fd | wc -l",
        references="https://github.com/pytorch/pytorch/issues/973",
    ),
    Cause(
        "SHM205",
        "shared-tensor-vanished",
        "The file of a shared tensor was gone when another process opened it.",
        "The sender ended, or its torch_shm_manager did, before the receiver had opened the file; or something "
        "cleans /dev/shm or /tmp; or the two processes do not share /dev/shm (two containers).",
        "the shared-memory file of a tensor was gone when a process opened it: its sender had ended, or the "
        "processes do not see the same /dev/shm",
        Remediation(
            "Find why the sending process ended (the first error above), keep senders alive until the queue is "
            "drained, and run processes that share tensors in one IPC namespace",
            ("docker run --ipc=host ...", "ls -l /dev/shm"),
        ),
        (
            Signature(
                "unable to open shared memory object",
                "RuntimeError: unable to open shared memory object </torch_5_6_7> in read-write mode: No such file "
                "or directory (2)",
                "RuntimeError: unable to open shared memory object </torch_5_6_7> in read-write mode: Too many "
                "open files (24)",
                r"unable to open shared memory object <[^>]*> in [\w-]+ mode: No such file",
                source="torch 1.5 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
        ),
        kind=VAGUE,
        explains=("WRK20",),
    ),
    Cause(
        "SHM213",
        "shm-not-usable",
        "/dev/shm is missing, cannot be written, or has no semaphores.",
        "Locks and queues of multiprocessing and OpenMP need a /dev/shm that the user can write to; chroots, some "
        "batch systems and strict containers have none.",
        "/dev/shm is missing or this user cannot write to it: multiprocessing and OpenMP cannot make their "
        "semaphores",
        Remediation(
            "Mount a tmpfs of mode 1777 on /dev/shm; where the platform allows none (AWS Lambda, some sandboxes), load "
            "in the main process with num_workers=0",
            (
                "ls -ld /dev/shm",
                "docker run --shm-size=8g ...",
                "mount -t tmpfs -o size=8g,mode=1777 shm /dev/shm",
                "DataLoader(..., num_workers=0)",
            ),
        ),
        (
            Signature(
                "Can't open SHM",
                "OMP: Error #179: Function Can't open SHM2 failed:\nOMP: System error #2: No such file or directory",
                "Can't open the file",
                r"OMP: Error #179: Function Can't open SHM",
                source="LLVM and Intel OpenMP",
            ),
            Signature(
                "sem_open implementation",
                "ImportError: This platform lacks a functioning sem_open implementation, therefore, the required "
                "synchronization primitives needed will not function",
                "sem_open works",
                r"lacks a functioning sem_open implementation",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "_multiprocessing.SemLock",
                "    sl = self._semlock = _multiprocessing.SemLock(\nPermissionError: [Errno 13] Permission denied",
                "    sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device",
                r"_multiprocessing\.SemLock\((?:.*\n){1,6}?.*\[Errno (?:13|38|2|30)\]",
                source="python 3.8 to 3.14, multiprocessing/synchronize.py",
            ),
            Signature(
                "Permission denied: '/dev/shm",
                "PermissionError: [Errno 13] Permission denied: '/dev/shm/sem.mp-abc123'",
                "PermissionError: [Errno 13] Permission denied: '/data/x'",
                r"\[Errno (?:13|1)\] Permission denied: '/dev/shm[^']*'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "shm_open failed",
                "NCCL WARN Call to shm_open failed : Permission denied",
                "NCCL WARN Call to shm_open failed : No space left on device",
                r"Call to shm_open failed : (?P<what>Permission denied|Function not implemented|No such file or "
                r"directory)",
                source="NCCL 2.3 to 2.17, include/shm.h",
            ),
            Signature(
                ("unable to open shared memory object", "unable to allocate shared memory(shm)"),
                "RuntimeError: unable to open shared memory object </torch_19_20_21> in read-write mode: Permission "
                "denied (13)",
                "RuntimeError: unable to open shared memory object </torch_19_20_21> in read-write mode: Too many "
                "open files (24)",
                r"unable to (?:open shared memory object|allocate shared memory\(shm\) for file) <[^>]*>[^\n]*: "
                r"(?P<what>Permission denied|Function not implemented|Read-only file system)",
                source="torch 1.5 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
        ),
        explains=("FS2", "WRK2", "DST22"),
    ),
    Cause(
        "SHM214",
        "object-store-not-in-shm",
        "Ray's object store is in /tmp, because /dev/shm is too small.",
        "Ray falls back to the disk when /dev/shm is smaller than the store, and gets slow.",
        "/dev/shm has only {bytes} bytes: Ray's object store uses the disk instead, which is slow",
        MORE_SHM,
        (
            Signature(
                "object store is using",
                "WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 "
                "bytes available.",
                "The object store is using 2 GB",
                r"object store is using \S+ instead of /dev/shm because /dev/shm has only (?P<bytes>\d+) bytes",
                source="Ray 1.x and 2.x",
            ),
        ),
        kind=DEGRADED,
    ),
)

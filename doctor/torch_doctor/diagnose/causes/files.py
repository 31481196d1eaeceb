"""Files that are not there or cannot be read: storage, limits, names."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def open_files(seen: Seen, verdict: Verdict) -> Verdict | None:
    """23 is the table of the whole system, 24 that of the process."""
    if not re.search(r"Errno 23\]", seen.log.lines[seen.index].text):
        return verdict
    return with_message(
        verdict,
        "the table of open files of the whole system is full (errno 23, fs.file-max), not the limit of this process",
        Remediation(
            "Raise fs.file-max on the host, and find who holds the files",
            (
                "sudo sysctl -w fs.file-max=4194304",
                "cat /proc/sys/fs/file-nr",
                "lsof -n | awk '{print $2, $1}' | sort | uniq -c | sort -n | tail",
            ),
        ),
    )


def storage(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A stale handle is NFS's: the file was replaced under the reader, and the disk is well."""
    if server := seen.groups.get("server"):
        return with_message(
            verdict,
            f"the NFS server {server} did not respond: whatever reads from it hangs until it does",
            Remediation(
                "Look at the server and the network to it; stage the data to a local disk",
                ("nfsstat -m; ping -c 3 SERVER", "dmesg -T | grep -i nfs | tail", "rsync -a /nfs/data/ /local/data/"),
            ),
        )
    if "Transport endpoint" in verdict.message:
        return with_message(
            verdict,
            "a FUSE mount (gcsfuse, s3fs, rclone, sshfs) is gone: its program ended, and the mount point stayed behind",
            Remediation(
                "Unmount it and mount it anew; look why its program ended (out of memory, credentials); stage data to a local disk",
                (
                    "fusermount -uz MOUNT; gcsfuse BUCKET MOUNT",
                    "findmnt -T PATH; dmesg -T | grep -i -E 'oom|killed process'",
                ),
            ),
        )
    if "Stale" not in verdict.message:
        return verdict
    return with_message(
        verdict,
        "a file on NFS went stale (ESTALE): it was deleted or replaced on the server, or the export was remounted, "
        "while this machine had it open",
        Remediation(
            "Do not replace files that a run reads (write new names, then switch); remount if it stays, or copy the "
            "data to a local disk",
            (
                "findmnt -T FILE",
                "sudo umount -l MOUNT && sudo mount MOUNT  # what has files open there loses them",
                "rsync -a /nfs/data/ /local/data/",
            ),
        ),
    )


register(
    Cause(
        "FS207",
        "too-many-open-files",
        "The limit of open files is reached.",
        "Each worker, socket and memory map takes descriptors; 1024 is a common soft limit.",
        "the limit of open files (ulimit -n) is reached",
        Remediation(
            "Raise the limit, close what is not used any more, or share tensors through the file system",
            (
                "ulimit -n 65536",
                "docker run --ulimit nofile=65536:65536 ...",
                "torch.multiprocessing.set_sharing_strategy('file_system')",
            ),
        ),
        (
            Signature(
                ("Too many open files", "error=24", "errno"),
                "OSError: [Errno 24] Too many open files: 'data/1.jpg'",
                "RuntimeError: unable to open shared memory object </torch_19_20_21> in read-write mode: Too many "
                "open files (24)",
                r"\[Errno (?:24|23)\] Too many open files|lmdb\.Error: [^\n]*Too many open files|error=24|accept[^\n]*Too many open files|socket: Too "
                r"many open files|errno(?: =|:) ?24",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=open_files,
        explains=("WRK2",),
    ),
    Cause(
        "FS208",
        "file-not-found-in-container",
        "A file is not where the run looks for it.",
        "In a container only what is mounted is there; a relative path starts in the working directory.",
        "{path} does not exist where the run looks for it: it is not mounted into the container, or the path is "
        "relative to another folder",
        Remediation(
            "Mount the folder, or give an absolute path",
            ("docker run -v $PWD:/workspace -w /workspace ...", "ls -l FOLDER"),
        ),
        (
            Signature(
                "No such file or directory: '",
                "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
                "FileNotFoundError: [Errno 2] No such file or directory: 'gcc'",
                r"FileNotFoundError: \[Errno 2\] No such file or directory: "
                r"'(?P<path>(?!(?:/usr/bin/)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)')[^'\n]*)'$",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "can't open file",
                "python: can't open file '/app/train.py': [Errno 2] No such file or directory",
                "can't open",
                r"can't open file '(?P<path>[^']*)': \[Errno 2\]",
                source="python 3.8 to 3.14",
            ),
            Signature(
                ('No such file or directory: "', "Checkpoint file not found: ", "Checkpoint at "),
                'FileNotFoundError: No such file or directory: "out/model.safetensors"',
                "Checkpoint at step 100",
                r'FileNotFoundError: (?:No such file or directory: "(?P<path>[^"\n]+)"|Checkpoint file not found: (?P<a>\S+?)\. |Checkpoint at '
                r"(?P<b>\S+) not found)",
                source="safetensors 0.3 to 0.7, Lightning 1.x and 2.x",
            ),
            Signature(
                "errno = 2",
                "FileNotFoundError: [Errno 2] Unable to synchronously open file (unable to open file: name = "
                "'x.h5', errno = 2, error message = 'No such file or directory')",
                "errno = 22",
                r"name = '(?P<path>[^']+)', errno = 2\b",
                source="h5py",
            ),
            Signature(
                "Error: ",
                "lmdb.Error: /data/train.lmdb: No such file or directory",
                "lmdb.Error: /data/train.lmdb: Permission denied",
                r"^lmdb\.Error: (?P<path>\S[^\n]*?): No such file or directory",
                source="lmdb 0.9x to 1.7",
            ),
            Signature(
                "does not exist",
                "FileNotFoundError: /data/train.zarr does not exist",
                "FileNotFoundError: key 'a' does not exist",
                r"^FileNotFoundError: (?:Unable to find group: )?(?:file://)?(?P<path>[./~]\S*) does not exist$",
                source="zarr 2 and 3, datasets",
            ),
        ),
        judge=lambda seen, verdict: with_message(
            verdict, verdict.message.replace("?", seen.groups.get("a") or seen.groups.get("b") or "?", 1)
        ),
        kind=VAGUE,
    ),
    Cause(
        "FS209",
        "input-output-error",
        "The storage failed: an input/output error or a stale handle.",
        "The disk, the NFS server or FUSE failed, not the program.",
        "the storage failed ({what})",
        Remediation(
            "Look at the kernel's log and the mount; stage data to a local disk",
            ("dmesg -T | tail -50", "findmnt -T FILE", "smartctl -a /dev/nvme0"),
        ),
        (
            Signature(
                "Input/output error",
                "OSError: [Errno 5] Input/output error: '/mnt/data/1.bin'",
                "input/output",
                r"(?:\[Errno 5\] |: (?=[^\n:]*$))(?P<what>Input/output error)",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "not responding, still trying",
                "nfs: server nas01 not responding, still trying",
                "nfs: server nas01 OK",
                r"nfs: server (?P<server>\S+) not responding, still trying",
                source="Linux kernel 4 to 6, NFS client",
            ),
            Signature(
                "Stale file handle",
                "OSError: [Errno 116] Stale file handle: '/mnt/data/1.bin'",
                "OSError: [Errno 116] Stale file handle: '/home/u/.triton/cache/6F2A/x.json'",
                r"(?:\[Errno 116\] |^\w+: [^\n]*: (?=Stale file handle$))(?P<what>Stale file handle)(?!: '[^']*triton)",
                source="NFS, coreutils",
            ),
            Signature(
                "Remote I/O error",
                "OSError: [Errno 121] Remote I/O error: '/mnt/nfs/ckpt/step100.pt'",
                "a remote I/O error was logged",
                r"\[Errno 121\] (?P<what>Remote I/O error)",
                source="NFS, Lustre",
            ),
            Signature(
                "Transport endpoint is not connected",
                "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs'",
                "endpoint",
                r"\[Errno 107\] (?P<what>Transport endpoint is not connected): ",
                source="FUSE",
            ),
            Signature(
                "errno = 5",
                "OSError: [Errno 5] Can't synchronously read data (file read failed: time = Mon Nov 30 09:00:01 2026\n, filename = '/mnt/nfs/train.h5', file descriptor = 41, errno = 5, error message = 'Input/output error', buf = 0x7f)",
                "errno = 54",
                r"errno = 5, error message = '(?P<what>Input/output error)'",
                source="h5py 2.8 to 3.16, HDF5 1.10 to 2.0",
            ),
        ),
        judge=storage,
        explains=("WRK208", "DST20"),
    ),
    Cause(
        "FS234",
        "file-name-too-long",
        "A file name is longer than the file system allows.",
        "A name may have 255 bytes (143 on eCryptfs), a path 4096; run names made of all hyper-parameters pass that.",
        "a file name is too long (at most 255 bytes per name, 4096 per path)[[: {path}]]",
        Remediation(
            "Shorten the run's name: a hash or number in the name, the parameters in a file beside it",
            ("getconf NAME_MAX .", "name = hashlib.sha1(repr(cfg).encode()).hexdigest()[:12]"),
        ),
        (
            Signature(
                "File name too long",
                "OSError: [Errno 36] File name too long: '/runs/lr=0.0003_bs=64_model=vit'",
                "file name is long",
                r"File name too long(?:: '(?P<path>[^'\n]{0,80})[^'\n]*')?",
                source="python 3.8 to 3.14, coreutils",
            ),
        ),
    ),
)

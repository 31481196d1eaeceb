"""Space: full disks, inodes, quotas, watches, temporary folders."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation, mib


def disk(seen: Seen, verdict: Verdict) -> Verdict | None:
    """/dev/shm has a signature of its own; a quota is not a full disk."""
    text = seen.log.lines[seen.index].text
    if "/dev/shm" in text or "shared memory" in text or re.search(r"/torch_\d", text) or seen.near(_SHARED, 6, 0):
        return None
    path = seen.groups.get("path", "")
    if seen.told(_INODES_USED):
        return with_message(
            verdict,
            f"no inode is left {_where(path)} (IUse% is 100), though it has free space: too many small files",
            Remediation(
                "Delete or pack small files (tar, zip, WebDataset shards, one LMDB or HDF5 file), or write to another "
                "file system",
                (
                    "df -i .",
                    "du --inodes -xd 2 . | sort -n | tail",
                    "tar cf /OTHER_DISK/frames.tar frames/  # the archive needs an inode as well",
                    "tar df /OTHER_DISK/frames.tar && rm -r frames/  # removes the files, once the archive holds them all",
                ),
            ),
        )
    free = seen.machine.number("disk.free_bytes", "fs.free_bytes")
    extra = f" ({mib(free)} free there now)" if free is not None else ""
    full = "the disk is full" if not path else f"the file system of {path} is full"
    if "Could not install packages" in text:
        return with_message(
            verdict, f"{full}: pip found no room for a package or its unpacked wheel{extra}", PIP_SPACE
        )
    if "/.cache/" in path or seen.near(r"huggingface_hub/|/datasets/(?:builder|arrow_\w+)\.py|torch/hub\.py", 12, 0):
        return with_message(
            verdict, f"{full}: a download into the cache of models or data sets failed{extra}", CACHE_SPACE
        )
    if "need" in seen.groups:
        return with_message(
            verdict,
            f"the data set needs {seen.groups['need']} and the file system of its cache has less",
            CACHE_SPACE,
        )
    remedy = TEMPORARY if path.startswith(("/tmp/", "/var/tmp/")) or seen.near(_TEMPORARY, 4, 0) else None
    return with_message(verdict, f"{full}: a write failed for lack of space{extra}", remedy)


def _where(path: str) -> str:
    return f"on the file system of {path}" if path else "on the file system"


#: frames of what lies in /dev/shm; the output of df -i for a file system without free inodes; frames of tempfile
_SHARED = r"SemLock|multiprocessing/shared_memory\.py|_posixshmem"


_INODES_USED = r"^Filesystem\s+Inodes\b[^\n]*(?:\n(?!Filesystem)[^\n]*){0,12}?\n[^\n]*\s(?:100%|0\s+\S+%)\s+/"


_TEMPORARY = r'/tempfile\.py", line \d+|cannot create temp file'


TEMPORARY = Remediation(
    "Free the temporary folder, or let TMPDIR name one with room before Python starts (in a container also a larger "
    "--tmpfs)",
    ("df -h /tmp; df -i /tmp", "export TMPDIR=/workspace/tmp; mkdir -p $TMPDIR", "du -xsh /tmp/* | sort -h | tail"),
)


CACHE_SPACE = Remediation(
    "Put the cache on a larger file system before Python starts, and clear what is not needed from the old one",
    (
        "export HF_HOME=/data/$USER/hf TORCH_HOME=/data/$USER/torch  # also moves HF_DATASETS_CACHE",
        "df -h ~/.cache; du -xsh ~/.cache/* | sort -h | tail",
        "hf cache prune  # or: huggingface-cli delete-cache",
    ),
)


PIP_SPACE = Remediation(
    "Free space where the environment, pip's cache and its temporary folder lie; TMPDIR moves the last",
    (
        'df -h /tmp ~/.cache "$(python -c "import sys; print(sys.prefix)")"',
        "pip cache purge",
        "mkdir -p /workspace/tmp; TMPDIR=/workspace/tmp pip install --no-cache-dir PACKAGE",
        "docker system df",
    ),
)


def quota(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A cache in HOME can move; a quota may count files in place of bytes."""
    path = seen.groups.get("path", "")
    where = f" ({path})" if path else ""
    if seen.told(r"^\s*/\S+\s+[\d.]+[KMGT]?\s+\S+\s+\S+\s+\S+\s+\d+\*"):
        return with_message(
            verdict,
            f"the quota of files (not of bytes) is used up{where}: df may show free space",
            Remediation(
                "Delete small files, or keep them packed (tar, WebDataset shards, one LMDB or HDF5 file); ask for a "
                "larger file quota",
                ("lfs quota -h -u $USER PATH", "du --inodes -xd 2 ~ | sort -n | tail"),
            ),
        )
    message = f"the quota of this user, group or project is used up{where}: df may show free space"
    if "/.cache" in path or seen.near(r"huggingface_hub|/\.cache/|transformers/|torch/hub\.py", 20, 0):
        return with_message(
            verdict,
            message,
            Remediation(
                "The download cache lies in HOME, whose quota is small: move it to a larger file system, and clear the "
                "old one",
                (
                    "export HF_HOME=/scratch/$USER/hf TORCH_HOME=/scratch/$USER/torch XDG_CACHE_HOME=/scratch/$USER/cache",
                    "quota -s; du -xsh ~/.cache/* | sort -h | tail",
                    "hf cache prune  # or: huggingface-cli delete-cache",
                ),
            ),
        )
    return with_message(verdict, message)


register(
    Cause(
        "FS205",
        "no-usable-temporary-folder",
        "No temporary folder can be written to.",
        "Python tries /tmp, /var/tmp, /usr/tmp and the working directory. With a read-only root and no tmpfs none "
        "is writable; when all are full the text is the same. It reads like a missing path.",
        "none of the temporary folders ({folders}) can be written: a read-only root without a tmpfs on /tmp, or "
        "all of them full",
        Remediation(
            "Mount a tmpfs on /tmp, or name a writable folder in TMPDIR",
            (
                "docker run --read-only --tmpfs /tmp:exec,size=2g ...",
                "export TMPDIR=/workspace/tmp",
                "df -h /tmp /var/tmp .",
            ),
        ),
        (
            Signature(
                "No usable temporary directory found in",
                "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', "
                "'/usr/tmp', '/opt/eos']",
                "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/x'",
                r"No usable temporary directory found in \[(?P<folders>[^\]]*)\]",
                source="python 3.8 to 3.14, tempfile",
            ),
        ),
        explains=("FS2", "CMP2"),
        decide="df -h /tmp; touch /tmp/x; findmnt -T /tmp -o OPTIONS",
    ),
    Cause(
        "FS206",
        "disk-full",
        "The disk is full.",
        "A write failed for lack of space (or inodes, or quota); what it was writing is cut short.",
        "{path} is full: a write failed for lack of space",
        Remediation(
            "Free space or write elsewhere; look at inodes, too; write to a temporary file and rename "
            "it, so that the last good file stays",
            ("df -h .; df -i .", "du -xh --max-depth=2 . | sort -h | tail", "docker system df"),
        ),
        (
            Signature(
                ("No space left on device", "no space left on device"),
                "OSError: [Errno 28] No space left on device: 'runs/events.out'",
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on "
                "device (28)",
                r"^(?![^\n]*(?:/dev/shm|shared memory|/torch_\d|\bnccl|NCCL|SemLock|\bshm\b))[^\n]*[Nn]o space left "
                r"on device(?:: '(?P<path>[^'\n]*)')?",
                source="python 3.8 to 3.14, coreutils",
            ),
            Signature(
                "database or disk is full",
                "sqlite3.OperationalError: database or disk is full",
                "disk",
                source="SQLite",
            ),
            Signature(
                "Not enough disk space. Needed:",
                "OSError: Not enough disk space. Needed: 340.21 GiB (download: 120.02 GiB, generated: 220.19 GiB, "
                "post-processed: Unknown size)",
                "Needed: 340 GiB",
                r"Not enough disk space\. Needed: (?P<need>[\d.]+ \w+|Unknown size)",
                source="datasets 1.x to 4.x, builder.py",
            ),
            Signature(
                "Not enough free space to write",
                "OSError: Not enough free space to write 24000000 bytes after offset 128",
                "Not enough free space",
                r"Not enough free space to write \d+ bytes",
                source="NumPy 1.23 to 2.4, ndarray.tofile",
            ),
        ),
        judge=disk,
        explains=("CKP2", "SES20", "SES21", "SES22"),
    ),
    Cause(
        "FS231",
        "disk-quota-exceeded",
        "The user's quota is used up; the disk itself has space.",
        "df shows free space, since the quota counts one user's, group's or project's files (or their number).",
        "the quota of this user, group or project is used up[[ ({path})]]: df may show free space",
        Remediation(
            "Remove files or write to another file system; ask for a larger quota",
            ("quota -s", "lfs quota -h -u $USER PATH", "du -xh --max-depth=2 ~ | sort -h | tail"),
        ),
        (
            Signature(
                "Disk quota exceeded",
                "OSError: [Errno 122] Disk quota exceeded: 'ckpt/1.pt'",
                "quota",
                r"Disk quota exceeded(?:: '(?P<path>[^'\n]*)')?",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("CKP2", "SES2", "FS206"),
        judge=quota,
        decide="quota -s",
    ),
    Cause(
        "FS233",
        "inotify-limit-reached",
        "The limit of watched files or of inotify instances is reached.",
        "Editors, notebooks, reloaders and trackers watch folders through inotify, whose limits count per user. The "
        "kernel says it with errno 28 or 24, which read like a full disk or too many open files.",
        "the limit of inotify ({what}) is reached: neither the disk nor the limit of open files",
        Remediation(
            "Raise the limits on the host, or watch fewer folders (no data sets, checkpoints or environments)",
            (
                "sudo sysctl -w fs.inotify.max_user_watches=1048576 fs.inotify.max_user_instances=1024",
                "sysctl fs.inotify",
            ),
        ),
        (
            Signature(
                "inotify watch limit reached",
                "OSError: [Errno 28] inotify watch limit reached",
                "OSError: [Errno 28] No space left on device: 'runs/events.out'",
                r"inotify (?P<what>watch) limit reached",
                source="watchdog 0.10 to 6",
            ),
            Signature(
                "inotify instance limit reached",
                "OSError: [Errno 24] inotify instance limit reached",
                "OSError: [Errno 24] Too many open files: 'data/1.jpg'",
                r"inotify (?P<what>instance) limit reached",
                source="watchdog 0.10 to 6",
            ),
            Signature(
                ("number of file watchers reached", "OS file watch limit reached"),
                "Error: ENOSPC: System limit for number of file watchers reached, watch '/app/data'",
                "file watchers reached the data",
                r"(?P<what>System limit for number of file watchers|OS file watch limit) reached",
                source="Node.js 12 to 22, notify (Rust), Visual Studio Code",
            ),
        ),
        explains=("FS206", "FS207"),
    ),
)

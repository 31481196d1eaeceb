"""Permissions: owners, caches of others, read-only mounts, users without a name."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def nameless_home(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A home folder is asked for in other words than a name."""
    if not re.search(r"home directory|'HOME'", seen.log.lines[seen.index].text):
        return verdict
    return with_message(
        verdict,
        "HOME is not set, and this uid has no passwd entry to take it from",
        Remediation(
            "Set HOME to a writable folder",
            ("docker run -e HOME=/workspace ...", "export HOME=/tmp/home-$(id -u); mkdir -p $HOME"),
        ),
    )


def permission(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The path says whose file it is: a script, a cache under a HOME of another, the environment, a labelled mount."""
    path = seen.groups.get("path", "")
    line = seen.log.lines[seen.index].text
    if re.search(r"\.(?:sh|py|run|bin)$", path) and "[Errno" not in line:
        return _not_executable(seen, verdict, path)
    if path.startswith("/dev/shm"):
        return None
    if path.startswith(("/.", "/root/", "/nonexistent", "/home/")) and re.search(r"^/\.|/\.\w+|nonexistent", path):
        return _of_another_home(verdict, path)
    if "-packages" in path or "Could not install packages" in line:
        return _of_the_environment(verdict, path)
    if seen.told(r"^Enforcing$|avc: +denied|SELinux is preventing"):
        return _without_label(verdict, path)
    if not path:
        return with_message(verdict, verdict.message.replace("on ?", "on the file that the frame above opens"))
    return with_message(verdict, verdict.message, None, path=path)


def _not_executable(seen: Seen, verdict: Verdict, path: str) -> Verdict:
    noexec = seen.told(r"\bnoexec\b")
    why = "its file system is mounted noexec" if noexec else "it has no execute bit, or its mount is noexec"
    return with_message(
        verdict,
        f"{path} cannot be executed: {why}",
        Remediation(
            "Call it through its interpreter, set the bit, or mount with exec (docker's --tmpfs is noexec by default)",
            (
                f"bash {path}",
                f"chmod +x {path}",
                f"findmnt -T {path} -o TARGET,OPTIONS",
                "docker run --tmpfs /tmp:exec ...",
            ),
        ),
        path=path,
    )


def _of_another_home(verdict: Verdict, path: str) -> Verdict:
    return with_message(
        verdict,
        f"permission denied on {path}: a cache under a home folder that this uid does not own (HOME is / or another user's, or an "
        "earlier container made it as root)",
        Remediation(
            "Give the uid a home of its own, or name writable caches (HF_HOME, TORCH_HOME, XDG_CACHE_HOME, MPLCONFIGDIR); run the "
            "container with the owner's uid",
            (
                "docker run --user $(id -u):$(id -g) -e HOME=/workspace ...",
                "export HF_HOME=/workspace/.cache/hf XDG_CACHE_HOME=/workspace/.cache",
                "ls -ldn FOLDER; id",
            ),
        ),
        path=path,
    )


def _of_the_environment(verdict: Verdict, path: str) -> Verdict:
    return with_message(
        verdict,
        f"permission denied on {path}: the Python environment belongs to another user (root, in most images)",
        Remediation(
            "Install when the image is built, as root; or into a virtual environment or folder of this user",
            (
                "RUN pip install PACKAGE  # in the Dockerfile, before USER",
                "python -m venv --system-site-packages ~/venv && ~/venv/bin/pip install PACKAGE",
                "pip install --user PACKAGE",
            ),
        ),
        path=path,
    )


def _without_label(verdict: Verdict, path: str) -> Verdict:
    return with_message(
        verdict,
        f"permission denied on {path or 'a mount'}, and SELinux is enforcing: the mount has no label that containers may read",
        Remediation(
            "Let the container engine label the mount",
            (
                "docker run -v /data:/data:z ...  # :Z for one container only",
                "ls -Zd FOLDER; sudo ausearch -m avc -ts recent",
            ),
        ),
        path=path,
    )


def read_only(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A disk that the kernel remounted after an error is no matter of mounts and caches."""
    path = seen.groups.get("path") or seen.groups.get("where") or "a path"
    if not seen.told(
        r"(?i)remount\w* (?:filesystem |file system )?read-only|EXT4-fs error|XFS[^\n]*(?:shutdown|shutting down)"
    ):
        return with_message(verdict, verdict.message.replace("?", path))
    return with_message(
        verdict,
        f"{path} is on a file system that the kernel remounted read-only after an error: the disk or its connection failed",
        Remediation(
            "Save what can be read, check the disk and the file system, and remount it only then",
            (
                "dmesg -T | grep -i -E 'remount|I/O error|ext4|xfs|nvme' | tail -30",
                "smartctl -a /dev/nvme0",
                "sudo umount MOUNT && sudo fsck -f DEVICE  # ext4; for XFS: xfs_repair",
            ),
        ),
    )


register(
    Cause(
        "FS201",
        "uid-without-a-name",
        "The container's user has no entry in /etc/passwd, and torch asked for its name.",
        "inductor names its cache folder after getpass.getuser(). With --user N and no passwd entry and no USER "
        "there is no name; Python 3.13 says it in other words. The mount is fine.",
        "the uid[[ {uid}]] has no name: there is no passwd entry for it and no USER in the environment, and torch (for its cache "
        "folder) or another library asked for the user's name",
        Remediation(
            "Set USER and HOME, or TORCHINDUCTOR_CACHE_DIR, or add a passwd entry in the entrypoint",
            (
                "docker run -e HOME=/tmp -e USER=trainer -e TORCHINDUCTOR_CACHE_DIR=/tmp/inductor --user 1000 ...",
                'echo "trainer:x:$(id -u):$(id -g)::/tmp:/bin/bash" >> /etc/passwd',
            ),
        ),
        (
            Signature(
                "getpwuid(): uid not found",
                "KeyError: 'getpwuid(): uid not found: 1000'",
                "KeyError: 'getpwnam(): name not found: bob'",
                r"getpwuid\(\): uid not found: (?P<uid>\d+)",
                source="python 3.8 to 3.12, pwd",
            ),
            Signature(
                ("Could not determine home directory", "KeyError: 'HOME'", "determine home directory"),
                "RuntimeError: Could not determine home directory.",
                "the home directory",
                r"RuntimeError: (?:Could not|Can't) determine home directory|^KeyError: 'HOME'$",
                source="python 3.8 to 3.14, pathlib and os.environ",
            ),
            Signature(
                "No username set in the environment",
                "OSError: No username set in the environment",
                "username set",
                source="python 3.13 and 3.14, getpass",
            ),
        ),
        judge=nameless_home,
        explains=("CMP2", "FS2"),
    ),
    Cause(
        "FS202",
        "permission-denied-on-mount",
        "The uid that the process runs as may not use a path, most often since another one owns it.",
        "A bind mount hides the image's own ownership: the folder belongs to the host's user. Or an earlier "
        "container ran as root, and its outputs belong to root.",
        "permission denied on {path}: most likely it is owned by another uid, because a bind mount hides the image's ownership "
        "or an earlier container made it as root",
        Remediation(
            "Run the container with the owner's uid and gid (--user, a user: mapping, or userns), or chown the "
            "folder once",
            (
                "docker run --user $(id -u):$(id -g) ...",
                "sudo chown -R $(id -u):$(id -g) FOLDER",
                "ls -ldn FOLDER; id",
            ),
        ),
        (
            Signature(
                "[Errno 13] Permission denied",
                "PermissionError: [Errno 13] Permission denied: 'logs'",
                "PermissionError: [Errno 13] Permission denied: '/tmp/triton/d645.lock'",
                r"\[Errno 13\] Permission denied(?:: "
                r"b?'(?P<path>(?![^'\n]*(?:/tmp/|\.triton|triton|torchinductor|ptxas|/dev/nvidia))[^'\n]*)')",
                source="python 3.8 to 3.14",
            ),
            Signature(
                ": Permission denied",
                "tee: train.log: Permission denied",
                "ssh: Permission denied (publickey)",
                r"^(?:bash|sh|tee|mkdir|touch|cp|mv|rm|/\S+\.sh|[\w./-]+\.sh)[^\n]*?: (?:line \d+: |cannot \w+ "
                r"(?:directory|regular file|file)? ?['‘])?(?P<path>[^\s:'’]+)['’]?: Permission denied",
                source="coreutils, bash",
            ),
            Signature(
                "unable to open file",
                "PermissionError: [Errno 13] Unable to synchronously open file (unable to open file: name = "
                "'/data/x.h5', errno = 13, error message = 'Permission denied')",
                "Unable to open file (unable to lock file, errno = 11)",
                r"Unable to (?:synchronously )?(?:open|create) file \(unable to open file: name = "
                r"'(?P<path>[^']+)', errno = 13",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "cannot be opened",
                "RuntimeError: File ckpt/last.pt cannot be opened: Permission denied",
                "cannot be opened",
                r"File (?P<path>\S+) cannot be opened(?:: Permission denied)?",
                also=(r"Permission denied",),
                source="torch 1.6 to 2.15, inline_container",
            ),
            Signature(
                "PermissionDeniedError",
                "tensorflow.python.framework.errors_impl.PermissionDeniedError: /logs/run1; Permission denied",
                "PermissionDeniedError",
                r"PermissionDeniedError: (?P<path>/\S+?); Permission denied",
                source="TensorFlow 2.x",
            ),
            Signature(
                "open file failed with strerror: Permission denied",
                "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Permission denied",
                "open file failed with strerror: Is a directory",
                source="torch 2.4 to 2.15, torch.save",
            ),
            Signature(
                "cannot open directory",
                "ls: cannot open directory '/data': Permission denied",
                "cannot open the file",
                r"cannot open directory ['‘]?(?P<path>/[^'’\n]*?)['’]?: Permission denied",
                source="coreutils: also SELinux without :z",
            ),
        ),
        judge=permission,
        decide="ls -ldn PATH; id",
    ),
    Cause(
        "FS203",
        "cache-owned-by-another-user",
        "A cache in /tmp belongs to the user who came first.",
        "Triton's, inductor's or Hugging Face's cache in a shared /tmp is owned by one user; the next one cannot "
        "write its locks.",
        "the shared cache at {path} belongs to another user, who made it first",
        Remediation(
            "Give each user a cache folder of their own",
            (
                "export TRITON_CACHE_DIR=/tmp/triton-$UID TORCHINDUCTOR_CACHE_DIR=/tmp/inductor-$UID",
                "export HF_HOME=/tmp/hf-$UID",
            ),
        ),
        (
            Signature(
                "Permission denied",
                "PermissionError: [Errno 13] Permission denied: '/tmp/triton/d645ef562cfc8f31ab6c7b88eccac0f6.lock'",
                "PermissionError: [Errno 13] Permission denied: 'logs'",
                r"\[Errno 13\] Permission denied: "
                r"'(?P<path>(?:/tmp/|/var/tmp/|[^'\n]*(?:\.triton|triton|torchinductor"
                r"|inductor_cache))(?![^'\n]*ptxas)[^'\n]*)'",
                source="triton 2.x and 3.x, torch 2.0 to 2.15",
            ),
        ),
        decide="ls -ldn PATH; id",
    ),
    Cause(
        "FS204",
        "read-only-file-system",
        "A path on a read-only file system was to be written.",
        "readOnlyRootFilesystem or docker --read-only, a HOME that does not exist, or a disk that the kernel "
        "remounted read-only after an error.",
        "{path} is on a read-only file system: a cache or output defaults to a place under the root file system or "
        "a HOME that does not exist",
        Remediation(
            "Put caches and outputs on a writable mount (HF_HOME, HF_HUB_CACHE, TORCH_HOME, MPLCONFIGDIR, "
            "XDG_CACHE_HOME, HOME), or mount a tmpfs there",
            (
                "docker run -e HOME=/workspace -e HF_HUB_CACHE=/workspace/.cache/hf ...",
                "docker run --read-only --tmpfs /tmp:exec -v cache:/cache -e XDG_CACHE_HOME=/cache ...",
                "findmnt -T PATH -o OPTIONS; dmesg | grep -i remount",
            ),
        ),
        (
            Signature(
                "Read-only file system",
                "OSError: [Errno 30] Read-only file system: '/nonexistent'",
                "read-only file",
                r"\[Errno 30\] Read-only file system(?:: '(?P<path>[^'\n]*)')?|(?:^|: )(?:cannot \w+ "
                r"[^\n]*['‘])?(?P<where>/[^\s:'’]+)['’]?: Read-only file system",
                unless=(r"tmux",),
                source="python 3.8 to 3.14, coreutils",
            ),
            Signature(
                "open file failed with strerror: Read-only file system",
                "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Read-only file system",
                "open file failed with strerror: Is a directory",
                source="torch 2.4 to 2.15, torch.save",
            ),
            Signature(
                "errno = 30",
                "OSError: Unable to create file (unable to open file: name = '/x.h5', errno = 30, error message = "
                "'Read-only file system')",
                "errno = 3",
                r"name = '(?P<path>[^']+)', errno = 30",
                source="h5py",
            ),
        ),
        judge=read_only,
        explains=("CMP2", "FS202"),
    ),
    Cause(
        "FS210",
        "repository-of-another-owner",
        "git refuses a repository that belongs to another uid.",
        "A bind mount belongs to the host's user; git in the container runs as another one.",
        "git refuses {path}: the bind mount belongs to another uid than the one that runs in the container",
        Remediation(
            "Run with the owner's uid, or name the folder as safe",
            ("docker run --user $(id -u):$(id -g) ...", "git config --global --add safe.directory /workspace"),
        ),
        (
            Signature(
                "detected dubious ownership in repository at",
                "fatal: detected dubious ownership in repository at '/workspace'",
                "fatal: not a git repository",
                r"detected dubious ownership in repository at '(?P<path>[^']*)'",
                source="git 2.35 to 2.52",
            ),
        ),
    ),
    Cause(
        "FS211",
        "operation-not-permitted",
        "The kernel does not permit an operation: a capability is missing, or the file system refuses.",
        "chown and mount need capabilities that containers drop; NFS with root_squash makes root nobody.",
        "{path}: operation not permitted: the container has dropped the capability, or the file system (NFS with "
        "root_squash) refuses it to root",
        Remediation(
            "Do it outside the container, or run with the owner's uid; add the one capability that is needed",
            ("docker run --user $(id -u):$(id -g) ...", "docker run --cap-add CHOWN ..."),
        ),
        (
            Signature(
                "[Errno 1] Operation not permitted",
                "PermissionError: [Errno 1] Operation not permitted: '/data/out'",
                "Operation not permitted for guests",
                r"\[Errno 1\] Operation not permitted: '(?P<path>[^'\n]*)'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "changing ownership of",
                "chown: changing ownership of '/workspace/out': Operation not permitted",
                "changing ownership",
                r"changing ownership of ['‘](?P<path>[^'’]*)['’]: Operation not permitted",
                source="coreutils",
            ),
        ),
    ),
    Cause(
        "FS232",
        "numba-cache-not-writable",
        "Numba can write its cache neither beside the code nor in HOME.",
        "librosa, pynndescent and UMAP ask for a cache when they are imported; the packages belong to root, and HOME is not there.",
        "Numba found no place for its cache: the installed package is not writable, and HOME is missing",
        Remediation(
            "Name a writable cache folder",
            (
                "export NUMBA_CACHE_DIR=/tmp/numba",
                "docker run -e NUMBA_CACHE_DIR=/tmp/numba -e HOME=/workspace ...",
            ),
        ),
        (
            Signature(
                "no locator available for file",
                "RuntimeError: cannot cache function '__o_fold': no locator available for file '/usr/local/lib/python3.8/site-packages/librosa/util/utils.py'",
                "no locator",
                source="Numba 0.40 to 0.62",
            ),
        ),
    ),
)

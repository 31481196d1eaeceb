"""Paths of the wrong kind: folders for files, links that lead nowhere, moves across file systems."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def kind(seen: Seen, verdict: Verdict) -> Verdict | None:
    """An archive on the way is not unpacked; a folder where a checkpoint is looked for is a checkpoint of several files."""
    path = seen.groups.get("path", "")
    if "Not a directory" in seen.log.lines[seen.index].text:
        archive = next((end for end in (".zip/", ".tar/", ".tar.gz/", ".tgz/") if end in f"{path}/"), "")
        why = (
            "an archive stands on the way and is not unpacked"
            if archive
            else "a file stands where a folder is expected"
        )
        unpack = "unzip ARCHIVE.zip -d FOLDER" if archive == ".zip/" else "tar xf ARCHIVE -C FOLDER"
        return with_message(
            verdict,
            f"{path or 'the path'}: {why}",
            Remediation(
                "Unpack the archive, or give the folder itself" if archive else "Give the folder, or remove the file",
                ((unpack,) if archive else ()) + ("ls -ld PATH; file PATH",),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", "the path"))


register(
    Cause(
        "FS235",
        "path-of-the-wrong-kind",
        "A folder is where a file is expected, or the other way round.",
        "A checkpoint of several files is a folder; a bind mount of a file that does not exist on the host makes Docker "
        "create a folder of that name.",
        "{path} is a folder, and a file is expected there",
        Remediation(
            "Name the file in it; a bind mount whose source did not exist was made as a folder: make the file first",
            ("ls -l PATH", "torch.load(PATH + '/pytorch_model.bin')", "docker run -v $PWD/cfg.yaml:/cfg.yaml:ro ..."),
        ),
        (
            Signature(
                ("[Errno 21] Is a directory", "[Errno 20] Not a directory"),
                "IsADirectoryError: [Errno 21] Is a directory: 'ckpt/best'",
                "IsADirectoryError was caught",
                r"\[Errno (?:21\] Is a directory|20\] Not a directory): '(?P<path>[^'\n]*)'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "errno = 21",
                "IsADirectoryError: [Errno 21] Unable to synchronously open file (file open failed: time = x, name = '/data/h5', errno = "
                "21, error message = 'Is a directory')",
                "errno = 212",
                r"name = '(?P<path>[^']+)', errno = 21\b",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "open file failed with strerror: Is a directory",
                "RuntimeError: [enforce fail at inline_container.cc:747] . open file failed with strerror: Is a directory",
                "open file failed with strerror: Permission denied",
                source="torch 2.4 to 2.15, torch.save",
            ),
        ),
        judge=kind,
    ),
    Cause(
        "FS236",
        "move-across-file-systems",
        "A file was to be renamed onto another file system.",
        "os.rename and os.replace work within one file system; a temporary file in /tmp or HOME and a target on a volume "
        "are two.",
        "a file was renamed from one file system to another[[ ({source} to {path})]], which the kernel refuses (EXDEV)",
        Remediation(
            "Make the temporary file beside its target, or move with shutil.move, which copies; for a hub download put the "
            "cache on the target's file system",
            (
                "tempfile.NamedTemporaryFile(dir=os.path.dirname(target), delete=False)",
                "shutil.move(source, target)",
                "export HF_HOME=/mnt/disk/hf TMPDIR=/mnt/disk/tmp",
            ),
        ),
        (
            Signature(
                "Invalid cross-device link",
                "OSError: [Errno 18] Invalid cross-device link: '/tmp/tmpz' -> '/mnt/disk/model.bin'",
                "a cross-device link was made",
                r"\[Errno 18\] Invalid cross-device link(?:: '(?P<source>[^'\n]*)' -> '(?P<path>[^'\n]*)')?",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "FS237",
        "symbolic-link-loop",
        "A symbolic link leads back to itself.",
        "Often a relative link that was made from another folder, or two links that name each other.",
        "a path[[, {path},]] leads through symbolic links that form a loop",
        Remediation(
            "Follow the links and make the wrong one anew, with an absolute target",
            ("namei -l [[{path}]]", "ln -sfn /absolute/target LINK"),
        ),
        (
            Signature(
                "Too many levels of symbolic links",
                "OSError: [Errno 40] Too many levels of symbolic links: '/data/cur/train'",
                "many levels of symbolic links",
                r"Too many levels of symbolic links(?:: '(?P<path>[^'\n]*)')?",
                source="python 3.8 to 3.14, coreutils",
            ),
        ),
    ),
    Cause(
        "FS238",
        "program-being-written",
        "A program was started while it was open for writing, or written while it ran.",
        "Another rank or job is still copying, downloading or building it.",
        "a program[[, {path},]][[, {p},]] was executed while it is written, or written while it runs (ETXTBSY): another process "
        "builds, copies or runs it",
        Remediation(
            "Let one process make it and the others wait; write a new file and rename it over the old one",
            ("fuser -v [[{path}]][[{p}]]", "if local_rank == 0: build()\ntorch.distributed.barrier()"),
        ),
        (
            Signature(
                "Text file busy",
                "OSError: [Errno 26] Text file busy: '/opt/tools/ffmpeg'",
                "the text file is busy",
                r"\[Errno 26\] Text file busy(?:: '(?P<path>[^'\n]*)')?|: (?P<p>/\S+): Text file busy",
                source="python 3.8 to 3.14, bash",
            ),
        ),
    ),
    Cause(
        "FS247",
        "operation-not-supported-by-file-system",
        "The file system does not know an operation.",
        "Object stores behind FUSE, CIFS and some NFS shares have no locks, links, renames over files or memory maps.",
        "the file system of {path} does not support an operation (locks, links, renames or memory maps): an object store behind "
        "FUSE, CIFS or NFS",
        Remediation(
            "Write to a local disk and copy the finished file; keep locks, sockets, databases and caches on a local disk",
            (
                "findmnt -T {path} -o FSTYPE,SOURCE",
                "export HF_HOME=/local/hf TMPDIR=/local/tmp",
                "cp /local/ckpt.pt /mnt/bucket/ckpt.pt",
            ),
        ),
        (
            Signature(
                ("Operation not supported", "Function not implemented: '"),
                "OSError: [Errno 95] Operation not supported: '/mnt/gcs/ckpt/a.lock'",
                "RuntimeError: Operation not supported for complex tensors",
                r"\[Errno (?:95|38)\] (?:Operation not supported|Function not implemented): '(?P<path>[^'\n]*)'",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "FS248",
        "path-exists-already",
        "A folder or file that was to be made is there already.",
        "An earlier run made it, or another rank was first.",
        "{path} exists already: an earlier run made it, or another rank or job was first",
        Remediation(
            "Allow that it exists, let one rank make it, or give each run a name of its own",
            ("os.makedirs(path, exist_ok=True)", "if rank == 0: os.makedirs(path)\ntorch.distributed.barrier()"),
        ),
        (
            Signature(
                "[Errno 17] File exists: '",
                "FileExistsError: [Errno 17] File exists: 'runs/exp1'",
                "File exists: 'runs/exp1'",
                r"^FileExistsError: \[Errno 17\] File exists: '(?P<path>[^'\n]*)'",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "FS250",
        "interpreter-of-script-missing",
        "The interpreter that a script's first line names is not there.",
        "A virtual environment that was moved or copied, or a script of another machine.",
        "the interpreter {path}, which the script's first line names, is not there: the environment was moved, or the script is of another machine",
        Remediation(
            "Call the script through the Python that is here, or make the environment anew",
            ("python SCRIPT", "head -1 SCRIPT; command -v python3", "python3 -m venv --upgrade VENV"),
        ),
        (
            Signature(
                "bad interpreter",
                "bash: ./run.sh: /usr/bin/python3.7: bad interpreter: No such file or directory",
                "a bad interpreter",
                r": (?P<path>/[^\s:^]+): bad interpreter: No such file",
                source="bash, zsh",
            ),
        ),
        explains=("FS208",),
    ),
    Cause(
        "FS251",
        "folder-of-output-missing",
        "The folder of an output file does not exist.",
        "pandas and others make the file, not its folders.",
        "the folder {path} of an output file does not exist",
        Remediation("Make it first", ("os.makedirs('{path}', exist_ok=True)", "mkdir -p {path}")),
        (
            Signature(
                "non-existent directory",
                "OSError: Cannot save file into a non-existent directory: 'results/csv'",
                "a non-existent directory",
                r"Cannot save file into a non-existent directory: '(?P<path>[^']*)'",
                source="pandas 1.x to 3.x",
            ),
        ),
    ),
    Cause(
        "FS252",
        "file-larger-than-allowed",
        "A file grew beyond what the file system or a limit allows.",
        "FAT32 ends at 4 GiB; ulimit -f and some object stores behind FUSE have limits of their own.",
        "a file is larger than its file system (4 GiB on FAT32) or ulimit -f allows[[: {path}]]",
        Remediation(
            "Write to another file system, in smaller parts, or lift the limit",
            (
                "ulimit -f unlimited",
                "findmnt -T FILE -o FSTYPE",
                "model.save_pretrained(FOLDER, max_shard_size='2GB')",
            ),
        ),
        (
            Signature(
                ("[Errno 27] File too large", "File size limit exceeded"),
                "OSError: [Errno 27] File too large: '/mnt/usb/ckpt.pt'",
                "413 File too large",
                r"\[Errno 27\] File too large(?:: '(?P<path>[^'\n]*)')?|^File size limit exceeded",
                source="python 3.8 to 3.14, bash",
            ),
        ),
    ),
)

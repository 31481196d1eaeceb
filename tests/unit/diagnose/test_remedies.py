"""Each command of a remedy can be typed: it parses in the language that it is written in, and its programs exist."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import torch_doctor.diagnose
from torch_doctor.diagnose import causes
from torch_doctor.diagnose.cause import CAUSES

for _module in pkgutil.iter_modules(causes.__path__):
    importlib.import_module(f"{causes.__name__}.{_module.name}")

#: programs of the shell, of packages and of systems that remedies call; a new one is looked up before it is added
_WORDS = """
    accelerate apptainer apt-get apt-mark ausearch awk aws bash cat cd chmod chown command compute-sanitizer conda cp
    curl cut df dkms dmesg docker du echo eval export fallocate ffmpeg fi_info file find findmnt free fsck fuser
    fusermount gcc gcsfuse gdb getconf getent git grep h5clear h5dump h5ls head hf hostname ib_write_bw ibstat id ip
    journalctl jupyter kill kubectl last ldconfig ldd less lfs ln locale-gen loginctl ls lscpu lsmod lsof lspci mkdir
    mktemp modprobe mokutil mount mpirun mv namei nc ncdump newgrp nfsstat nproc nvcc nvidia-bug-report.sh
    nvidia-container-cli nvidia-ctk nvidia-modprobe nvidia-smi openssl patchelf ping pip poweroff ps pwd py-spy python
    python3 qemu-system-x86_64 quota ray rdma reboot rm rmmod rsync runc sacct sacctmgr salloc sbatch scontrol screen
    script sed set setsid sha256sum shellcheck show_gids sinfo smartctl sort source spark-submit sqlite3 squeue srun
    ss ssh ssh-add ssh-copy-id ssh-keyscan stat strings sudoedit swapon sysctl systemctl systemd-analyze systemd-run
    tail tar tee timedatectl tini tmux torch-doctor torchrun touch tr true ucx_info ulimit umount uname uniq unset
    unzip update-ca-certificates usermod uv vllm wc where which winget
"""
PROGRAMS = frozenset(_WORDS.split())
DOCKERFILE = re.compile(r"(?:COPY|ENTRYPOINT|ENV|RUN) \S")
#: an entry of a pod or a compose file, in one line
YAML = re.compile(r"\w+: (?:\{.*\}|\[.*\])(?:  # [^\n]*)?")
#: words that stand before a program, and run it
PREFIXES = frozenset({"sudo", "exec", "nohup", "env", "if", "then", "do", "!", "time"})
#: a placeholder in capitals is a word of Python and of the shell; "..." stands for the other arguments
FIELD = re.compile(r"\{[a-z_]+(?:![rs])?\}")


def written(tree: ast.AST) -> Iterator[str]:
    """The strings of an expression, those with fields as one."""
    if isinstance(tree, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "WORD" for part in tree.values)  # type: ignore[misc]
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.value
    elif not isinstance(tree, ast.Compare | ast.Subscript):
        for part in ast.iter_child_nodes(tree):
            yield from written(part)


def commands() -> set[str]:
    """Every command: those of the causes, and those that a judge writes."""
    found = {command for cause in CAUSES.values() for command in cause.remedy.commands}
    for file in Path(torch_doctor.diagnose.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remediation" and len(node.args) > 1:
                found |= set(written(node.args[1]))
    return {FIELD.sub("WORD", re.sub(r"\[\[(.*?)\]\]", r"\1", command)) for command in found}


def is_python(text: str) -> bool:
    """True for statements, also of a function's body, and for a decorator."""
    body = textwrap.indent(text, "    ")
    for source in (text, f"def f():\n{body}", f"{text}\ndef f(): ...", text.replace("(...):", "():")):
        try:
            compile(source, "remedy", "exec")
            return True
        except SyntaxError:
            continue
    return False


def is_json(text: str) -> bool:
    """True for entries of a configuration, with a comment behind."""
    try:
        json.loads("{" + re.sub(r"\s+//.*", "", text) + "}")
        return True
    except ValueError:
        return False


def programs(text: str) -> Iterator[str]:
    """The first word of each simple command."""
    plain = re.sub(r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\d?>&\d", "", text)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";|&\n")
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "#", " \t", True
    first = True
    for token in lexer:
        if set(token) <= set(";|&\n"):
            first = True
        elif first and not re.match(r"\w+=", token) and token not in PREFIXES and not token.startswith("-"):
            yield token
            first = False


def known(program: str) -> bool:
    """A program by its name; one by a path, a variable or in capitals is the reader's own."""
    return program in PROGRAMS or "/" in program or program.startswith("$") or program.isupper()


def is_shell(text: str) -> bool:
    """True where bash can read it, and knows each program."""
    if subprocess.run(["bash", "-n", "-c", text], capture_output=True, timeout=60, check=False).returncode != 0:
        return False
    return text.startswith("#SBATCH ") or all(known(program) for program in programs(text))


def test_every_command_can_be_typed() -> None:
    found = commands()
    wrong = [
        command
        for command in sorted(found)
        if not (DOCKERFILE.match(command) or YAML.fullmatch(command))
        and not (is_python(command) or is_json(command) or is_shell(command))
    ]
    assert len(found) > 1000
    assert wrong == []


def test_no_variable_is_used_in_the_export_that_sets_it() -> None:
    # the shell expands all words of a line first: export A=x B=$A leaves B empty
    line = re.compile(r"(?:export|env|^)(?: *)(?:\w+=\S* )*(\w+)=[^\s;$]+ (?:\w+=\S* )*\w+=\S*\$\{?\1\b")
    assert [command for command in commands() if line.search(command)] == []


def test_no_remedy_removes_or_replaces_more_than_it_says() -> None:
    risks = (
        r"reset --hard|kill -9 -1|chmod -R 777|prune -a|system prune|--privileged",
        r"\bdd (?:if|of)=|mkfs|git clean",
        r"tee /etc/docker/daemon\.json|> */etc/",
        r"\byes \||[;&] *sudo reboot|\| sudo tee (?!-a)",
        r"systemctl restart docker(?!  #)",  # ends every running container
        r"--force-reinstall (?:--no-cache-dir )?(?:torch|triton)(?![=\w])(?!.* --index-url)",  # takes the newest
    )
    appends = re.compile(r">> ?/etc/")
    assert [c for c in commands() for risk in risks if re.search(risk, appends.sub("", c))] == []


def test_a_command_that_cannot_be_typed_is_noticed() -> None:
    wrong = (
        "ds_to_universal --in FOLDER",
        "--conf spark.memory=8g",
        "df -h; kubctl get pods",
        "grep -c 'x FILE",
        "a b(",
    )
    assert not [text for text in wrong if is_python(text) or is_json(text) or is_shell(text)]
    assert is_shell("sudo systemctl restart docker  # ends containers; all of them")

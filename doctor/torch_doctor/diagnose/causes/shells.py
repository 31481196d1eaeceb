"""What a shell says when the program never ran: not found, not executable, refused."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.endings import went_on
from torch_doctor.model import Remediation

#: commands that come with a Python environment: not found means that it is not active
_OF_AN_ENVIRONMENT = re.compile(
    r"^(?:python[\d.]*|pip[\d.]*|torchrun|accelerate|deepspeed|jupyter(?:-lab)?|ipython|lightning|ray|wandb|tensorboard"
    r"|huggingface-cli|conda|mamba|uv|poetry|nvcc|module)$"
)


def not_executable(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Where the log itself tells of a noexec mount, that cause says more."""
    return None if went_on(seen) or seen.has(r"\bnoexec\b") else verdict


def not_found(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A command of an environment is missing because the environment is not active; others are not installed."""
    if went_on(seen):
        return None
    name = seen.groups["name"].rpartition("/")[2]
    if name == "sudo":
        return with_message(
            verdict,
            "sudo is not installed here, as in most images, where the user is root or needs no rights",
            Remediation("Leave sudo out in the container", ("id -un", "docker exec -u 0 CONTAINER ...")),
        )
    if seen.groups["name"].startswith("/"):
        where = re.match(r"[\w.-]*\d[\w.-]*(?=: )", seen.log.lines[seen.index].text)
        return with_message(
            verdict,
            f"{seen.groups['name']} does not exist{f' on {where[0]}' if where else ''}: the Python environment is not "
            "installed on that node or in that image, or lies on a file system that is not mounted there",
            Remediation(
                "Put the environment on a shared file system or on each node, under the same path",
                (f"ssh NODE ls -l {seen.groups['name']}", "df -h; findmnt", "conda env list"),
            ),
        )
    if not _OF_AN_ENVIRONMENT.match(name):
        return verdict
    if name == "module":
        return with_message(
            verdict,
            "the command module is unknown to this shell: it is a function that the login scripts define",
            Remediation("Use a login shell", ("#!/bin/bash -l", "source /etc/profile.d/modules.sh")),
        )
    return with_message(
        verdict,
        f"{name} is not found: the shell of the job has another PATH, since the Python environment (conda, venv or "
        "module) is not active in it",
        Remediation(
            "Activate the environment in the script itself, or call the interpreter by its full path",
            (
                "source ~/miniconda3/etc/profile.d/conda.sh && conda activate ENV",
                "source VENV/bin/activate",
                "VENV/bin/python -m torch.distributed.run ...",
                f"command -v {name}; echo $PATH",
            ),
        ),
        command=name,
    )


register(
    Cause(
        "SES261",
        "command-not-found",
        "The shell does not find the command.",
        "A batch job, cron or ssh HOST COMMAND starts a shell that reads no ~/.bashrc: conda, the venv and modules "
        "are not active. 127 is the shell's status for it.",
        "the command {name} is not found: it is not installed here, or not on this shell's PATH",
        Remediation(
            "Install it, or give its full path",
            ("command -v {name}; echo $PATH", "apt-get install -y {name}  # or the package that holds it"),
        ),
        (
            Signature(
                ("command not found", ": not found"),
                "/var/spool/slurmd/job7/slurm_script: line 14: nvcc: command not found",
                "module not found: command notebook",
                r"^(?:[^\s:]+: (?:line )?\d+: |sudo: |pyenv: |-?(?:ba|z|da|k)?sh: (?:(?:line )?\d+: )?)(?:exec: )?(?P<name>[\w.+/-]+): (?:command )?not found$",
                source="bash 4 and 5, dash; sudo, which has a PATH of its own (secure_path)",
            ),
            Signature(
                ": No such file or directory",
                "n2: bash: line 1: /opt/conda/envs/llm/bin/python: No such file or directory",
                "bash: line 1: ./data/labels.csv: No such file or directory",
                r"^(?:[\w.-]+: )?(?:-?(?:ba|z|da|k)?sh|[^\s:]+\.sh|\S*slurm_script): (?:(?:line )?\d+: )?(?:exec: )?(?P<name>/\S+/(?:python[\d.]*"
                r"|torchrun|accelerate|deepspeed)): No such file or directory$",
                source="bash 4 and 5, dash",
            ),
            Signature(
                "(exitcode: 127)",
                "torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 127) local_rank: 0 (pid: 9) of binary: train.py",
                "failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: train.py",
                r"\(exitcode: 127\)[^\n]*of binary: (?P<name>\S+)",
                source="torch 1.9 to 2.15, torch elastic",
            ),
            Signature(
                "zsh: command not found",
                "zsh: command not found: torchrun",
                "zsh: no matches found: *.pt",
                r"^zsh: command not found: (?P<name>[\w.+/-]+)",
                source="zsh 5",
            ),
            Signature(
                "No such file or directory",
                "nohup: failed to run command 'python': No such file or directory",
                "nohup: ignoring input",
                r"^(?:nohup|(?:/usr/bin/)?env|timeout|stdbuf|nice): (?:failed to run command )?['‘](?P<name>[\w.+/-]+)['’]: No such file or directory",
                source="coreutils 8 and 9",
            ),
            Signature(
                "execve(): ",
                "slurmstepd: error: execve(): torchrun: No such file or directory",
                "slurmstepd: error: execve(): train.sh: Permission denied",
                r"execve\(\): (?P<name>[\w.+/-]+): No such file or directory",
                source="Slurm 14 to 25",
            ),
            Signature(
                "' not installed",
                "RuntimeError: launcher 'pdsh' not installed.",
                "package 'x' not installed yet",
                r"launcher '(?P<name>\w+)' not installed",
                source="DeepSpeed 0.3 to 0.18",
            ),
            Signature(
                "could not find executable",
                "mpirun was unable to find the specified executable file: could not find executable python",
                "could not find the executable",
                r"could not find executable (?P<name>[\w.+/-]+)",
                source="Open MPI 4 and 5",
            ),
        ),
        kind=VAGUE,
        judge=not_found,
        explains=("SES22", "DST22", "DST202"),
    ),
    Cause(
        "SES262",
        "script-not-executable",
        "The shell may not execute a script: it has no x bit.",
        "126 is the shell's status for a file that is there and may not be executed: no x bit, or a file system that "
        "is mounted noexec.",
        "{path} may not be executed: it has no x bit, or lies on a file system mounted noexec",
        Remediation(
            "Give it the bit, or start it through its interpreter",
            ("chmod +x {path}", "bash {path}", "findmnt -no OPTIONS -T {path}"),
        ),
        (
            Signature(
                "ermission denied",
                "bash: ./train.sh: Permission denied",
                "bash: logs/train.log: Permission denied",
                r"^(?:-?(?:ba|z|da|k)?sh|[^\s:]+\.sh|\S*slurm_script): (?:(?:line )?\d+: )?"
                r"(?P<path>(?:\./|/|\.\./)?[\w./-]+(?:\.(?:sh|py|run|bin|bash)|/bin/[\w.-]+)): Permission denied$",
                source="bash 4 and 5",
            ),
            Signature(
                "zsh: permission denied",
                "zsh: permission denied: ./train.sh",
                "zsh: no such file or directory: ./train.sh",
                r"^zsh: permission denied: (?P<path>\.{0,2}/\S+)",
                source="zsh 5",
            ),
            Signature(
                "execve(): ",
                "slurmstepd: error: execve(): /home/u/train.py: Permission denied",
                "slurmstepd: error: execve(): train.py: No such file or directory",
                r"execve\(\): (?P<path>[\w.+/-]+): Permission denied",
                source="Slurm 14 to 25",
            ),
            Signature(
                "Permission denied",
                "nohup: failed to run command './train.sh': Permission denied",
                "nohup: failed to run command './train.sh': No such file or directory",
                r"^(?:nohup|env|timeout|stdbuf|nice): (?:failed to run command )?['‘](?P<path>[\w.+/-]+)['’]: Permission denied",
                source="coreutils 8 and 9",
            ),
        ),
        kind=VAGUE,
        judge=not_executable,
        explains=("FS202", "SES22"),
    ),
    Cause(
        "SES269",
        "command-line-refused",
        "A program refused its command line.",
        "argparse, Click and typer end with status 2 before anything ran: a misspelt option, a missing argument, a line "
        "continuation that was broken by a blank.",
        "{program} refused its command line: {what}",
        Remediation(
            "Correct the option; torchrun's own options stand before the script, the script's after it",
            (
                "python SCRIPT --help",
                "torchrun --nproc-per-node=gpu SCRIPT --option VALUE",
                "grep -nE '\\\\[[:space:]]+$' run.sh  # a blank after the backslash breaks the line",
            ),
        ),
        (
            Signature(
                ": error: ",
                "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --batch-sise 32",
                "srun: error: n1: task 0: Exited with exit code 1",
                r"^(?P<program>[\w./-]+): error: (?P<what>(?:unrecognized arguments(?![^\n]*--local[-_]rank)|the following "
                r"arguments are required|argument \S+: |ambiguous option|too few arguments|invalid choice|one of the arguments)[^\n]*)",
                source="python 3.8 to 3.14, argparse",
            ),
            Signature(
                ("No such option", "Missing option", "Missing argument", "Got unexpected extra argument"),
                "Usage: train.py [OPTIONS]\nError: No such option: --epoch",
                "INFO No such option was used",
                r"^(?:Usage: (?P<program>[\w./-]+)[^\n]*\n(?:[^\n]*\n){0,4}?)?Error: (?P<what>(?:No such option|Missing option|Missing "
                r"argument|Got unexpected extra argument)[^\n]*)",
                source="click 7 to 8, typer",
            ),
        ),
        judge=lambda seen, verdict: (
            None
            if went_on(seen)
            else with_message(verdict, verdict.message.replace("? refused", "the program refused"))
        ),
        explains=("SES22",),
    ),
    Cause(
        "SES293",
        "repository-not-readable",
        "git could not read a remote repository.",
        "No key or token for it in this environment (a container or a batch job has not those of the login shell).",
        "git could not read the remote repository: no SSH key or token for it here",
        Remediation(
            "Give the key or token to this environment, or clone before the job starts",
            (
                "ssh -T git@HOST; ssh-add -l",
                "docker run -v $SSH_AUTH_SOCK:/agent -e SSH_AUTH_SOCK=/agent ...",
                "git remote -v",
            ),
        ),
        (
            Signature(
                (
                    "Could not read from remote repository",
                    "could not read Username for",
                    "Authentication failed for '",
                ),
                "git@host: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                "fatal: not a git repository",
                r"Could not read from remote repository|could not read Username for '|fatal: Authentication failed for '",
                source="git 2.x",
            ),
        ),
        kind=VAGUE,
        explains=("DST252", "FS202"),
    ),
)

"""Scripts and environments that cannot work as they are."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Signature, register
from torch_doctor.diagnose.endings import went_on
from torch_doctor.model import Remediation

register(
    Cause(
        "SES280",
        "shell-script-wrong",
        "The shell cannot read the script.",
        "A bash script that sh runs (arrays, [[ and <( are bash's), a blank around =, an unbalanced quote or if. The program "
        "was not started, or without its settings.",
        "the shell cannot read the script: {what}",
        Remediation(
            "Correct the line, and run the script with the shell that it is written for",
            (
                "bash -n SCRIPT; bash SCRIPT",
                "head -1 SCRIPT  # has to begin with #!, as #!/bin/bash",
                "export CUDA_VISIBLE_DEVICES=0  # no blanks around =",
                "shellcheck SCRIPT",
            ),
        ),
        (
            Signature(
                "This does not look like a batch script",
                "sbatch: error: This does not look like a batch script.  The first",
                "a batch script",
                r"(?P<what>This does not look like a batch script)",
                source="Slurm 14 to 25: the first line has to be #!/bin/bash",
            ),
            Signature(
                ("yntax error", "not a valid identifier", "Bad substitution", "bad substitution"),
                './train.sh: 3: Syntax error: "(" unexpected',
                "yaml: syntax error in config.yaml",
                r"^(?P<what>[^\s:]+: (?:(?:line )?\d+: )?(?:[Ss]yntax error[^\n]*(?:unexpected|expecting)[^\n]*|[^\n]{0,40}not a valid identifier|[^\n]{0,40}[Bb]ad "
                r"substitution))",
                source="bash 4 and 5, dash",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: None if went_on(seen) else verdict,
        explains=("SES261", "SES22"),
    ),
    Cause(
        "SES236",
        "python-home-wrong",
        "Python does not find its own standard library.",
        "PYTHONHOME points at another installation, or the installation is incomplete. No package can mend it.",
        "Python does not find its own library: PYTHONHOME (or a moved installation) points at a wrong place",
        Remediation(
            "Take PYTHONHOME and PYTHONPATH out of the environment",
            ("unset PYTHONHOME PYTHONPATH", "python3 -c 'import sys; print(sys.prefix)'"),
        ),
        (
            Signature(
                "No module named 'encodings'",
                "ModuleNotFoundError: No module named 'encodings'",
                "ModuleNotFoundError: No module named 'encoding'",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("PKG206", "SES211"),
    ),
    Cause(
        "SES263",
        "conda-not-initialised",
        "conda activate does not work in a shell that conda has not set up.",
        "conda activate is a shell function; a batch job or a non-interactive shell does not read the ~/.bashrc that "
        "defines it. What follows then runs without the environment.",
        "conda activate failed: this shell was not set up for conda (batch jobs and scripts do not read ~/.bashrc)",
        Remediation(
            "Load conda's own script before the activation, or use conda run",
            (
                "source ~/miniconda3/etc/profile.d/conda.sh && conda activate ENV",
                'eval "$(conda shell.bash hook)"',
                "conda run --no-capture-output -n ENV python train.py",
            ),
        ),
        (
            Signature(
                (
                    "has not been properly configured to use 'conda activate'",
                    "Run 'conda init' before 'conda activate'",
                ),
                "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
                "conda activate ENV",
                source="conda 4.4 to 25",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: None if went_on(seen) else verdict,
        explains=("SES261", "PKG206", "SES22"),
    ),
    Cause(
        "SES267",
        "cpu-lacks-instruction",
        "The CPU does not have an instruction that a library was built for.",
        "SIGILL, 132 or -4: a wheel or an image built for AVX2 or AVX-512 runs on an older CPU, or in a virtual machine "
        "that hides the feature. It often happens at import.",
        "this CPU does not have an instruction that the program uses (SIGILL): a wheel or library built for AVX, AVX2 "
        "or AVX-512, or a virtual machine that hides the feature",
        Remediation(
            "Compare the CPU's flags with what the package needs; install a build for this CPU, or give the virtual "
            "machine the host's CPU model",
            (
                "lscpu | grep -o -w -E 'avx|avx2|avx512f|sse4_2' | sort -u",
                "PYTHONFAULTHANDLER=1 python -c 'import torch'",
                "qemu-system-x86_64 -cpu host ...",
                "pip install --no-binary PACKAGE PACKAGE",
            ),
        ),
        (
            Signature(
                "llegal instruction",
                "run.sh: line 3: 4242 Illegal instruction     (core dumped) python train.py",
                "CUDA error: an illegal instruction was encountered",
                r"^(?:.*: line \d+: +\d+ +|Fatal Python error: )?Illegal instruction\b",
                source="bash, faulthandler",
            ),
            Signature(
                "trap invalid opcode",
                "kernel: traps: python[4411] trap invalid opcode ip:7f11 sp:7ffd error:0 in libmkl_avx512.so.2[7f10]",
                "invalid opcode of the VM",
                source="Linux 4.x to 6.x",
            ),
            Signature(
                ("SIGILL", "exitcode: -4"),
                "traceback : Signal 4 (SIGILL) received by PID 4242",
                "SIGILL handler installed",
                r"Signal 4 \(SIGILL\) received|terminated with signal SIGILL|died with <Signals\.SIGILL|exitcode: -4\b",
                source="torchrun, subprocess, gdb",
            ),
        ),
        kind=VAGUE,
        explains=("SES211", "SES22", "DST2", "WRK2"),
    ),
    Cause(
        "SES268",
        "threads-forbidden-by-seccomp",
        "Threads cannot be made in a container: an old Docker's seccomp profile answers EPERM.",
        "A newer glibc starts threads with clone3; Docker before 20.10.10 (or an old libseccomp or runc) forbids the "
        "unknown call. 'Operation not permitted' is not a limit: ulimit and pids play no part.",
        "threads cannot be made (Operation not permitted): the seccomp profile of an old Docker, runc or libseccomp "
        "forbids the system call clone3 that this image's glibc uses; no limit is reached",
        Remediation(
            "Update Docker to 20.10.10 or later, with runc and libseccomp; as a probe switch seccomp off",
            (
                "docker version; runc --version",
                "sudo apt-get install --only-upgrade docker-ce containerd.io libseccomp2",
                "docker run --security-opt seccomp=unconfined ...  # as a probe",
            ),
        ),
        (
            Signature(
                "Operation not permitted",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 35 of 48: Operation not permitted",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 35 of 48: Resource temporarily unavailable",
                r"(?:pthread_create|thread_init|Thread creation failed|clone3?)[^\n]*Operation not permitted",
                source="OpenBLAS 0.3, libgomp, glibc 2.34 on Docker before 20.10.10",
            ),
            Signature(
                "can't start new thread",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 4: Operation not permitted\n"
                "RuntimeError: can't start new thread",
                "RuntimeError: can't start new thread",
                also=(r"(?:pthread_create|thread_init|clone3?)[^\n]*Operation not permitted",),
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("DST212", "SES2"),
    ),
)

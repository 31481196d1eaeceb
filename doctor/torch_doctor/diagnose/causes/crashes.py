"""Native crashes and notebooks whose kernel died."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def crash(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The kernel's own line names the library, which the other texts do not."""
    library = seen.groups.get("library") or ((seen.find(r"segfault at [^\n]* in ([\w.+-]+)\[") or ["", ""])[1])
    if library:
        return with_message(
            verdict,
            f"a native crash (SIGSEGV) in {library}: a bug or a bad call of it, a broken or mixed binary install (ABI), or use "
            "of it over a fork or from several threads",
            library=library,
        )
    return with_message(verdict, verdict.message.replace("?", "SIGSEGV"))


register(
    Cause(
        "SES211",
        "native-crash",
        "A native crash (SIGSEGV, SIGABRT or SIGILL) in C or C++ code.",
        "A C extension, a broken or mixed binary install, or a library that is neither fork- nor thread-safe. "
        "faulthandler names only the Python line above it.",
        "a native crash ({what}) in C/C++ code: a C extension, a broken or mixed binary install (ABI), or a library "
        "that is not safe over a fork or in threads; the log alone does not name the library",
        Remediation(
            "Read the lines after 'Current thread' that faulthandler prints, run under gdb, retry with "
            "num_workers=0, and look at native packages that changed lately",
            (
                "PYTHONFAULTHANDLER=1 python train.py",
                "gdb -batch -ex run -ex bt --args python train.py",
                "DataLoader(..., num_workers=0)",
                'ls -lt "$(python -c "import sysconfig; print(sysconfig.get_path(\'purelib\'))")" | head  # what was installed last',
            ),
        ),
        (
            Signature(
                "Fatal Python error: ",
                "Fatal Python error: Segmentation fault",
                "Fatal error",
                r"Fatal Python error: (?P<what>Segmentation fault|Aborted|Floating[- ]point "
                r"exception)",
                source="python 3.8 to 3.14, faulthandler",
            ),
            Signature(
                "egmentation fault",
                "run.sh: line 3: 4242 Segmentation fault      (core dumped) python train.py",
                "a segmentation model",
                r"^(?:.*: line \d+: +\d+ +)?(?P<what>Segmentation fault)\b[^\n]*$|Unexpected segmentation fault "
                r"encountered in worker|killed by signal: Segmentation fault",
                source="bash, torch 0.4 to 2.15",
            ),
            Signature(
                ("exitcode: -11", "SIGSEGV", "139", "code = -11", "code -11"),
                "failed (exitcode: -11) local_rank: 0 (pid: 4242) of binary: /usr/bin/python",
                "exitcode: -9",
                r"exitcode: -11|return code = -11\b|terminated with code -11\b|Signal 11 \(SIGSEGV\)|terminated with signal SIGSEGV|died with "
                r"<Signals\.SIGSEGV|exit(?:ed)?(?: with)? code:? 139\b|exit status 139\b",
                source="torchrun, shells",
            ),
            Signature(
                ("SIGSEGV", "Process received signal"),
                "  traceback : Signal 11 (SIGSEGV) received by PID 4242",
                "SIGSEGV handler",
                r"Signal 11 \((?P<what>SIGSEGV)\) received|terminated with signal SIGSEGV|died with "
                r"<Signals\.SIGSEGV|\*\*\* (?:Process received signal|SIGSEGV)",
                source="torchrun, Open MPI, glog",
            ),
            Signature(
                ("exited on signal 11", "exited on signal 6", ": Segmentation fault", ": Aborted"),
                "mpirun noticed that process rank 1 with PID 22 on node gpu2 exited on signal 11 (Segmentation fault).",
                "mpirun noticed that process rank 3 with PID 0 on node gpu2 exited on signal 9 (Killed).",
                r"exited on signal (?:11|6) \((?P<what>\w[\w ]*)\)|^srun: error: \S+: tasks? [\d,-]+: (?:Segmentation fault|Aborted)",
                source="Open MPI 2 to 5, Slurm 14 to 25",
            ),
            Signature(
                ("status=11/SEGV", "status=6/ABRT"),
                "systemd[1]: train.service: Main process exited, code=dumped, status=11/SEGV",
                "systemd[1]: train.service: Main process exited, code=killed, status=15/TERM",
                r"status=(?:11/(?P<what>SEGV)|6/ABRT)",
                source="systemd 219 to 258",
            ),
            Signature(
                ("with signal SIGABRT", "<Signals.SIGABRT", "zsh: segmentation fault", "zsh: abort"),
                "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGABRT",
                "signal SIGABRT is handled",
                r"(?:terminated with signal |died with <Signals\.)(?P<what>SIGABRT)|^zsh: (?:segmentation fault|abort)",
                source="torch.multiprocessing.spawn, subprocess, zsh",
            ),
            Signature(
                ": segfault at ",
                "kernel: python[4411]: segfault at 0 ip 00007f77 sp 00007ffc error 4 in libtorch_cuda.so[7f76+5000]",
                "segfault at work",
                r"\w+\[\d+\]: segfault at \S+ [^\n]*error \d+(?: in (?P<library>[\w.+-]+)\[)?",
                source="Linux 4.x to 6.x",
            ),
            Signature(
                "139",
                "exited with code 139",
                "139 images",
                r"exit(?:ed)?(?: with)?(?: code| status)?:? \(?(?P<what>139)\b",
                source="Docker, shells",
            ),
            Signature(
                "core dumped",
                "Aborted (core dumped)",
                "no core dumped today",
                r"^(?:.*: line \d+: +\d+ +)?(?P<what>Aborted|Floating point exception|Trace/breakpoint "
                r"trap)\b\s*\(core dumped\)",
                source="bash",
            ),
            Signature(
                ("double free or corruption", "corrupted ", "malloc(): ", "free(): invalid", "munmap_chunk"),
                "double free or corruption (!prev)",
                "double-free",
                r"(?P<what>double free or corruption|corrupted size vs\. prev_size|malloc\(\): "
                r"(?:corrupted|invalid)|free\(\): invalid (?:pointer|size|next size)|munmap_chunk\(\): invalid "
                r"pointer|corrupted double-linked list)",
                source="glibc 2.26 to 2.41",
            ),
            Signature(
                "free(): invalid",
                "free(): invalid pointer",
                "free() called",
                r"(?P<what>free\(\): invalid (?:pointer|size|next size))",
                source="glibc",
            ),
            Signature(
                "is killed by signal: A",
                "RuntimeError: DataLoader worker (pid 81) is killed by signal: Aborted. ",
                "RuntimeError: DataLoader worker (pid 81) is killed by signal: Killed. ",
                r"is killed by signal: (?P<what>Aborted|Abort trap)",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
        ),
        kind=VAGUE,
        explains=("WRK2", "SES22", "DST2", "MEM206"),
        judge=crash,
        decide="PYTHONFAULTHANDLER=1 python train.py",
    ),
    Cause(
        "SES243",
        "notebook-kernel-died",
        "The notebook's kernel died and was restarted.",
        "The OOM killer or a native crash ended it; Jupyter only sees that it is gone.",
        "the notebook's kernel died: killed by the OOM killer (host RAM), or crashed in native code; Jupyter's text does not tell which",
        Remediation(
            "Look for a kill in the kernel's log, and run the cell as a script with faulthandler",
            (
                "dmesg -T | grep -i -E 'oom-kill|killed process'",
                "jupyter nbconvert --to script X.ipynb && PYTHONFAULTHANDLER=1 python X.py",
                "free -g",
            ),
        ),
        (
            Signature(
                "ernel",
                "The kernel appears to have died. It will restart automatically.",
                "kernel restarted by the user",
                r"[Kk]ernel appears to have died|KernelRestarter: restarting kernel \(\d/\d\)|(?:The )?[Kk]ernel(?: \S+)? (?:for \S+ )?died\b",
                source="Jupyter Notebook 5 to 7, JupyterLab 2 to 4",
            ),
        ),
        kind=VAGUE,
        decide="dmesg -T | grep -i -E 'oom-kill|killed process'",
    ),
)

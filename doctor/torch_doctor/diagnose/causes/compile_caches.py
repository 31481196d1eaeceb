"""What torch.compile has compiled: caches on file systems that do not take them, and the processes that fill them."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_LIMITED = r"ulimit -v|RLIMIT_AS|address space|h_vmem|virtual memory\s+\(k"
_CACHE = r"/tmp|/var/tmp|/mnt|/dev/shm|cache|triton|inductor|/run"


def noexec(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A library of an installed package lies on no noexec mount: there the address space is limited."""
    file = seen.groups.get("file", "")
    if not seen.has(_LIMITED) and (not file or re.search(_CACHE, file)):
        return verdict
    return with_message(
        verdict,
        f"{file or 'a shared library'} could not be mapped: the limit of the address space (ulimit -v, RLIMIT_AS) "
        "is reached, or "
        "the memory limit of the job; torch's CUDA libraries need several GiB of it",
        Remediation(
            "Lift the limit of the address space in the shell or job that starts python",
            ("ulimit -v unlimited", "ulimit -a", "findmnt -T FILE -o OPTIONS"),
        ),
    )


register(
    Cause(
        "CMP204",
        "cache-on-noexec-mount",
        "A compiled shared object lies on a file system that forbids execution.",
        "docker run --tmpfs /tmp mounts noexec by default. Loading the library maps it executable, which the kernel "
        "refuses; the file's own mode has nothing to do with it.",
        "a shared library[[, {file},]] could not be mapped executable: its file system is mounted noexec (docker --tmpfs is, by default)",
        Remediation(
            "Mount /tmp with exec, or put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a mount that allows it",
            (
                "docker run --tmpfs /tmp:exec,size=2g ...",
                "export TORCHINDUCTOR_CACHE_DIR=/workspace/.cache/inductor TRITON_CACHE_DIR=/workspace/.cache/triton",
                "findmnt -T /tmp -o OPTIONS",
            ),
        ),
        (
            Signature(
                "failed to map segment from shared object",
                "ImportError: /tmp/torchinductor_root/triton/0/3c1f/cuda_utils.so: failed to map segment from "
                "shared object",
                "ImportError: /tmp/x.so: undefined symbol: cuLaunchKernel",
                r"(?:(?P<file>/?[\w./+@-]*\.so[\w.]*): )?failed to map segment from shared object",
                source="glibc 2.28 to 2.41, dlopen",
            ),
            Signature(
                ("Permission denied", "Operation not permitted"),
                "OSError: /tmp/torchinductor_u/ab/cab.so: cannot open shared object file: Permission denied",
                "PermissionError: [Errno 13] Permission denied: '/tmp/triton/x.lock'",
                r"(?P<file>/\S+\.so[\w.]*): (?:cannot open|failed to map)[^\n]*(?:Permission denied|Operation not "
                r"permitted)",
                source="glibc 2.28 to 2.41",
            ),
            Signature(
                "ptxas",
                "PermissionError: [Errno 13] Permission denied: "
                "'/mnt/venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/ptxas'",
                "ptxas info",
                r"Permission denied: '(?P<file>/\S*/ptxas(?:-blackwell)?)'",
                source="triton 3.x",
            ),
        ),
        judge=noexec,
        explains=("CMP22", "PKG2"),
        decide="findmnt -T FILE -o TARGET,FSTYPE,OPTIONS; ulimit -v",
    ),
    Cause(
        "CMP205",
        "stale-compile-cache",
        "A cached artefact of torch.compile or triton does not fit what is installed now.",
        "A cache that outlives an upgrade of torch, triton or the driver, or is shared by machines that differ, "
        "holds objects with other symbols.",
        "a cached artefact of triton or inductor is invalid here ({file}): it was built for another torch, triton "
        "or driver",
        Remediation(
            "Delete the cache, and put torch's and the driver's version into its path",
            ("rm -rf /tmp/torchinductor_* ~/.triton/cache", "export TORCHINDUCTOR_CACHE_DIR=/cache/torch2.13-cu130"),
        ),
        (
            Signature(
                "undefined symbol",
                "ImportError: /tmp/torchinductor_user/triton/0/d5f8c1a4/__triton_launcher.so: undefined symbol: "
                "cuLaunchKernel",
                "ImportError: /opt/venv/lib/python3.11/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c10",
                r"(?P<file>/\S*(?:torchinductor|triton|inductor|torch_extensions|torch_compile)\S*\.so): undefined "
                r"symbol",
                source="glibc, triton 2.x and 3.x",
            ),
            Signature(
                ".so",
                "OSError: /root/.triton/cache/ab12/cuda_utils.so: invalid ELF header",
                "invalid ELF header of the kernel",
                r"(?P<file>/\S*(?:torchinductor|\.triton|triton)\S*\.so)[^\n]*(?:invalid ELF header|file too "
                r"short|wrong ELF class|cannot apply additional memory protection)",
                source="glibc",
            ),
            Signature(
                "triton",
                '  File "triton/compiler/compiler.py", line 280, in compile\njson.decoder.JSONDecodeError: '
                "Expecting value: line 1 column 1 (char 0)",
                "JSONDecodeError in my config",
                r"triton/(?:runtime/cache"
                r"|compiler/compiler)\.py[^\n]*\n(?:.*\n){0,12}?[^\n]*(?P<file>JSONDecodeError|EOFError"
                r"|UnpicklingError)",
                source="triton 2.x and 3.x",
            ),
        ),
        explains=("CMP22", "PKG2"),
    ),
    Cause(
        "CMP206",
        "compile-cache-on-network-file-system",
        "The compile cache lies on NFS and several ranks rename files in it.",
        "Each rank writes a temporary file and renames it; on NFS a file in use is renamed aside, and the rename "
        "fails with EBUSY or a stale handle.",
        "ranks collide in the triton cache at {file}: renames on a network file system (HOME on NFS) fail while "
        "another rank has the file open",
        Remediation(
            "Put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a local disk of each node",
            (
                "export TRITON_CACHE_DIR=/tmp/triton-$UID TORCHINDUCTOR_CACHE_DIR=/tmp/inductor-$UID",
                "stat -f -c %T ~/.triton",
            ),
        ),
        (
            Signature(
                "Device or resource busy",
                "OSError: [Errno 16] Device or resource busy: "
                "'/root/.triton/cache/6F2A/tmp.pid_4242_8c/cuda_utils.cpython-310-x86_64-linux-gnu.so' "
                "-> '/root/.triton/cache/6F2A/cuda_utils.cpython-310-x86_64-linux-gnu.so'",
                "OSError: [Errno 16] Device or resource busy: '/dev/nvidia0'",
                r"\[Errno 16\] Device or resource busy: '(?P<file>[^']*(?:triton|inductor|\.nfs)[^']*)'",
                source="triton 2.x and 3.x on NFS",
            ),
            Signature(
                "Stale file handle",
                "OSError: [Errno 116] Stale file handle: '/home/u/.triton/cache/6F2A/x.json'",
                "OSError: [Errno 116] Stale file handle: '/data/train.bin'",
                r"\[Errno 116\] Stale file handle(?:: '(?P<file>[^']*(?:triton|inductor)[^']*)')",
                source="NFS",
            ),
            Signature(
                ("Errno 39]", "Errno 2]"),
                "OSError: [Errno 39] Directory not empty: '/home/u/.triton/cache/6F2A/.nfs0000001'",
                "Directory not empty: 'out'",
                r"(?:Errno 39\] Directory not empty|Errno 2\] No such file or directory): "
                r"'(?P<file>[^']*(?:triton|inductor)[^']*(?:tmp\.pid|\.nfs)[^']*)'",
                source="triton on NFS",
            ),
        ),
        explains=("CMP22",),
    ),
    Cause(
        "CMP212",
        "compile-subprocess-died",
        "A subprocess of inductor's parallel compilation died.",
        "Inductor compiles in up to 32 processes; in a container with a memory limit the OOM killer ends one. The "
        "real error is in dmesg, or shows with one thread.",
        "a compilation subprocess of inductor died: it crashed, or the OOM killer ended it (the host memory limit "
        "of the container)",
        Remediation(
            "Compile in the main process to see the real error, and raise the container's memory limit or lower "
            "the number of compile threads",
            (
                "TORCHINDUCTOR_COMPILE_THREADS=1 python train.py",
                "docker run --memory=32g ...",
                "dmesg -T | grep -i oom",
            ),
        ),
        (
            Signature(
                "A compilation subprocess exited unexpectedly",
                "RuntimeError: A compilation subprocess exited unexpectedly. This is likely due to a crash.",
                "DataLoader worker (pid(s) 1) exited unexpectedly",
                source="torch 2.7 to 2.15, torch/_inductor/compile_worker",
            ),
            Signature(
                "BrokenProcessPool",
                "torch/_inductor/async_compile.py: concurrent.futures.process.BrokenProcessPool: A process in the "
                "process pool was terminated abruptly while the future was running or pending.",
                "process pool",
                also=(r"inductor|compile_worker|async_compile",),
                source="python 3.8 to 3.14 with torch 2.0 to 2.6",
            ),
            Signature(
                "SubprocException",
                "torch._inductor.compile_worker.subproc_pool.SubprocException: An exception occurred in a "
                "subprocess:",
                "subprocess",
                source="torch 2.4 to 2.15",
            ),
        ),
        kind=VAGUE,
        decide="TORCHINDUCTOR_COMPILE_THREADS=1 python train.py",
    ),
    Cause(
        "CMP240",
        "compile-cache-removed-meanwhile",
        "Files of inductor's cache disappeared while the compiler was to read them.",
        "A cleaner of /tmp, another job that empties the cache, or a user name with characters that a shell or path does not "
        "take.",
        "a file of inductor's cache was gone when the compiler opened it ({file}): something cleans the folder, or its path is "
        "not usable",
        Remediation(
            "Give the run a cache folder of its own, with a plain path, that nothing cleans",
            (
                "export TORCHINDUCTOR_CACHE_DIR=$HOME/.cache/inductor TRITON_CACHE_DIR=$HOME/.cache/triton",
                "ls -ld /tmp/torchinductor_*",
            ),
        ),
        (
            Signature(
                "torchinductor",
                "g++: error: /tmp/torchinductor_u/dy/cdy.cpp: No such file or directory",
                "g++: error: /workspace/x.cpp: No such file or directory",
                r"(?:g\+\+|clang\+\+|gcc)(?:-\d+)?: error: (?P<file>\S*torchinductor\S*): No such file",
                source="gcc 9 to 15, torch 2.0 to 2.15",
            ),
        ),
        explains=("CMP22",),
    ),
)

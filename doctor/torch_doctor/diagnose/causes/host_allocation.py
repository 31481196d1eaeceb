"""Host memory that could not be had: an allocation that was refused, a paging file that is too small."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register, with_message
from torch_doctor.model import Remediation, mib


def _asked(size_text: str) -> str:
    if not size_text:
        return ""
    shown = mib(int(size_text)) if size_text.isdigit() else size_text
    return f" ({shown} asked for in one piece)"


register(
    Cause(
        "MEM205",
        "host-allocation-failed",
        "An allocation of host RAM failed.",
        "malloc, mmap or NumPy got no memory: the limit of RAM, of the address space (ulimit -v), or an array that "
        "is larger than thought.",
        "an allocation of host RAM failed{size}",
        Remediation(
            "Compare what the run needs with the limit, map large arrays from disk, and use fewer workers",
            ("free -g; ulimit -v", "cat /sys/fs/cgroup/memory.max", "np.load(path, mmap_mode='r')"),
        ),
        (
            Signature(
                "DefaultCPUAllocator: ",
                "RuntimeError: [enforce fail at alloc_cpu.cpp:83] . DefaultCPUAllocator: can't allocate memory: you "
                "tried to allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)",
                "DefaultCPUAllocator: ok",
                r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate "
                r"(?P<size>\d+) bytes",
                source="torch 1.0 to 2.15, c10/core/impl/alloc_cpu.cpp",
            ),
            Signature(
                "Unable to allocate",
                "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 59.6 GiB for an array with shape "
                "(80000, 100000) and data type float64",
                "Unable to allocate shared memory",
                r"MemoryError: Unable to allocate (?P<size>[\d.]+ [KMGTP]iB) for an array",
                source="NumPy 1.17 to 2.4",
            ),
            Signature(
                "MemoryError",
                "MemoryError",
                "OutOfMemoryError",
                r"^(?P<size>)MemoryError(?::[^\n]*)?$",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "Cannot allocate memory",
                "OSError: [Errno 12] Cannot allocate memory",
                "RuntimeError: unable to mmap 4096 bytes from file </torch_1_2_63350>: Cannot allocate memory (12)",
                r"\[Errno 12\] Cannot allocate memory(?P<size>)",
                source="python 3.8 to 3.14: fork, mmap",
            ),
            Signature(
                "alloc of size ",
                "pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed",
                "malloc of size 10",
                r"ArrowMemoryError: (?:m|re)alloc of size (?P<size>\d+) failed",
                source="pyarrow 1 to 22",
            ),
            Signature(
                "std::bad_alloc",
                "terminate called after throwing an instance of 'std::bad_alloc'",
                "bad_alloc test",
                r"std::bad_alloc(?P<size>)",
                source="libstdc++",
            ),
            Signature(
                "not enough memory: you tried to allocate",
                "RuntimeError: $ Torch: not enough memory: you tried to allocate 52GB. Buy new RAM! at "
                "/pytorch/aten/src/TH/THGeneral.cpp:204",
                "not enough memory: 3",
                r"Torch: not enough memory: you tried to allocate (?P<size>\d+ ?[KMG]B)",
                source="torch 0.3 to 1.4",
            ),
        ),
        explains=("WRK2", "SES2"),
        judge=lambda seen, verdict: with_message(
            verdict, verdict.message.replace(seen.groups.get("size") or "?", _asked(seen.groups.get("size", "")))
        ),
    ),
    Cause(
        "MEM233",
        "windows-paging-file-too-small",
        "Windows could not commit the memory that loading torch's libraries needs.",
        "Each DataLoader worker is a process of its own there and loads the CUDA libraries again: several GB of committed "
        "memory a worker, which count against RAM plus paging file, although little of it is used.",
        "Windows' paging file is too small to load torch's libraries once more: each worker process commits several GB",
        Remediation(
            "Use fewer workers, or let Windows grow the paging file (System, Advanced, Performance, Virtual memory)",
            ("DataLoader(..., num_workers=0)", "SystemPropertiesPerformance.exe"),
        ),
        (
            Signature(
                "1455",
                "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
                "error code 1450",
                r"WinError 1455|error code: <1455>",
                source="Windows 10 and 11, torch 1.0 to 2.15",
            ),
        ),
        explains=("WRK2", "SES2", "PKG2"),
    ),
)

"""Memory maps: their number, and pages that cannot be had."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation, mib

#: mappings from which vm.max_map_count (65530) may be reached, with those that libraries make; bytes of a large one
FEW_MAPS, LARGE_MAP = 10_000, 64 << 20


def many_maps(seen: Seen, verdict: Verdict) -> Verdict | None:
    """``/torch_PID_RAND_N``: N counts the mappings of that process; near 65530 it is vm.max_map_count."""
    number = int(seen.groups.get("n", "0"))
    size = int(seen.groups.get("bytes", "0"))
    if number < FEW_MAPS and size >= LARGE_MAP:
        count = f", and the process had made only {number}" if number else ""
        return with_message(
            verdict,
            f"one mapping of {mib(size)} failed with errno 12{count}: no RAM or address space is left for it (the "
            "memory limit, ulimit -v, or strict overcommit), not vm.max_map_count",
            Remediation(
                "Compare what is shared with the memory limit, and share it in smaller pieces",
                ("free -g; ulimit -v", "cat /sys/fs/cgroup/memory.max", "sysctl vm.overcommit_memory"),
            ),
            mappings=number,
        )
    return with_message(verdict, verdict.message, None, mappings=number) if number else verdict


register(
    Cause(
        "SHM203",
        "max-map-count-reached",
        "The process has as many memory mappings as the kernel allows (vm.max_map_count).",
        "Each tensor that crosses to a worker is one mapping. A data set that holds one tensor per sample crosses "
        "the limit of 65530 and gets errno 12, which reads like a lack of memory.",
        "mapping[[ {n}]] of one process failed with errno 12: vm.max_map_count (65530 by default) is reached, since "
        "one tensor per sample is sent to the workers",
        Remediation(
            "Raise vm.max_map_count on the host, or store all samples in one array or tensor in place of one "
            "tensor per sample",
            ("sudo sysctl -w vm.max_map_count=1048576", "sysctl vm.max_map_count"),
        ),
        (
            Signature(
                "unable to mmap",
                "RuntimeError: unable to mmap 4096 bytes from file </torch_362873_3123855485_63350>: Cannot "
                "allocate memory (12)",
                "RuntimeError: unable to mmap 4096 bytes from file </torch_362873_3123855485_7>: Permission denied "
                "(13)",
                r"unable to mmap (?P<bytes>\d+) bytes from file <(?:[^>]*?_\d+_\d+_(?P<n>\d+)|[^>]*)>: Cannot "
                r"allocate memory",
                source="torch 1.4 to 2.15, aten/src/ATen/MapAllocator.cpp",
            ),
        ),
        judge=many_maps,
        decide="sysctl vm.max_map_count; wc -l /proc/PID/maps",
        references="https://github.com/kohya-ss/sd-scripts/issues/1790",
    ),
    Cause(
        "SHM211",
        "memory-map-bus-error",
        "A memory-mapped file could not be read or written: SIGBUS.",
        "A new np.memmap is a sparse file: making it succeeds on a full disk, and the write of a page kills the "
        "process when "
        "the blocks run out. A truncated file, or a network file system that fails, gives the same signal.",
        "the process died of SIGBUS without a DataLoader's word of it: a page of a memory-mapped file could not be "
        "written or read, since the disk ran out of blocks under a sparse file (np.memmap), or the mapped file was "
        "truncated (LMDB)",
        Remediation(
            "Free space on the disk of the mapped file or write it elsewhere; reserve its blocks with fallocate "
            "before mapping it; copy a truncated data file again",
            ("df -h .", "fallocate -l SIZE FILE", "ls -ls FILE"),
        ),
        (
            Signature(
                ("Bus error", "SIGBUS", "exited with -7"),
                "extracting feature from batch 256 / 495\nBus error (core dumped)",
                "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.",
                r"^(?:.*: line \d+: +\d+ )?Bus error\b(?:.*core dumped.*)?|^Fatal Python error: Bus error|signal 7 "
                r"\(SIGBUS\)|"
                r"Signal: Bus error \(7\)|exited with -7\b|\bSIGBUS\b[^\n]*received|died with <Signals\.SIGBUS",
                unless=(r"insufficient shared memory", r"killed by signal: Bus error", r"/dev/shm\b.*\b(?:9\d|100)%"),
                source="bash, python 3.8 to 3.14 (faulthandler), torch elastic",
            ),
        ),
        kind=VAGUE,
        decide="df -h . /dev/shm; dmesg | tail",
        explains=("SES20",),
        references="https://github.com/numpy/numpy/issues/21964",
    ),
    Cause(
        "SHM212",
        "network-map-bus-error",
        "A page of a file that is mapped from a network file system could not be served: exit status 135.",
        "135 is 128 + 7, SIGBUS. safetensors, LMDB and Arrow map their files; on NFS, Lustre or FUSE under load a "
        "page fault can fail. What is printed last, a health check that timed out, is far from the cause.",
        "a process ended with 135 (128 + SIGBUS): a page of a memory-mapped file, such as a safetensors shard on a "
        "network file system (NFS, Lustre, FUSE), could not be served",
        Remediation(
            "Read the shards in place of mapping them, or stage them to a local disk first",
            (
                "stat -f -c %T MODEL_FOLDER",
                "cp -r MODEL_FOLDER /local/",
                "safetensors.torch.load(open(path, 'rb').read())",
            ),
        ),
        (
            Signature(
                "135",
                "process exited with code 135\nserver did not become healthy in 3600s",
                "process exited with code 35",
                r"(?i)exit(?:ed)?(?: with)?(?: \(?(?:code|status|exitcode))?\)?\s*[:=]?\s*\(?135\b",
                unless=(r"killed by signal: Bus error", r"insufficient shared memory"),
                source="shells, Docker, Kubernetes, Slurm",
            ),
        ),
        kind=VAGUE,
        explains=("SES2",),
        decide="df -h /dev/shm; stat -f -c %T MODEL_FOLDER; dmesg | tail",
        references="https://github.com/NVIDIA/TensorRT-LLM/pull/17368",
    ),
)

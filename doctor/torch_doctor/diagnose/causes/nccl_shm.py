"""NCCL's segments in shared memory."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "SHM206",
        "nccl-shm-full",
        "NCCL could not make its shared-memory segment: /dev/shm is full.",
        "NCCL needs about 10 MB of /dev/shm for each pair of ranks. The first rank to fail names the cause; the "
        "others report socket and system errors only.",
        "NCCL could not create its segment[[ {segment}]][[ of {size} bytes]]: /dev/shm is full (64 MiB is the "
        "default of a pod or container)",
        Remediation(
            "Give the pod or container more shared memory: in Kubernetes an emptyDir with medium: Memory mounted at "
            "/dev/shm, with Docker --shm-size=8g or --ipc=host",
            (
                "docker run --shm-size=8g ...",
                "volumes: [{name: shm, emptyDir: {medium: Memory}}]  # of the pod",
                "volumeMounts: [{name: shm, mountPath: /dev/shm}]  # of its container",
                "df -h /dev/shm",
            ),
        ),
        (
            Signature(
                "/dev/shm/nccl-",
                "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, "
                "error: No space left on device (28)",
                "misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-NzwJ7O "
                "(size 9637888)",
                r"(?:failed to extend|creating shared memory segment|Unable to (?:create|allocate))[^\n]*?"
                r"(?P<segment>/dev/shm/nccl-\w*)(?:[^\n\d]+(?P<size>\d+))?[^\n]*No space left on device",
                source="NCCL 2.18 to 2.28, src/misc/shmutils.cc",
            ),
            Signature(
                "/dev/shm/nccl-",
                "misc/shmutils.cc:68 NCCL WARN Call to posix_fallocate failed : No space left on device\n"
                "misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-abc (size "
                "9637888)",
                "misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'\n"
                "misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-NzwJ7O "
                "(size 9637888)",
                r"(?:posix_fallocate|ftruncate)[^\n]*No space left[^\n]*\n(?:.*\n)?[^\n]*"
                r"(?P<segment>/dev/shm/nccl-\w*)[^\n\d]*(?P<size>\d+)?",
                source="NCCL 2.7 to 2.17, src/misc/shmutils.cc",
            ),
            Signature(
                "posix_fallocate failed",
                "NCCL WARN Call to posix_fallocate failed : No space left on device",
                "NCCL WARN Call to connect failed : Connection refused",
                r"NCCL WARN Call to posix_fallocate failed : No space left on device",
                source="NCCL 2.3 to 2.17",
            ),
            Signature(
                "creating shared memory segment",
                "[rank3]: Last error:\n[rank3]: Error while creating shared memory segment /dev/shm/nccl-Xk2ba1 (size 33030528)",
                "misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'\nmisc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 9637888)",
                r"Last error:\n[^\n]*creating shared memory segment (?P<segment>/dev/shm/nccl-\w*) \(size (?P<size>\d+)\)",
                unless=("Cuda failure", "shm_open failed"),
                source="NCCL 2.18 to 2.28 without NCCL_DEBUG: the likeliest reason",
            ),
        ),
        explains=("DST", "SHM20", "SHM21", "SES", "GPU22"),
        decide="df -h /dev/shm",
        references="https://github.com/pytorch/ci-infra/pull/490",
    ),
    Cause(
        "SHM207",
        "nccl-shm-registration-failed",
        "NCCL made its shared-memory segment, and CUDA refused to register it.",
        "The last line blames the segment; the line above it, a CUDA failure, decides. The segment exists: its size "
        "does not matter. The final cause lies with the driver, the IOMMU or the limit of locked memory.",
        "NCCL made the shared-memory segment, but CUDA failed to register it ('{failure}'): driver, IOMMU or the "
        "limit of locked memory (memlock) is at fault",
        Remediation(
            "Go on with NCCL_SHM_DISABLE=1 as a stopgap; check the driver version, the IOMMU and ulimit -l",
            (
                "NCCL_SHM_DISABLE=1 torchrun ...",
                "ulimit -l",
                "docker run --ulimit memlock=-1 ...",
                "nvidia-smi; dmesg | grep -i iommu",
            ),
        ),
        (
            Signature(
                "creating shared memory segment",
                "misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'\n"
                "misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-NzwJ7O "
                "(size 9637888)",
                "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, "
                "error: No space "
                "left on device (28)\nNCCL WARN Error while creating shared memory segment /dev/shm/nccl-WU88OE "
                "(size 9637888), "
                "error: No space left on device (28)",
                r"Cuda failure (?:\d+ )?'(?P<failure>[^']+)'[^\n]*\n[^\n]*creating shared memory segment "
                r"/dev/shm/nccl-\w*",
                source="NCCL 2.18 to 2.28, src/misc/shmutils.cc",
            ),
        ),
        explains=("DST", "SHM206", "GPU22"),
        decide="torchrun --nproc-per-node 2 with an all_reduce, then with all ranks",
        references="https://github.com/NVIDIA/nccl/issues/1518",
    ),
    Cause(
        "SHM208",
        "nccl-shm-peer-mismatch",
        "A rank could not attach to its peer's NCCL segment: the ranks allocate host memory in different ways.",
        "With cuMem host allocation a segment has no name in /dev/shm. Where it works on some ranks only (their "
        "NUMA node has no CPUs in the cpuset), the others read the peer's descriptor as a path: an empty name and "
        "size 0 are the tell.",
        "NCCL could not attach to the peer's segment, with an empty name and size {size}: cuMem host allocation "
        "works on some ranks only (uneven NUMA or CPU masks)",
        Remediation(
            "Switch cuMem host allocation off for all ranks, and give each rank CPUs of its GPU's NUMA node "
            "(cpusets)",
            (
                "NCCL_CUMEM_HOST_ENABLE=0 torchrun ...",
                "nvidia-smi topo -m",
                "cat /proc/self/status | grep -i allowed_list",
            ),
        ),
        (
            Signature(
                "attaching to shared memory segment",
                "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such "
                "file or directory (2)",
                "NCCL WARN Error while creating shared memory segment /dev/shm/nccl- (size 9637888), error: No "
                "space left on device (28)",
                r"attaching to shared memory segment /dev/shm/nccl-\S* \(size (?P<size>\d+)\)",
                source="NCCL 2.24 to 2.28, src/misc/shmutils.cc",
            ),
        ),
        explains=("DST", "GPU22"),
        references="https://github.com/NVIDIA/nccl/issues/2190",
    ),
)

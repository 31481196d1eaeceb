"""Threads that native code could not start."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "CPU231",
        "native-thread-not-started",
        "C++ code could not start a thread.",
        "The container's limit of PIDs counts threads, and so does ulimit -u. Data loading, OpenMP, BLAS and compile threads "
        "add up: workers times cores. What remains is an uncaught C++ exception and an abort.",
        "native code could not start another thread: the limit of PIDs (docker --pids-limit, the pids cgroup) or ulimit -u is "
        "reached, which workers times threads of OpenMP and BLAS use up",
        Remediation(
            "Raise the limit, or use fewer workers and threads",
            (
                "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current; ulimit -u",
                "docker run --pids-limit=-1 ...",
                "export OMP_NUM_THREADS=4 OPENBLAS_NUM_THREADS=4 MKL_NUM_THREADS=4",
            ),
        ),
        (
            Signature(
                "what():  Resource temporarily unavailable",
                "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable",
                "  what():  Connection refused",
                source="libstdc++ of gcc 5 to 15, std::thread",
            ),
        ),
        explains=("SES211",),
    ),
)

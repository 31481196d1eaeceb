"""Shared memory: /dev/shm against what the DataLoader workers need."""

from __future__ import annotations

from collections.abc import Iterator

from torch_doctor.facts.shm import ShmFacts
from torch_doctor.model import Finding, Remediation, Severity, mib
from torch_doctor.registry import check

RESTART_WITH_SHM = Remediation(
    "Recreate the container with more shared memory; it costs nothing until it is used",
    ("docker run --shm-size=8g ...",),
)


@check("SHM001", "shm-too-small", tags={"container"})
def shm_too_small(shm: ShmFacts) -> Iterator[Finding]:
    """/dev/shm is smaller than what the DataLoader workers put into it.

    What it checks:
        The size of /dev/shm against the need of this script's loaders, or 1 GiB without a script.
    Why it matters:
        Workers hand batches over in /dev/shm. When it is full they die: a bus error, or "unable to allocate
        shared memory(shm) ... No space left on device (28)", often hours into a run.
    Example:
        docker run IMAGE python train.py        # Docker gives 64 MiB
    Fix:
        docker run --shm-size=8g ..., shm_size: 8g in compose, or an emptyDir with medium: Memory on /dev/shm in
        Kubernetes.
    References:
        https://docs.docker.com/reference/cli/docker/container/run/
    """
    if shm.size_bytes >= shm.needed_bytes:
        return
    yield Finding(
        Severity.ERROR,
        f"/dev/shm is {mib(shm.size_bytes)}; this loader needs {mib(shm.needed_bytes)}",
        RESTART_WITH_SHM,
        evidence={"size_bytes": shm.size_bytes, "needed_bytes": shm.needed_bytes},
    )

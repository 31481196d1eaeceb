"""Shared memory: a loader's workers against the container that starts the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import constant
from torch_doctor.lint.found import WARNING, finding
from torch_doctor.lint.loaders import loaders
from torch_doctor.model import Finding, counted, mib
from torch_doctor.registry import check

#: /dev/shm of a container that does not say otherwise, in bytes (dockerd --default-shm-size)
DOCKER_DEFAULT = 64 << 20


@check("SHM101", "workers-in-small-shm", tags={"workers", "container"})
def workers_in_small_shm(script: Script) -> Iterator[Finding]:
    """The container that starts this script has a /dev/shm too small for its loader's workers.

    What it checks:
        A loader with workers, against the compose service or docker run line beside the script that names it: neither
        shm_size (--shm-size) above Docker's 64 MiB nor ipc: host.
    Why it matters:
        Every batch goes through /dev/shm. Where it is full, a worker dies with a bus error, or with "unable to
        allocate shared memory(shm) ... No space left on device (28)".
    Example:
        Bad::

            # docker run IMAGE python train.py
            from torch.utils.data import DataLoader
            def main(data):
                return DataLoader(data, batch_size=256, num_workers=8)

        Good::

            # docker run --shm-size=8g IMAGE python train.py
            from torch.utils.data import DataLoader
            def main(data):
                return DataLoader(data, batch_size=256, num_workers=8)
    Fix:
        shm_size: 8g in compose, --shm-size=8g for docker run; it costs nothing until it is used.
    References:
        https://docs.docker.com/reference/cli/docker/container/run/
    """
    busy = [x for x in loaders(script) if x.workers]
    if not busy:
        return
    for launch in script.launches:
        if launch.host_ipc or (launch.shm_bytes or DOCKER_DEFAULT) > DOCKER_DEFAULT:
            continue
        loader = max(busy, key=lambda x: x.workers or 0)
        batch = constant(script, loader.argument("batch_size"))
        given = launch.shm_bytes or DOCKER_DEFAULT
        where = f"{PurePath(launch.path).name}:{launch.line}"
        yield finding(
            script,
            loader.call,
            WARNING,
            f"{counted(loader.workers or 0, 'worker')} share {mib(given)} of /dev/shm in {launch.what} ({where})",
            "shm_size: 8g in compose, --shm-size=8g for docker run",
            evidence={
                "workers": loader.workers,
                "batch_size": batch,
                "shm_bytes": launch.shm_bytes or DOCKER_DEFAULT,
            },
        )
        return

"""Looks at /dev/shm."""

from __future__ import annotations

import os

from torch_doctor.facts.request import Request
from torch_doctor.facts.shm import DEFAULT_NEEDED_BYTES, ShmFacts
from torch_doctor.model import ProbeFailure

PATH = "/dev/shm"


def probe(request: Request) -> ShmFacts | ProbeFailure:
    """The size of /dev/shm, and what the requirements ask of it."""
    try:
        found = os.statvfs(PATH)
    except OSError as error:
        return ProbeFailure(f"{PATH}: {error.strerror}")
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    return ShmFacts(size, free, request.requirements.shm_bytes or DEFAULT_NEEDED_BYTES)


PROBES = {ShmFacts: probe}

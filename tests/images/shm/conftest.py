"""Containers with the programs of this folder at /programs.

The matrix runs on one variant, the smallest that is under test; the others get a shorter one.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import containers

VARIANT = "cpu" if "cpu" in containers.variants() else containers.variants()[0]
IMAGE = os.environ.get("TORCH_DOCTOR_TEST_IMAGE", containers.image(VARIANT))
PROGRAMS = Path(__file__).parent / "programs"
COMMON = [f"--volume={PROGRAMS}:/programs:ro", "--env=TORCH_DOCTOR_PREFLIGHT=off"]

# What `docker run` calls each /dev/shm. Docker's own default is the first.
SHM = {
    "64m": [],
    "1m": ["--shm-size=1m"],
    "absent": ["--ipc=none"],
    "read-only": ["--tmpfs=/dev/shm:ro,size=64m"],
    "8g": ["--shm-size=8g"],
}
OFF = ["--env=TORCH_DOCTOR_SHM=off"]
HARDENED = [
    "--read-only",
    "--tmpfs=/tmp:exec",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=none",
]

Result = subprocess.CompletedProcess[str]
Docker = Callable[..., Result]


def run(*command: str, options: list[str] | None = None, image: str = IMAGE, timeout: float = 180) -> Result:
    """Runs a program of /programs, or any command, in a new container."""
    words = list(command)
    if words[0].endswith(".py"):
        words = ["python", "-W", "ignore", f"/programs/{words[0]}", *words[1:]]
    return containers.run(image, *words, options=[*COMMON, *(options or [])], timeout=timeout)


def docker(*words: str, timeout: float = 180) -> Result:
    return containers.docker(*words, timeout=timeout, check=False)


@pytest.fixture
def keep() -> Iterator[Callable[..., str]]:
    """Starts a container that stays until the end of the test; gives its name."""
    names: list[str] = []

    def keep(*options: str) -> str:
        names.append(f"td-test-{uuid.uuid4().hex[:12]}")
        started = docker("run", "--detach", f"--name={names[-1]}", *COMMON, *options, IMAGE, "sleep", "600")
        assert started.returncode == 0, started.stderr
        return names[-1]

    yield keep
    for name in names:
        docker("rm", "--force", "--volumes", name)

"""Containers of the images under test, with the programs of this folder at /programs."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

IMAGE = os.environ.get("TORCH_DOCTOR_TEST_IMAGE", "torch-doctor:cpu")
PROGRAMS = Path(__file__).parent / "programs"

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


def docker(*words: str, timeout: float = 180) -> Result:
    return subprocess.run(["docker", *words], text=True, capture_output=True, timeout=timeout)


@pytest.fixture
def run() -> Iterator[Docker]:
    """Runs a program of /programs, or any command, in a new container; removes what it leaves."""
    names: list[str] = []

    def run(*command: str, options: list[str] | None = None, image: str = IMAGE, timeout: float = 180) -> Result:
        name = f"td-shm-{uuid.uuid4().hex[:12]}"
        names.append(name)
        words = list(command)
        if words[0].endswith(".py"):
            words = ["python", "-W", "ignore", f"/programs/{words[0]}", *words[1:]]
        fixed = [f"--name={name}", f"--volume={PROGRAMS}:/programs:ro", "--env=TORCH_DOCTOR_PREFLIGHT=off"]
        return docker("run", "--rm", *fixed, *(options or []), image, *words, timeout=timeout)

    yield run
    for name in names:
        docker("rm", "--force", "--volumes", name)


@pytest.fixture
def keep() -> Iterator[Callable[..., str]]:
    """Starts a container that stays; gives its name."""
    names: list[str] = []

    def keep(*options: str) -> str:
        name = f"td-shm-{uuid.uuid4().hex[:12]}"
        names.append(name)
        fixed = [f"--name={name}", f"--volume={PROGRAMS}:/programs:ro", "--env=TORCH_DOCTOR_PREFLIGHT=off"]
        started = docker("run", "--detach", *fixed, *options, IMAGE, "sleep", "600")
        assert started.returncode == 0, started.stderr
        return name

    yield keep
    for name in names:
        docker("rm", "--force", "--volumes", name)

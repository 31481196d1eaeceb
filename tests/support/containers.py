"""Real containers of the images under test, for tests/images and whoever else needs one.

``TORCH_DOCTOR_TEST_VARIANTS`` names the variants (default: cpu); `make test` sets it, and builds them.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHARE = "/usr/local/share/torch-doctor"

#: an option that makes a plain container healthy: enough shared memory for DataLoader workers
ROOMY = ("--shm-size=2g",)


def variants() -> list[str]:
    return os.environ.get("TORCH_DOCTOR_TEST_VARIANTS", "cpu").split()


def smallest() -> str:
    """The variant for tests of what all share."""
    return "cpu" if "cpu" in variants() else variants()[0]


def image(variant: str) -> str:
    return f"torch-doctor:{variant}"


@cache
def client() -> str:
    """The Docker client that `make` would use; raises CalledProcessError where there is none."""
    found = subprocess.run(
        [ROOT / "images" / "engine.sh", "client"], check=True, capture_output=True, text=True, timeout=60
    )
    return found.stdout.strip()


@cache
def why_no_engine() -> str:
    """Empty where an engine answers, else the reason."""
    if os.environ.get("ENGINE") == "never":
        return "ENGINE=never"
    try:
        answer = subprocess.run([client(), "info"], capture_output=True, text=True, timeout=30)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        return f"no Docker engine: {error}"
    return "" if answer.returncode == 0 else f"no Docker engine: {answer.stderr.strip()}"


def docker(*args: str, timeout: float = 300, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the client; with ``check`` a failure shows what it printed."""
    done = subprocess.run([client(), *args], capture_output=True, text=True, timeout=timeout, input=stdin)
    if check and done.returncode != 0:
        raise AssertionError(f"docker {' '.join(args)}\nstatus {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def run(
    image: str, *command: str, options: Sequence[str] = (), timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """``docker run --rm OPTIONS IMAGE COMMAND``; a name of its own, so that a time-out leaves nothing behind."""
    name = f"td-test-{uuid.uuid4().hex[:12]}"
    try:
        return docker("run", "--rm", "--name", name, *options, image, *command, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        docker("rm", "--force", name, check=False)
        raise


@dataclass(frozen=True)
class Container:
    """A running container; ``exec`` is `docker exec`, which no entrypoint sees."""

    id: str

    def exec(self, *command: str, options: Sequence[str] = (), timeout: float = 300, check: bool = True) -> str:
        return docker("exec", *options, self.id, *command, timeout=timeout, check=check).stdout

    def report(self, *args: str) -> Report:
        done = docker("exec", self.id, "torch-doctor", "check", "--format", "json", *args, check=False)
        return Report.of(done)


@contextmanager
def container(
    image: str, options: Sequence[str] = (), command: Sequence[str] = ("sleep", "infinity")
) -> Iterator[Container]:
    """A container that stays up while the block runs."""
    started = docker("run", "--detach", "--env", "TORCH_DOCTOR_PREFLIGHT=off", *options, image, *command)
    running = Container(started.stdout.strip())
    try:
        yield running
    finally:
        docker("rm", "--force", "--volumes", running.id, check=False)


@dataclass(frozen=True)
class Report:
    """What `torch-doctor check --format json` said."""

    exit_code: int
    document: dict[str, Any]

    @classmethod
    def of(cls, done: subprocess.CompletedProcess[str]) -> Report:
        """Raises AssertionError with what was printed where it is no report."""
        try:
            return cls(done.returncode, json.loads(done.stdout))
        except ValueError as error:
            raise AssertionError(f"status {done.returncode}\n{done.stdout}\n{done.stderr}") from error

    def found(self, *severities: str) -> set[str]:
        """IDs of the findings, of all severities or of those named."""
        return {
            finding["id"]
            for finding in self.document["findings"]
            if not severities or finding["severity"] in severities
        }

    def red(self) -> set[str]:
        """IDs of errors and warnings, and of checks that crashed."""
        crashed = {check["id"] for check in self.document["checks"] if check["outcome"] == "crashed"}
        return self.found("error", "warning") | crashed

    def commands(self, id: str) -> list[str]:
        """What the remediation of a finding tells to type."""
        return [
            command
            for finding in self.document["findings"]
            if finding["id"] == id
            for command in finding["remediation"]["commands"]
        ]


def check(image: str, *args: str, options: Sequence[str] = ()) -> Report:
    """`docker run OPTIONS IMAGE check --format json ARGS`."""
    return Report.of(run(image, "check", "--format", "json", *args, options=options))

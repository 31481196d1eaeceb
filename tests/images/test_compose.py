"""docker-compose.yml: what its services get, and that the cpu profile runs here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import containers

FILE = containers.ROOT / "docker-compose.yml"
GPU_SERVICES = ("check", "train", "shell")
CPU_SERVICES = ("check-cpu", "train-cpu", "shell-cpu")


def compose() -> list[str]:
    """Compose v2 where the client has it, else docker-compose 1.29."""
    if subprocess.run([containers.client(), "compose", "version"], capture_output=True).returncode == 0:
        return [containers.client(), "compose"]
    found = shutil.which("docker-compose")
    assert found, "neither `docker compose` nor docker-compose is here: apt-get install docker-compose"
    return [found]


class Project:
    """One project with a name and a workspace of its own."""

    def __init__(self, workspace: Path) -> None:
        self.name = f"td-test-{uuid.uuid4().hex[:8]}"
        self.environment = {**os.environ, "WORKSPACE": str(workspace), "TERM": "xterm-256color"}
        self.environment |= {"TRAIN_UID": str(os.getuid()), "TRAIN_GID": str(os.getgid())}

    def __call__(self, *args: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*compose(), "--project-name", self.name, "--file", str(FILE), *args],
            capture_output=True,
            text=True,
            timeout=300,
            env=self.environment | settings,
        )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made("--profile", "cpu", "down", "--volumes", "--remove-orphans")


def resolved(project: Project, **settings: str) -> dict[str, Any]:
    done = project("--profile", "cpu", "config", **settings)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout)["services"])


def test_every_service_is_hardened(project: Project) -> None:
    services = resolved(project, MEM_LIMIT="4g", CPUS="2")  # Compose v2 leaves out what has no limit
    assert set(services) == {*GPU_SERVICES, *CPU_SERVICES}
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] not in ("", "root", "0"), name
        assert any(entry.startswith("/tmp:exec") for entry in service["tmpfs"]), name
        assert set(service["ulimits"]) == (
            {"memlock", "stack", "nofile"} if name in GPU_SERVICES else {"stack", "nofile"}
        )
        assert {"shm_size", "mem_limit", "cpus", "pids_limit", "stop_grace_period"} <= set(service), name


def test_gpus_are_reserved_where_they_are_meant(project: Project) -> None:
    services = resolved(project, GPU_DEVICES="1,3")
    for name in GPU_SERVICES:
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["device_ids"], device["capabilities"]) == ("nvidia", ["1,3"], ["gpu"])
    for name in CPU_SERVICES:
        assert "deploy" not in services[name]


def test_every_setting_has_a_default_and_stands_in_the_example(project: Project) -> None:
    used = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", FILE.read_text(encoding="utf-8")))
    assert "${" not in re.sub(r"\$\{[A-Z_]+:-[^}]*\}", "", FILE.read_text(encoding="utf-8"))
    lines = (containers.ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(used) - {"TERM"} == set(example)
    files = {"ULIMIT_NOFILE"}  # the cpu profile has a lower default
    assert {key: used[key] for key in example if key not in files} == {
        key: value for key, value in example.items() if key not in files
    }


def test_settings_come_from_the_environment(project: Project) -> None:
    service = resolved(project, SHM_SIZE="3g", MEM_LIMIT="4g", CPUS="1.5", ULIMIT_NOFILE="1000")["train-cpu"]
    assert str(service["shm_size"]) in ("3g", str(3 << 30))
    assert str(service["mem_limit"]) in ("4g", str(4 << 30))
    assert float(service["cpus"]) == 1.5
    assert service["ulimits"]["nofile"] == {"soft": 1000, "hard": 1000}


@pytest.fixture
def cpu_image() -> None:
    if "cpu" not in containers.variants():
        pytest.skip("the cpu variant is not among TORCH_DOCTOR_TEST_VARIANTS")


@pytest.mark.usefixtures("cpu_image")
def test_the_cpu_profile_checks_here(project: Project) -> None:
    done = project("run", "--rm", "-T", "check-cpu", "check", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["summary"]["crashed"]) == (0, 0), done.stdout
    assert [finding["id"] for finding in report["findings"] if finding["severity"] == "error"] == []


@pytest.mark.usefixtures("cpu_image")
def test_what_is_written_lasts_in_the_volumes(project: Project) -> None:
    write = "touch /workspace/mine /workspace/.torch-doctor/state /tmp/torch-doctor-cache/cache ~/x && ulimit -n"
    done = project("run", "--rm", "-T", "shell-cpu", "bash", "-c", write)
    assert (done.returncode, done.stdout) == (0, "16384\n"), done.stderr
    look = "ls /workspace/mine /workspace/.torch-doctor/state /tmp/torch-doctor-cache/cache"
    assert project("run", "--rm", "-T", "shell-cpu", "bash", "-c", look).returncode == 0

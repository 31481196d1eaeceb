"""images/engine.sh: which client, and what happens where no engine answers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "images" / "engine.sh"


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def docker(folder: Path, version: str, buildx: int = 1, info: int = 0) -> Path:
    """A client of that version, with or without the buildx plugin and an engine behind it."""
    says = f'--version) echo "Docker version {version}, build 0";; buildx) exit {buildx};; info) exit {info};;'
    return program(folder, "docker", f'case "$1" in {says} esac')


def engine(*args: str, path: list[Path], script: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'source "{SCRIPT}"; {script}'] if script else ["bash", str(SCRIPT), *args]
    search = ":".join([*(str(folder) for folder in path), "/usr/bin", "/bin"])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DOCKER")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**kept, "PATH": search, **environment}
    )


def test_a_client_without_buildx_is_passed_over_from_version_23_on(tmp_path: Path) -> None:
    docker(tmp_path / "new", "28.2.2")
    old = docker(tmp_path / "old", "20.10.24+dfsg1")
    assert engine("client", path=[tmp_path / "new", tmp_path / "old"]).stdout == f"{old}\n"


def test_a_client_with_buildx_is_taken(tmp_path: Path) -> None:
    new = docker(tmp_path / "new", "28.2.2", buildx=0)
    assert engine("client", path=[tmp_path / "new"]).stdout == f"{new}\n"


def test_docker_names_the_client(tmp_path: Path) -> None:
    named = docker(tmp_path / "named", "20.10.1")
    first = docker(tmp_path / "first", "20.10.1")
    assert first != named
    assert engine("client", path=[tmp_path / "first"], DOCKER=str(named)).stdout == f"{named}\n"


def test_an_engine_that_answers_is_left_alone(tmp_path: Path) -> None:
    docker(tmp_path / "bin", "20.10.1")
    done = engine("ensure", path=[tmp_path / "bin"])
    assert (done.returncode, done.stderr) == (0, "")


def test_engine_never_looks_for_none(tmp_path: Path) -> None:
    docker(tmp_path / "bin", "20.10.1")
    done = engine("ensure", path=[tmp_path / "bin"], ENGINE="never")
    assert done.returncode == 3
    assert "ENGINE=never" in done.stderr


def test_a_remote_engine_that_is_away_is_not_replaced_by_one_here(tmp_path: Path) -> None:
    docker(tmp_path / "bin", "20.10.1", info=1)
    done = engine("ensure", path=[tmp_path / "bin"], DOCKER_HOST="tcp://192.0.2.1:2375")
    assert done.returncode == 3
    assert "DOCKER_HOST=tcp://192.0.2.1:2375" in done.stderr


def test_without_root_it_says_what_would_be_needed(tmp_path: Path) -> None:
    docker(tmp_path / "bin", "20.10.1", info=1)
    done = engine(path=[tmp_path / "bin"], script="can_install() { false; }; ensure")
    assert done.returncode == 3
    assert "root on Debian or Ubuntu" in done.stderr


def test_where_there_is_no_engine_it_is_installed_and_started(tmp_path: Path) -> None:
    """apt-get brings the client and the daemon; the daemon answers a while after it was started."""
    tools = tmp_path / "bin"
    answering = tmp_path / "answering"
    log = tmp_path / "dockerd.log"
    body = f'case "$1" in --version) echo "Docker version 20.10.24, build 0";; info) test -e {answering};; esac'
    client = tmp_path / "docker.sh"
    client.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program(tools, "dockerd.real", f"echo started; touch {answering}; sleep 5")
    program(
        tools,
        "apt-get",
        f'case "$*" in *install*) echo "$*" >> {tmp_path}/apt; cp {client} {tools}/docker; chmod +x {tools}/docker; '
        f"cp {tools}/dockerd.real {tools}/dockerd;; esac",
    )
    program(tools, "apt-cache", 'test "$2" = docker-buildx')
    program(tools, "pgrep", "exit 1")
    for name in (
        "bash",
        "grep",
        "head",
        "timeout",
        "setsid",
        "nohup",
        "tail",
        "sleep",
        "cp",
        "chmod",
        "touch",
        "env",
        "sh",
    ):
        (tools / name).symlink_to(next(p for p in (Path("/usr/bin", name), Path("/bin", name)) if p.exists()))
    done = subprocess.run(
        ["/bin/bash", "-c", f'source "{SCRIPT}"; can_install() {{ true; }}; ensure'],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": str(tools), "TORCH_DOCTOR_DOCKERD_LOG": str(log), "HOME": str(tmp_path)},
    )
    if Path("/run/systemd/system").is_dir():
        pytest.skip("a service manager runs here: the daemon is its service")
    assert done.returncode == 0, done.stderr
    assert "docker.io docker-buildx" in (tmp_path / "apt").read_text(encoding="utf-8")
    assert "started" in log.read_text(encoding="utf-8")
    assert "installing docker.io" in done.stderr and str(log) in done.stderr


def test_a_daemon_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    docker(tmp_path / "bin", "20.10.1", info=1)
    program(tmp_path / "bin", "dockerd", "echo 'failed to start: no overlay here'; exit 1")
    log = tmp_path / "dockerd.log"
    done = engine(path=[tmp_path / "bin"], script="start_plain", TORCH_DOCTOR_DOCKERD_LOG=str(log))
    assert done.returncode == 1
    assert "no overlay here" in done.stderr

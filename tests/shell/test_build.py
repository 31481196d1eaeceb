"""images/build.sh: what goes into a build, and when none is needed; tests/images builds for real."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The files that a build reads, to be changed at will."""
    copy = tmp_path / "repository"
    for name in ("Dockerfile", ".dockerignore", "LICENSE", "entrypoint", "images"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("wheels", "__pycache__"))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / name)
    package = copy / "doctor" / "torch_doctor"
    package.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / "doctor" / name, copy / "doctor" / name)
    (package / "__init__.py").write_text("", encoding="utf-8")
    return copy


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A client whose base image has the bundle `base.pem`, and the ID `base`."""
    (tmp_path / "base.pem").write_text("of the base\n", encoding="utf-8")
    path = tmp_path / "docker"
    path.write_text(
        f'#!/bin/sh\ncase "$1" in run) cat {tmp_path}/base.pem;; image) echo base;; pull) exit 1;; esac\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def call(repository: Path, client: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    setup = f'source "{repository}/images/build.sh"; client="{client}"; scratch="{client.parent}"'
    return subprocess.run(
        ["bash", "-c", f"{setup}; {script}"], capture_output=True, text=True, timeout=60, env={**kept, **environment}
    )


def inputs(repository: Path, client: Path, variant: str = "cpu") -> str:
    done = call(repository, client, f"inputs {variant} base")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "changed",
    [
        "Dockerfile",
        "entrypoint/entrypoint.sh",
        "doctor/torch_doctor/__init__.py",
        "doctor/pyproject.toml",
        "images/cpu/requirements.lock",
        "images/steps/slim.sh",
        "images/rootfs/etc/torch-doctor/tmux.conf",
        "images/shm/names.c",
        "images/tools/requirements.lock",
    ],
)
def test_a_changed_input_changes_the_hash(repository: Path, client: Path, changed: str) -> None:
    before = inputs(repository, client)
    with (repository / changed).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert inputs(repository, client) != before


@pytest.mark.parametrize("changed", ["images/cuda/requirements.lock", "images/cpu/requirements.in", "images/lock.sh"])
def test_what_this_variant_does_not_read_does_not(repository: Path, client: Path, changed: str) -> None:
    before = inputs(repository, client)
    with (repository / changed).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert inputs(repository, client) == before


def test_a_new_file_counts_and_a_compiled_one_does_not(repository: Path, client: Path) -> None:
    before = inputs(repository, client)
    cache = repository / "doctor" / "torch_doctor" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"x")
    assert inputs(repository, client) == before
    (repository / "doctor" / "torch_doctor" / "new.py").write_text("", encoding="utf-8")
    assert inputs(repository, client) != before


def test_the_hosts_bundle_is_given_where_the_base_has_another(repository: Path, client: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text("of the proxy\n", encoding="utf-8")
    for name in ("SSL_CERT_FILE", "PIP_CERT", "TORCH_DOCTOR_SYSTEM_BUNDLE"):
        settings = {"TORCH_DOCTOR_SYSTEM_BUNDLE": "/nonexistent", name: str(own)}
        done = call(repository, client, "secrets base", **settings)
        assert done.stdout == f"--secret\nid=ca_bundle,src={own}\n", name


def test_an_equal_bundle_is_not_given(repository: Path, client: Path, tmp_path: Path) -> None:
    done = call(repository, client, "secrets base", TORCH_DOCTOR_SYSTEM_BUNDLE=str(tmp_path / "base.pem"))
    assert (done.returncode, done.stdout) == (0, "")


def test_an_index_goes_as_a_secret_file_and_not_as_an_argument(
    repository: Path, client: Path, tmp_path: Path
) -> None:
    url = "https://user:token@index.example/simple"
    done = call(repository, client, "secrets base", TORCH_DOCTOR_SYSTEM_BUNDLE="/nonexistent", PIP_INDEX_URL=url)
    assert done.stdout == f"--secret\nid=index_url,src={tmp_path}/index_url\n"
    secret = tmp_path / "index_url"
    assert secret.read_text(encoding="utf-8") == url
    assert secret.stat().st_mode & 0o077 == 0


def test_a_local_wheel_comes_from_the_folder_that_is_given(repository: Path, client: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "given"
    wheels.mkdir()
    empty = call(repository, client, "fetch_wheel cpu", WHEELS=str(wheels))
    assert empty.returncode == 1
    assert f"WHEELS={wheels} holds no wheel of torch" in empty.stderr
    version = call(repository, client, "value cpu torch").stdout.strip()
    name = f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    (wheels / name).write_bytes(b"wheel")
    assert call(repository, client, "fetch_wheel cpu", WHEELS=str(wheels)).returncode == 0
    assert (repository / "images" / "cpu" / "wheels" / name).read_bytes() == b"wheel"


def test_a_variant_from_the_index_needs_no_local_wheel(repository: Path, client: Path) -> None:
    assert call(repository, client, "fetch_wheel cuda", WHEELS="/nonexistent").returncode == 0


def test_an_unknown_variant_is_wrong_usage(repository: Path) -> None:
    done = subprocess.run([repository / "images" / "build.sh", "rocm"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "there are: cuda, cpu, torch2.9" in done.stderr

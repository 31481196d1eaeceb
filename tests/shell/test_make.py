"""The targets of the Makefile, as a user types them."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(*args: str, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**settings, **environment},
    )


def test_help_lists_every_target() -> None:
    listed = set(re.findall(r"^  make ([a-z-]+) ", make("help").stdout, re.MULTILINE))
    declared = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == declared - {"engine", "prepare"}
    assert {
        "check",
        "test",
        "test-unit",
        "test-image",
        "test-gpu",
        "image",
        "lock",
        "lint",
        "bench",
        "clean",
    } <= listed


def test_ci_runs_make_test() -> None:
    assert "exec make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_no_step_names_the_host_of_a_package_registry() -> None:
    files = ["Makefile", "Dockerfile", "docker-compose.yml", ".env.example", "tests/requirements.txt", ".ci/run"]
    paths = [ROOT / name for name in files]
    paths += [path for path in (ROOT / "images").rglob("*") if path.suffix in (".sh", ".py", ".toml", ".lock", ".in")]
    hosts = re.compile(r"pypi\.org|pythonhosted|download\.pytorch|deb\.debian\.org|docker\.io/|ghcr\.io|quay\.io")
    assert [str(path) for path in paths if hosts.search(path.read_text(encoding="utf-8"))] == []


def test_a_script_that_is_not_there_is_said_before_anything_is_built() -> None:
    done = make("check", "SCRIPT=no/such.py")
    assert done.returncode != 0
    assert "no such script: no/such.py" in done.stderr


needs_venv = pytest.mark.skipif(
    not (ROOT / ".venv" / ".ready").exists(), reason="make has not prepared .venv: run make test-unit"
)


@needs_venv
@pytest.mark.slow
def test_check_without_an_engine_checks_this_host(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n", encoding="utf-8")
    done = make("check", "ENGINE=never", f"SCRIPT={script}", TORCH_DOCTOR_FAIL_ON="never")
    assert done.returncode == 0, done.stderr
    assert "ENGINE=never" in done.stderr and "checking this host" in done.stderr
    assert re.search(r"^check: .* in [\d.]+ s$", done.stdout, re.MULTILINE), done.stdout


@needs_venv
@pytest.mark.slow
def test_the_wheel_and_the_sdist_hold_the_doctor() -> None:
    done = make("wheel")
    assert done.returncode == 0, done.stderr
    (wheel,) = (ROOT / "dist").glob("torch_doctor-*.whl")
    (sdist,) = (ROOT / "dist").glob("torch_doctor-*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "torch_doctor/cli/app.py" in names and "torch_doctor/py.typed" in names
    assert not [name for name in names if "test" in name.split("/")[0]]
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/torch_doctor/cli/app.py") for name in archive.getnames())


@needs_venv
@pytest.mark.slow
def test_lint_is_clean() -> None:
    done = make("lint")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.engine
@pytest.mark.parametrize("script", [None, "train.py"])
def test_check_runs_in_the_image(tmp_path: Path, script: str | None) -> None:
    variant = os.environ.get("TORCH_DOCTOR_TEST_VARIANTS", "cpu").split()[0]
    arguments = ["check", f"VARIANT={variant}"]
    if script:
        (tmp_path / script).write_text("import torch\n", encoding="utf-8")
        arguments.append(f"SCRIPT={tmp_path / script}")
    done = make(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^check: ", done.stdout, re.MULTILINE), done.stdout

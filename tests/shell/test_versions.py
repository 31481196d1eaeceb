"""images/versions.py and what is made from the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

IMAGES = Path(__file__).resolve().parents[2] / "images"
TABLE = tomllib.loads((IMAGES / "versions.toml").read_text(encoding="utf-8"))
VARIANTS = sorted(TABLE["variant"])


def versions(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, IMAGES / "versions.py", *args], capture_output=True, text=True, timeout=30)


def test_the_dockerfile_has_the_default_variants_values() -> None:
    done = versions("sync-dockerfile", "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_default_comes_first() -> None:
    listed = versions("variants").stdout.split()
    assert listed[0] == versions("default").stdout.strip() == "cuda"
    assert sorted(listed) == VARIANTS


def test_an_unknown_variant_is_wrong_usage_and_names_those_there_are() -> None:
    done = versions("get", "rocm", "torch")
    assert done.returncode == 2
    assert "rocm" in done.stderr and "torch2.9" in done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lock_has_the_tables_torch(variant: str) -> None:
    lock = (IMAGES / variant / "requirements.lock").read_text(encoding="utf-8")
    torch = TABLE["variant"][variant]["torch"]
    assert f"torch=={torch} \\" in lock.splitlines()
    for tool in ("uv", "pip"):
        assert f"{tool}=={TABLE['tools'][tool]} \\" in lock.splitlines()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lock_satisfies_what_the_doctor_needs(variant: str) -> None:
    project = tomllib.loads((IMAGES.parent / "doctor" / "pyproject.toml").read_text(encoding="utf-8"))
    from packaging.requirements import Requirement

    lock = (IMAGES / variant / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(line.removesuffix(" \\").split("==") for line in lock.splitlines() if "==" in line)
    for entry in project["project"]["dependencies"]:
        wanted = Requirement(entry)
        if wanted.marker is None or wanted.marker.evaluate({"python_version": "3.13"}):
            assert wanted.specifier.contains(locked[wanted.name]), entry


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cuda_variant_has_a_driver_floor_and_a_cpu_variant_has_none(variant: str) -> None:
    row = TABLE["variant"][variant]
    assert bool(row["torch_cuda"]) == bool(row["minimum_driver"]) == bool(row["require_cuda"])


def test_no_version_of_the_table_is_written_again() -> None:
    """Scripts and the Makefile read the table; the Dockerfile has its values in one generated block."""
    dockerfile = (IMAGES.parent / "Dockerfile").read_text(encoding="utf-8")
    written = dockerfile.split("# versions.toml: end\n")[1]
    texts = [written, (IMAGES.parent / "Makefile").read_text(encoding="utf-8")]
    texts += [path.read_text(encoding="utf-8") for path in IMAGES.rglob("*.sh")]
    values = {str(row[key]) for row in TABLE["variant"].values() for key in ("torch", "minimum_driver")}
    for value in values - {""}:
        assert not any(value in text for text in texts), value

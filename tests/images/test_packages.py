"""A later install cannot silently replace torch."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support import containers


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two packages: one that wants another torch, one that takes any."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, wants in (("wants-other-torch", "torch==1.0"), ("takes-any-torch", "torch>=1.0"), ("torch", "")):
        source = tmp_path_factory.mktemp(name)
        (source / "pyproject.toml").write_text(
            textwrap.dedent(f"""\
                [build-system]
                requires = ["hatchling"]
                build-backend = "hatchling.build"
                [project]
                name = "{name}"
                version = "1.0"
                dependencies = [{f'"{wants}"' if wants else ""}]
                [tool.hatch.build.targets.wheel]
                bypass-selection = true
            """),
            encoding="utf-8",
        )
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", folder, source],
            check=True,
            capture_output=True,
            timeout=300,
        )
    folder.chmod(0o755)
    return folder


def install(image: str, wheels: Path, command: str) -> subprocess.CompletedProcess[str]:
    """As root, as in an image derived from this one; then says which torch is there."""
    version = "from importlib.metadata import version; print('torch is', version('torch'))"
    script = f'{command} 2>&1; echo status $?; python -c "{version}"'
    return containers.run(
        image,
        "-c",
        script,
        options=["--user=0", "--network=none", f"--volume={wheels}:/wheels:ro", "--entrypoint=bash"],
    )


@pytest.mark.parametrize("tool", ["pip install", "uv pip install"])
@pytest.mark.parametrize("package", ["wants-other-torch", "torch==1.0"])
def test_an_install_that_would_replace_torch_fails_and_says_so(
    image: str, wheels: Path, manifest: dict[str, Any], tool: str, package: str
) -> None:
    done = install(image, wheels, f"{tool} --no-index --find-links /wheels {package}")
    assert "status 0" not in done.stdout
    kept = manifest["packages"]["torch"]
    assert "torch==1.0" in done.stdout and f"torch=={kept}" in done.stdout  # what is in the way, by name
    assert f"torch is {kept}\n" in done.stdout


@pytest.mark.parametrize("tool", ["pip install", "uv pip install"])
def test_an_install_that_takes_this_torch_works(
    image: str, wheels: Path, manifest: dict[str, Any], tool: str
) -> None:
    done = install(image, wheels, f"{tool} --no-index --find-links /wheels takes-any-torch")
    assert "status 0" in done.stdout, done.stdout
    assert f"torch is {manifest['packages']['torch']}\n" in done.stdout

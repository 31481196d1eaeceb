"""The fake driver libraries of tests/fixtures/gpu: built once, and the environment that plays a scenario."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "fixtures" / "gpu"
SCENARIOS = SOURCES / "scenarios"


@functools.cache
def libraries() -> Path:
    """Folder with libnvidia-ml.so.1 and libcuda.so.1, compiled for this test session.

    A machine without a C compiler fails here: these tests are never skipped.
    """
    folder = Path(tempfile.mkdtemp(prefix="torch-doctor-fake-gpu-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(
        ["make", "--silent", "-C", str(SOURCES), f"OUT={folder}"], check=True, capture_output=True, timeout=120
    )
    folder.chmod(0o755)  # containers read it as another user
    return folder


def scenario(name: str) -> Path:
    """The scenario file of this name."""
    path = SCENARIOS / f"{name}.conf"
    assert path.is_file(), path
    return path


def write_scenario(folder: Path, *lines: str) -> Path:
    """A scenario of its own: ``"count = 2", "gpu.0.name = NVIDIA L4"``."""
    path = folder / "scenario.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def environment(path: Path) -> dict[str, str]:
    """What makes a process load the fakes and play the scenario in ``path``."""
    return {"LD_LIBRARY_PATH": str(libraries()), "TORCH_DOCTOR_FAKE_GPU": str(path)}

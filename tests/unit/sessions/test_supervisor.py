"""The supervisor is small: what it imports, and that it starts with nothing but the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torch_doctor.sessions import launch, supervisor

HEAVY = {"torch", "numpy", "rich", "docker", "typer", "click", "psutil", "libtmux", "pynvml", "subprocess", "asyncio"}


@pytest.mark.parametrize("module", ["supervisor", "viewer"])
def test_it_imports_nothing_heavy_and_nothing_outside_the_standard_library(module: str) -> None:
    root = Path(supervisor.__file__).parents[2]
    code = (
        f"import sys; sys.path.append({str(root)!r}); "
        f"import torch_doctor.sessions.{module}; print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & HEAVY
    assert loaded - {"torch_doctor", "__main__"} <= sys.stdlib_module_names | {"sitecustomize"}


def test_the_command_of_the_doctor_takes_no_module_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "typing.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        launch.doctor_command("--version"), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.startswith("torch-doctor "), done.stderr

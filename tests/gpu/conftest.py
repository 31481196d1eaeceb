"""What needs an NVIDIA GPU.

On a GPU host, against a running container:   pytest tests/gpu --hosts docker://CONTAINER
On a GPU machine without Docker:              pytest tests/gpu --hosts local://
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.gpu_machine import Machine

HERE = Path(__file__).parent
DOCTOR = HERE.parents[1] / "doctor"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture
def machine(host: Any) -> Machine:
    """The host that --hosts names; skipped with the reason where it has no GPU."""
    found = host.run("nvidia-smi -L")
    if found.rc != 0 or "GPU 0" not in found.stdout:
        pytest.skip(f"no NVIDIA GPU there: {(found.stdout or found.stderr).strip() or 'nvidia-smi lists none'}")
    if host.run("torch-doctor --version").rc == 0:
        return Machine(host, "torch-doctor", "python3")
    return Machine(host, f"PYTHONPATH={DOCTOR} {sys.executable} -m torch_doctor", sys.executable)

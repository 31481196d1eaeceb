"""Which tests may run here. A test marked `engine` needs a Docker engine: without one it is skipped with
the reason, except under `make test`, where it fails; one marked `gpu` needs an NVIDIA GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest
from support import containers


@cache
def why_no_gpu() -> str:
    """Empty where the driver lists a GPU, else the reason."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver here: nvidia-smi is not installed"
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    return "" if "GPU 0" in listing.stdout else f"no NVIDIA GPU: {listing.stdout}{listing.stderr}".strip()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and why_no_gpu():
        pytest.skip(why_no_gpu())
    if item.get_closest_marker("engine") and containers.why_no_engine():
        if os.environ.get("TORCH_DOCTOR_TESTS_NEED_ENGINE"):
            pytest.fail(f"`make test` runs every test, and {containers.why_no_engine()}", pytrace=False)
        pytest.skip(containers.why_no_engine())

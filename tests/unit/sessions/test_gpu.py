"""GPU looks that hang or die, and machines without GPUs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from torch_doctor.sessions import gpu, statusline
from torch_doctor.sessions.gpu import Health, Load


def test_a_machine_without_device_nodes_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    (tmp_path / "nvidia-uvm").touch()
    assert gpu.health(tmp_path) == Health(0)


def test_a_driver_that_hangs_is_a_fault_within_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "_answers", lambda: time.sleep(60))
    start = time.monotonic()
    assert gpu.health(tmp_path, 0.2) == Health(0, "NVML gave no answer within 0.2 s")
    assert time.monotonic() - start < 10


def test_a_look_that_dies_gives_nothing() -> None:
    assert gpu._in_child(lambda: os.kill(os.getpid(), signal.SIGKILL)) is None
    assert gpu._in_child(lambda: 1 / 0) is None
    assert gpu._in_child(lambda: [1, "x"]) == [1, "x"]


def test_a_fault_that_nvml_tells_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "_answers", lambda: (0, "GPU 0: GPU is lost"))
    assert gpu.health(tmp_path) == Health(0, "GPU 0: GPU is lost")


def test_the_status_line() -> None:
    one = Load(0, 3 << 30, 80 << 30, 97)
    assert statusline.text([]) == ""
    assert statusline.text([one]) == "GPU0 3.0/80.0 GiB 97%"
    assert statusline.text([one] * 8) == "8 GPUs 24.0/640.0 GiB"

"""`check --select gpu` as a user meets it: every fault that a fake driver plays turns exactly its own checks red."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support import fake_gpu
from support.command import environment, torch_doctor

#: on a machine with a driver of its own, what depends on the kernel's is another matter
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()


def check(path: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Without what needs torch: importing it takes longer than everything else together."""
    arguments = ("check", "--select", "gpu", "--ignore", "torch", "--format", "json", *args)
    return torch_doctor(*arguments, env={**fake_gpu.environment(path), **env})


def found(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["crashed"] == 0, [c for c in report["checks"] if c["outcome"] == "crashed"]
    assert report["exit_code"] == done.returncode
    return [(f["id"], f["severity"]) for f in report["findings"]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("healthy8", []),
        ("healthy1", []),
        ("sparse", []),
        ("mig", []),
        ("mismatch", [("GPU010", "error")]),
        ("unknown-error", [("GPU011", "error")]),
        ("blocked", [("GPU011", "error")]),
        ("no-permission", [("GPU016", "error")]),
        ("lost", [("GPU012", "error")]),
        ("lost-later", [("GPU012", "error")]),
        ("reset-required", [("GPU012", "error")]),
        ("crash", [("GPU014", "error")]),
        ("ecc", [("GPU031", "error"), ("GPU032", "error"), ("GPU033", "warning")]),
        ("retired", [("GPU033", "warning")]),
        ("throttled", [("GPU034", "warning"), ("GPU034", "warning")]),
        ("old-driver", [("GPU034", "warning")]),
        ("mig-empty", [("GPU006", "error")]),
        ("memory-held", [("GPU030", "warning")]),
        ("memory-held-unseen", [("GPU030", "warning")]),
        ("narrow-link", [("GPU035", "warning")]),
        ("exclusive", [("GPU036", "error"), ("GPU036", "warning")]),
        *((f"cuinit-{code}", [("GPU021", "error")]) for code in (100, 101, 802, 803, 804, 999)),
    ],
)
def test_a_fault_turns_its_own_check_red_and_no_other(name: str, expected: list[tuple[str, str]]) -> None:
    done = check(fake_gpu.scenario(name))
    assert found(done) == expected
    assert done.returncode == (1 if any(s == "error" for _, s in expected) else 0)


@pytest.mark.skipif(
    HAS_DRIVER, reason="the kernel of this machine has an NVIDIA driver: its libraries cannot lack it"
)
def test_libraries_without_a_driver_are_a_note() -> None:
    assert found(check(fake_gpu.scenario("not-loaded"))) == [("GPU003", "note")]


@pytest.mark.parametrize(("name", "call"), [("hang", "nvmlDeviceGetMemoryInfo, GPU 1"), ("hang-init", "nvmlInit")])
def test_a_hang_ends_at_the_limit_with_the_rest_of_the_report(name: str, call: str) -> None:
    start = time.monotonic()
    done = check(fake_gpu.scenario(name), "--timeout", "2")
    assert time.monotonic() - start < 20
    assert found(done) == [("GPU014", "error")]
    report = json.loads(done.stdout)
    assert report["findings"][0]["message"] == f"NVML gave no answer within 2 s in {call}"
    skipped = {c["id"]: c["reason"] for c in report["checks"] if c["outcome"] == "skipped"}
    assert {"GPU005", "GPU012", "GPU030", "GPU034"} - set(skipped) <= {"GPU012"}
    assert "no answer" in skipped["GPU034"]


def test_a_hang_without_its_check_is_a_crash_and_not_a_pass() -> None:
    done = torch_doctor(
        "check", "--select", "GPU034", "--timeout", "1", env=fake_gpu.environment(fake_gpu.scenario("hang-init"))
    )
    assert done.returncode == 3 and "no answer" in done.stdout


def test_cuinit_that_hangs() -> None:
    assert found(check(fake_gpu.scenario("cuda-hang"), "--timeout", "2")) == [("GPU021", "error")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1", []),
        ("", [("GPU005", "warning")]),
        ("0,8", [("GPU005", "warning")]),
        ("8", [("GPU005", "error")]),
        ("GPU-deadbeef", [("GPU005", "error")]),
    ],
)
def test_cuda_visible_devices(value: str, expected: list[tuple[str, str]]) -> None:
    assert found(check(fake_gpu.scenario("healthy8"), CUDA_VISIBLE_DEVICES=value)) == expected


def test_a_container_without_the_compute_capability(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes((fake_gpu.libraries() / "libnvidia-ml.so.1").read_bytes())
    done = check(fake_gpu.scenario("healthy1"), LD_LIBRARY_PATH=str(tmp_path), NVIDIA_DRIVER_CAPABILITIES="utility")
    if HAS_DRIVER:
        pytest.skip("this machine has a libcuda.so.1 of its own")
    assert found(done) == [("GPU023", "error")]


def test_a_compat_libcuda(tmp_path: Path) -> None:
    compat = tmp_path / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.1").write_bytes((fake_gpu.libraries() / "libcuda.so.1").read_bytes())
    path = fake_gpu.write_scenario(tmp_path, "cuda_version = 13000", "cuda.version = 12040")
    done = check(path, LD_LIBRARY_PATH=f"{compat}:{fake_gpu.libraries()}")
    assert found(done) == [("GPU022", "warning")]


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        ("gpus=8", []),
        ("gpus=9", [("GPU007", "error")]),
        ("gpu-memory=79g", []),
        ("gpu-memory=81g", [("GPU008", "error")] * 8),
        ("compute-capability=9.0", []),
        ("compute-capability=10.0", [("GPU009", "error")] * 8),
    ],
)
def test_what_the_run_needs(need: str, expected: list[tuple[str, str]]) -> None:
    assert found(check(fake_gpu.scenario("healthy8"), "--need", need)) == expected


def test_memory_that_is_there_and_held_is_too_little_too() -> None:
    done = check(fake_gpu.scenario("memory-held"), "--need", "gpu-memory=70g")
    assert found(done) == [("GPU030", "error")]


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize("wish", [["--need", "gpus=1"], ["--gpus", "all"], ["--need", "gpu-memory=8g"]])
def test_a_gpu_that_is_asked_for_and_not_there_is_an_error(wish: list[str]) -> None:
    done = torch_doctor("check", "--select", "gpu", "--ignore", "torch", "--format", "json", *wish)
    assert found(done) == [("GPU001", "error")] and done.returncode == 1
    assert " ".join(wish[:2]).split("=")[0] in json.loads(done.stdout)["findings"][0]["message"]


@pytest.mark.parametrize("format", ["table", "junit", "sarif", "github", "nagios"])
def test_every_format_says_it(format: str) -> None:
    done = torch_doctor(
        "check", "--select", "GPU012", "--format", format, env=fake_gpu.environment(fake_gpu.scenario("lost"))
    )
    assert "GPU 3" in done.stdout and "lost" in done.stdout


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has an NVIDIA driver")
def test_a_machine_without_a_gpu_has_one_note() -> None:
    # the value is what an image sets for itself: nobody's wish
    done = torch_doctor("check", "--select", "gpu", "--format", "json", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    report = json.loads(done.stdout)
    assert found(done) == [("GPU001", "note")]
    assert done.returncode == 0
    others = [c for c in report["checks"] if c["id"].startswith("GPU") and c["id"] != "GPU001"]
    assert {c["outcome"] for c in others} == {"skipped"} and all(c["reason"] for c in others)


@pytest.mark.parametrize(("name", "imported"), [("healthy1", True), ("none", False)])
def test_torch_is_imported_only_where_a_gpu_is_seen(name: str, imported: bool, tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"open({str(marker)!r}, 'w')\nraise ImportError('a test')\n")
    path = f"{environment()['PYTHONPATH']}:{tmp_path}"
    torch_doctor(
        "check", "--select", "gpu", env={**fake_gpu.environment(fake_gpu.scenario(name)), "PYTHONPATH": path}
    )
    assert marker.exists() is imported

"""The NVML probe: the real nvidia-ml-py on a fake libnvidia-ml.so.1 that plays a scenario."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import fake_gpu

from torch_doctor.facts.gpu import GpuDevice, GpuFacts, GpuProcess, NvmlStatusFacts, RemappedRows
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import gpu


def play(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    for key, value in fake_gpu.environment(path).items():
        monkeypatch.setenv(key, value)


def look(monkeypatch: pytest.MonkeyPatch, name: str, timeout: float = 30) -> GpuFacts | ProbeFailure:
    play(monkeypatch, fake_gpu.scenario(name))
    return gpu.probe(Request(python=sys.executable, timeout=timeout))


def devices(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[GpuDevice, ...]:
    facts = look(monkeypatch, name)
    assert isinstance(facts, GpuFacts), facts
    return facts.devices


def test_eight_healthy_gpus_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = look(monkeypatch, "healthy8")
    assert isinstance(facts, GpuFacts)
    assert (facts.driver_version, facts.nvml_version, facts.cuda_version) == ("580.65.06", "13.580.65.06", (13, 0))
    assert [d.index for d in facts.devices] == list(range(8))
    assert len({d.uuid for d in facts.devices}) == 8
    assert facts.devices[3] == GpuDevice(
        index=3,
        uuid="GPU-00000003-0000-4000-8000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        bus_id="00000000:04:00.0",
        compute_capability=(9, 0),
        memory_total_bytes=80 << 30,
        memory_used_bytes=512 << 20,
        mig_enabled=False,
        ecc_enabled=True,
        ecc_uncorrected=0,
        remapped_rows=RemappedRows(0, 0, pending=False, failed=False),
        clock_reasons=("gpu_idle",),
        temperature_c=41,
        performance_state=0,
        pcie_width=16,
        pcie_max_width=16,
        pcie_gen=5,
        pcie_max_gen=5,
        compute_mode="default",
        processes=(),
    )


def test_what_a_gpu_does_not_support_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = devices(monkeypatch, "sparse")
    assert device.healthy and device.name == "NVIDIA GeForce RTX 4090"
    unsupported = (
        "mig_enabled",
        "ecc_enabled",
        "ecc_uncorrected",
        "remapped_rows",
        "retired_pages_pending",
        "clock_reasons",
        "processes",
        "pcie_width",
    )
    assert [getattr(device, name) for name in unsupported] == [None] * len(unsupported)


def test_an_older_driver_answers_by_the_older_names(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = devices(monkeypatch, "old-driver")
    assert device.clock_reasons == ("hw_slowdown",)


@pytest.mark.parametrize("code", [2, 4, 13, 999])
def test_one_failing_question_is_no_lost_gpu(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fake_gpu.write_scenario(tmp_path, f"gpu.ecc_mode = error {code}"))
    facts = gpu.probe(Request(python=sys.executable))
    assert isinstance(facts, GpuFacts)
    (device,) = facts.devices
    assert device.healthy and device.ecc_enabled is None and device.compute_mode == "default"


def test_an_unknown_error_at_the_handle_is_a_gpu_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, fake_gpu.write_scenario(tmp_path, "count = 2", "gpu.0.handle = error 999"))
    facts = gpu.probe(Request(python=sys.executable))
    assert isinstance(facts, GpuFacts)
    assert [d.error_code for d in facts.devices] == [999, None]


def test_a_lost_gpu_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = devices(monkeypatch, "lost")
    assert [(d.index, d.error_code) for d in found if not d.healthy] == [(3, 15)]
    assert all(d.uuid for d in found if d.healthy)


def test_a_gpu_lost_halfway_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    found = devices(monkeypatch, "lost-later")
    assert [d.error_code for d in found] == [None, 15]


def test_memory_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = devices(monkeypatch, "ecc")
    assert [d.ecc_uncorrected for d in found] == [0, 2, 0, 0]
    assert found[2].remapped_rows == RemappedRows(0, 1, pending=True, failed=False)
    assert found[3].remapped_rows == RemappedRows(0, 8, pending=False, failed=True)


def test_pages_that_wait_to_be_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = devices(monkeypatch, "retired")
    assert (device.retired_pages_pending, device.remapped_rows) == (True, None)


def test_mig_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = devices(monkeypatch, "mig")
    assert device.mig_enabled
    assert [m.uuid[:4] for m in device.mig_instances] == ["MIG-", "MIG-"]
    assert device.mig_instances[0].memory_total_bytes == 10603200512


@pytest.mark.parametrize(
    ("name", "code"), [("mismatch", 18), ("unknown-error", 999), ("not-loaded", 9), ("no-permission", 4)]
)
def test_a_refusal_has_its_code(name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fake_gpu.scenario(name))
    request = Request(python=sys.executable)
    status, facts = gpu.status(request), gpu.probe(request)
    assert isinstance(status, NvmlStatusFacts) and isinstance(facts, ProbeFailure)
    assert status.code == code
    assert status.library == os.path.realpath(fake_gpu.libraries() / "libnvidia-ml.so.1")
    assert facts.kind is FailureKind.UNAVAILABLE and f"code {code}" in facts.reason


def test_no_gpu_is_nothing_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, "none") == ProbeFailure("NVML sees no GPU")


def test_a_library_that_cannot_be_loaded_is_told_from_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    status = gpu.status(Request(python=sys.executable))
    # a machine with a driver of its own loads that one instead, as the loader does
    assert isinstance(status, ProbeFailure) or status.code == 0


@pytest.mark.parametrize(("name", "call"), [("hang", "nvmlDeviceGetMemoryInfo, GPU 1"), ("hang-init", "nvmlInit")])
def test_a_hang_is_killed_at_the_limit_and_names_the_call(
    name: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.monotonic()
    failure = look(monkeypatch, name, timeout=1.5)
    assert time.monotonic() - start < 10
    assert isinstance(failure, ProbeFailure)
    assert (failure.kind, failure.reason) == (FailureKind.TIMEOUT, f"NVML gave no answer within 1.5 s in {call}")


def test_a_crash_names_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = look(monkeypatch, "crash")
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.SIGNAL and "SIGSEGV" in failure.reason and "nvmlInit" in failure.reason


def test_nvml_is_asked_once_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fake_gpu.scenario("healthy1"))
    request = Request(python=sys.executable)
    first = gpu.probe(request)
    monkeypatch.setenv("TORCH_DOCTOR_FAKE_GPU", str(fake_gpu.scenario("lost")))
    assert gpu.probe(request) is first
    assert gpu.probe(Request(python=sys.executable)) != first


def test_a_process_in_sight_has_name_and_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a holder that has CUDA's library mapped, as a real one has
    code = "import ctypes, sys; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); sys.stdin.read()"
    (tmp_path / "train.py").write_text(code)
    path = tmp_path / "scenario.conf"
    play(monkeypatch, path)
    command = [sys.executable, str(tmp_path / "train.py"), "--token=s3cret"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        fake_gpu.write_scenario(tmp_path, f"gpu.0.process.0 = {child.pid} 4294967296")
        facts = gpu.probe(Request(python=sys.executable))
        child.communicate("")
    assert isinstance(facts, GpuFacts)
    assert facts.devices[0].processes == (
        GpuProcess(
            child.pid,
            4 << 30,
            f"{Path(sys.executable).name} train.py",
            pwd.getpwuid(os.getuid()).pw_name,
            visible=True,
        ),
    )


def test_a_process_of_another_namespace_is_not_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    found = devices(monkeypatch, "memory-held")
    assert found[1].processes == (GpuProcess(4194303, 60 << 30),)


def test_the_same_number_here_is_not_that_process(tmp_path: Path) -> None:
    folder = tmp_path / "17"
    folder.mkdir()
    (folder / "comm").write_text("postgres\n")
    (folder / "maps").write_text("7f00-7f01 r-xp 0 0:0 0 /usr/lib/libc.so.6\n")
    assert gpu.process({"pid": 17, "used_bytes": 5}, tmp_path) == GpuProcess(17, 5)


def test_in_the_hosts_namespace_every_number_is_that_process(tmp_path: Path) -> None:
    for pid, name in ((2, "kthreadd"), (17, "Xorg")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    found = gpu.process({"pid": 17, "used_bytes": 5}, tmp_path)
    assert (found.visible, found.name) == (True, "Xorg")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["/usr/bin/python3", "-u", "/home/x/train.py", "--key", "k"], "python3 train.py"),
        (["python", "-m", "torch.distributed.run", "a.py"], "python torch.distributed.run"),
        (["python", "-c", "password = 'p'"], "python"),
        (["ray::Trainer.fit()"], "ray::Trainer.fit()"),
    ],
)
def test_a_command_is_shown_without_its_arguments(command: list[str], shown: str, tmp_path: Path) -> None:
    for pid, name in ((2, "kthreadd"), (17, "python")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(name)
    (tmp_path / "17" / "cmdline").write_text("\0".join(command) + "\0")
    assert gpu.process({"pid": 17}, tmp_path).name == shown


def test_unknown_clock_reasons_are_shown_by_number() -> None:
    assert gpu.clock_reasons(0x2001) == ("gpu_idle", "0x2000")

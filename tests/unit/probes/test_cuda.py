"""CUDA probes: cuInit through ctypes on a fake libcuda that plays a scenario, and the multiplication script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support import fake_gpu

from torch_doctor.facts.cuda import CudaDriverFacts, GpuMatmulFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import cuda, isolated


def play(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    for key, value in fake_gpu.environment(path).items():
        monkeypatch.setenv(key, value)


def start_cuda(monkeypatch: pytest.MonkeyPatch, name: str, timeout: float = 30) -> CudaDriverFacts | ProbeFailure:
    play(monkeypatch, fake_gpu.scenario(name))
    return cuda.driver(Request(python=sys.executable, timeout=timeout))


def test_cuda_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = start_cuda(monkeypatch, "healthy8")
    assert isinstance(facts, CudaDriverFacts)
    assert (facts.init_code, facts.driver_version, facts.device_count, facts.nvml_seen) == (0, (13, 0), 8, 8)
    assert facts.library == os.path.realpath(fake_gpu.libraries() / "libcuda.so.1")


@pytest.mark.parametrize("code", [100, 101, 802, 803, 804, 999])
def test_cuinit_fails_with_its_code_and_name(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = start_cuda(monkeypatch, f"cuinit-{code}")
    assert isinstance(facts, CudaDriverFacts)
    assert facts.init_code == code and facts.init_name.startswith("CUDA_ERROR_")
    assert facts.device_count is None


def test_cuinit_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = start_cuda(monkeypatch, "cuda-hang", timeout=2)
    assert isinstance(facts, CudaDriverFacts)
    assert (facts.init_code, facts.call) == (None, "cuInit(0)")
    assert "2 s" in facts.failure


def test_cuda_is_not_tried_while_a_gpu_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = start_cuda(monkeypatch, "lost")
    assert isinstance(failure, ProbeFailure)
    assert (failure.kind, failure.reason) == (
        FailureKind.UNAVAILABLE,
        "CUDA is not tried while GPU 3 does not answer NVML",
    )


def test_a_shadowed_libcuda_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compat = tmp_path / "cuda" / "compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.1").write_bytes((fake_gpu.libraries() / "libcuda.so.1").read_bytes())
    play(monkeypatch, fake_gpu.scenario("healthy1"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{compat}:{fake_gpu.libraries()}")
    facts = cuda.driver(Request(python=sys.executable))
    assert isinstance(facts, CudaDriverFacts)
    assert facts.library == os.path.realpath(compat / "libcuda.so.1")
    assert os.path.realpath(fake_gpu.libraries() / "libcuda.so.1") in facts.other_libraries


def test_torch_is_not_imported_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fake_gpu.scenario("none"))
    # an interpreter that does not exist would be named in the failure, had it been started
    request = Request(python="/nonexistent/python")
    for probe in (cuda.torch_build, cuda.matmul):
        assert probe(request) == ProbeFailure("NVML sees no GPU")


def test_the_multiplication_runs_and_is_compared() -> None:
    """The script itself on the CPU device: only the device is not the real one."""
    found = isolated.call("cuda_matmul", {"devices": ["cpu"]}, python=sys.executable, timeout=120)
    assert isinstance(found, dict), found
    facts = cuda.matmul_facts(found)
    assert [r.dtype for r in facts.results] == ["float32", "bfloat16"]
    for result in facts.results:
        assert result.error == "" and result.relative_error is not None
        assert result.relative_error < result.tolerance


def test_a_device_that_is_not_there_is_an_error_and_not_a_crash() -> None:
    found = isolated.call("cuda_matmul", {"devices": ["cuda:7"]}, python=sys.executable, timeout=120)
    assert isinstance(found, dict), found
    assert all(r.error and r.index == 7 for r in cuda.matmul_facts(found).results)


def test_forced_tf32_does_not_look_like_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    found = isolated.call("cuda_matmul", {"devices": ["cpu"]}, python=sys.executable, timeout=120)
    assert isinstance(found, dict), found
    assert cuda.matmul_facts(found).results[0].error == ""


def fake_torch(folder: Path, body: str) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(f"""
import sys, types
__version__ = "2.9.1+cu128"
version = types.SimpleNamespace(cuda="12.8", hip=None, git_version="abc")
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_90 compute_90")
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()))
float32, bfloat16 = "float32", "bfloat16"
class Generator:
    def manual_seed(self, seed): return self
class Matrix(list):
    to = double = __matmul__ = lambda self, *other: self
def randn(*size, generator): return Matrix()
multiprocessing = types.SimpleNamespace(get_sharing_strategy=lambda: "file_descriptor")
get_num_threads = get_num_interop_threads = lambda: 1
from_numpy = lambda array: types.SimpleNamespace(numpy=lambda: array)
class cuda:
    device_count = lambda: 0
    def init():
        {body}
""")


@pytest.mark.parametrize(
    ("body", "said"),
    [("import threading; threading.Event().wait()", "5 s"), ("import os; os.abort()", "SIGABRT")],
)
def test_a_multiplication_that_hangs_or_crashes_is_a_fact(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    play(monkeypatch, fake_gpu.scenario("healthy1"))
    facts = cuda.matmul(Request(python=sys.executable, timeout=5))
    assert isinstance(facts, GpuMatmulFacts), facts
    assert facts.results == () and facts.step == "torch.cuda.init" and said in facts.failure


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (
            "raise RuntimeError('The NVIDIA driver on your system is too old')",
            "RuntimeError: The NVIDIA driver on your system is too old",
        ),
        ("pass", "torch counts no GPU"),  # nothing was multiplied: that is no pass
    ],
)
def test_torch_that_finds_no_gpu_is_a_failure(
    body: str, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    play(monkeypatch, fake_gpu.scenario("healthy1"))
    facts = cuda.matmul(Request(python=sys.executable))
    assert facts == GpuMatmulFacts((), failure, "torch.cuda.init")


def test_the_builds_architectures_come_with_the_libcuda_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch(tmp_path, "pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    play(monkeypatch, fake_gpu.scenario("healthy1"))
    facts = cuda.torch_build(Request(python=sys.executable))
    assert facts == cuda.GpuTorchFacts("2.9.1+cu128", "12.8", ("sm_90", "compute_90"), (13, 0))

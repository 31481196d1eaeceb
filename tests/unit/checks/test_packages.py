"""Builds and versions that do not fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import packages as checks
from torch_doctor.facts.packages import Distribution, PackagesFacts
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import Severity

SITE = "/opt/venv/lib/python3.13/site-packages"


def dists(**versions: str) -> tuple[Distribution, ...]:
    return tuple(
        Distribution(name.replace("_", "-"), version, f"{SITE}/{name}-{version}.dist-info")
        for name, version in versions.items()
    )


CUDA13 = PackagesFacts(
    "/opt/venv/bin/python",
    "3.13.5",
    distributions=dists(
        torch="2.15.0",
        numpy="2.5.5",
        triton="3.9.0",
        cuda_toolkit="13.2.2",
        nvidia_cuda_runtime="13.2.86",
        nvidia_cuda_cccl="13.3.5.0.6",
        nvidia_cudnn_cu13="9.26.0.51",
        nvidia_nccl_cu13="2.30.7",
        nvidia_ml_py="13.615.71",
    ),
    requires={
        "torch": (
            'nvidia-cudnn-cu13==9.26.0.51; platform_system == "Linux"',
            'cuda-toolkit[cublas,cudart]==13.2.2; platform_system == "Linux"',
            'triton==3.9.0; platform_system == "Linux"',
            "sympy>=1.13.3",
        ),
        "cuda-toolkit": (
            'nvidia-cuda-runtime==13.2.*; (platform_system == "Linux") and extra == "cudart"',
            # torch does not ask for this extra, and something else brought another version
            "nvidia-cuda-cccl==13.2.86.*; extra == 'cccl'",
        ),
    },
    torch_file=f"{SITE}/torch/__init__.py",
    torch_cuda="13.2",
    gpu_devices=frozenset({"nvidia"}),
)
CPU = PackagesFacts(
    "/opt/venv/bin/python",
    "3.11.2",
    distributions=dists(torch="2.13.0+cpu", numpy="2.4.6"),
    torch_file=f"{SITE}/torch/__init__.py",
)
TORCH = TorchFacts("2.15.0", f"{SITE}/torch", "/opt/venv/bin/python", "3.13.5", cuda="13.2", numpy="2.5.5")


def add(facts: PackagesFacts, **versions: str) -> PackagesFacts:
    return replace(facts, distributions=(*facts.distributions, *dists(**versions)))


@pytest.mark.parametrize("facts", [CUDA13, CPU, PackagesFacts("python3", "3.12.1")])
def test_a_healthy_environment_has_no_finding(facts: PackagesFacts) -> None:
    for check in (
        checks.cpu_build_on_gpu_machine,
        checks.cuda_wheels_mixed,
        checks.companion_versions_differ,
        checks.pinned_versions_differ,
    ):
        assert list(check(facts)) == []
    assert list(checks.numpy_abi_mismatch(TORCH, facts)) == []


def test_a_cpu_build_beside_a_gpu() -> None:
    (finding,) = checks.cpu_build_on_gpu_machine(replace(CPU, gpu_devices=frozenset({"nvidia"})))
    assert finding.severity is Severity.ERROR
    assert finding.message == "torch 2.13.0+cpu has no GPU support, and this machine has an NVIDIA GPU"
    assert finding.remediation.commands == (
        "/opt/venv/bin/python -m pip uninstall -y torch",
        "/opt/venv/bin/python -m pip install torch==2.13.0",
    )


def test_a_rocm_build_is_a_gpu_build() -> None:
    amd = replace(CPU, torch_hip="6.4.43482", gpu_devices=frozenset({"amd"}))
    assert list(checks.cpu_build_on_gpu_machine(amd)) == []


def test_wheels_that_share_a_folder_are_an_error() -> None:
    (finding,) = checks.cuda_wheels_mixed(add(CUDA13, nvidia_cudnn_cu12="9.1.0.70", nvidia_cublas_cu12="12.8.4.1"))
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "torch is built for CUDA 13.2, and nvidia-cudnn-cu12, nvidia-cublas-cu12 belong to another version; "
        "both write into nvidia/cudnn"
    )
    assert finding.remediation.commands == (
        "/opt/venv/bin/python -m pip uninstall -y nvidia-cudnn-cu12 nvidia-cublas-cu12",
        "/opt/venv/bin/python -m pip install --force-reinstall torch==2.15.0",
    )


def test_wheels_that_only_lie_beside_are_a_warning() -> None:
    (finding,) = checks.cuda_wheels_mixed(add(CUDA13, nvidia_cublas_cu12="12.8.4.1"))
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith("nvidia-cublas-cu12 belongs to another version")


def test_cuda_13_wheels_without_a_suffix_beside_a_torch_for_12() -> None:
    old = replace(CUDA13, torch_cuda="12.8", distributions=dists(torch="2.9.1", nvidia_cuda_runtime_cu12="12.8.90"))
    assert list(checks.cuda_wheels_mixed(old)) == []
    (finding,) = checks.cuda_wheels_mixed(add(old, nvidia_cuda_runtime="13.0.96"))
    assert "nvidia-cuda-runtime belongs to another version" in finding.message


def test_a_cpu_build_has_no_cuda_to_mix() -> None:
    assert list(checks.cuda_wheels_mixed(add(CPU, nvidia_cudnn_cu12="9.1.0.70", nvidia_cudnn_cu13="9.2"))) == []


@pytest.mark.parametrize(("version", "number"), [("2.2.2", 1), ("2.3.0", 0), ("2.15.0", 0)])
def test_numpy_2_needs_torch_2_3(version: str, number: int) -> None:
    findings = list(checks.numpy_abi_mismatch(replace(TORCH, version=version), CUDA13))
    assert [f.remediation.commands for f in findings] == [("/opt/venv/bin/python -m pip install 'numpy<2'",)] * number


def test_what_numpy_says_is_shown() -> None:
    broken = replace(TORCH, numpy_error="RuntimeError: Numpy is not available")
    (finding,) = checks.numpy_abi_mismatch(broken, CUDA13)
    assert finding.message == "torch 2.15.0 cannot use NumPy 2.5.5: RuntimeError: Numpy is not available"
    assert finding.remediation.commands == ("/opt/venv/bin/python -m pip install --force-reinstall numpy",)


@pytest.mark.parametrize(
    ("torch", "vision", "pin", "message"),
    [
        ("2.9.1", "0.24.0", "torch==2.9.0", "torchvision 0.24.0 is built for torch 2.9.0; torch 2.9.1 is installed"),
        ("2.9.0+cu128", "0.24.0", "torch==2.9.0", None),
        ("2.9.0", "0.24.0+cu128", "torch (==2.9.0)", None),
        (
            "2.9.0+cu128",
            "0.24.0+cpu",
            "torch==2.9.0",
            "torchvision 0.24.0+cpu is a build for cpu; torch 2.9.0+cu128 is one for cu128",
        ),
        ("2.9.0", "0.24.0", "torch>=2", None),
    ],
)
def test_torchvision_belongs_to_one_torch(torch: str, vision: str, pin: str, message: str | None) -> None:
    facts = replace(CPU, distributions=dists(torch=torch, torchvision=vision), requires={"torchvision": (pin,)})
    assert [f.message for f in checks.companion_versions_differ(facts)] == ([message] if message else [])


def test_a_library_in_another_version_than_torch_pins() -> None:
    changed = [replace(d, version="9.1.0.70") if d.name == "nvidia-cudnn-cu13" else d for d in CUDA13.distributions]
    (finding,) = checks.pinned_versions_differ(replace(CUDA13, distributions=tuple(changed)))
    assert finding.severity is Severity.WARNING
    assert finding.message == "torch 2.15.0 pins nvidia-cudnn-cu13 9.26.0.51, installed is 9.1.0.70"
    assert finding.remediation.commands == ("/opt/venv/bin/python -m pip install nvidia-cudnn-cu13==9.26.0.51",)


def test_a_pin_with_a_star_and_one_for_another_platform() -> None:
    changed = [replace(d, version="13.1.2") if d.name == "nvidia-cuda-runtime" else d for d in CUDA13.distributions]
    (finding,) = checks.pinned_versions_differ(replace(CUDA13, distributions=tuple(changed)))
    assert "nvidia-cuda-runtime 13.2.*, installed is 13.1.2" in finding.message
    missing = replace(CUDA13, distributions=dists(torch="2.15.0"))
    assert list(checks.pinned_versions_differ(missing)) == []

"""Names, pins and versions as packaging tools write them."""

from __future__ import annotations

import pytest

from torch_doctor.facts.packages import PackagesFacts, normalised, release, satisfies


@pytest.mark.parametrize(
    ("version", "pin", "expected"),
    [
        ("2.9.1", "2.9.1", True),
        ("2.9.1+cu128", "2.9.1", True),
        ("2.9.1+cu128", "2.9.1+cu128", True),
        ("2.9.1+cpu", "2.9.1+cu128", False),
        ("2.9.1", "2.9.1+cu128", False),
        ("13.2.86", "13.2.*", True),
        ("13.20.1", "13.2.*", False),
        ("13.2", "13.2.*", True),
        ("2.9", "2.9.0", True),
        ("2.9.1", "2.9", False),
        ("2.9.0rc1", "2.9.0", False),
        ("9.1.0.70", "9.26.0.51", False),
    ],
)
def test_a_version_meets_a_pin(version: str, pin: str, expected: bool) -> None:
    assert satisfies(version, pin) is expected


@pytest.mark.parametrize(
    ("requirement", "pin"),
    [
        ('nvidia-cublas-cu12==12.8.4.1; platform_system == "Linux"', ("nvidia-cublas-cu12", "12.8.4.1")),
        ("cuda-toolkit[cublas,cudart]==13.2.2", ("cuda-toolkit", "13.2.2")),
        ("torch (==2.9.0)", ("torch", "2.9.0")),
        ("Nvidia_CUDA.Runtime == 13.2.*", ("nvidia-cuda-runtime", "13.2.*")),
        ("sympy>=1.13.3", None),
        ("numpy", None),
        ("jinja2 ; python_version == '3.9'", None),
    ],
)
def test_pins_are_read_from_requirements(requirement: str, pin: tuple[str, str] | None) -> None:
    facts = PackagesFacts("python3", "3.12", requires={"torch": (requirement,)})
    assert list(facts.pins("torch")) == ([pin] if pin else [])


def test_names_are_normalised() -> None:
    assert normalised("Nvidia_CUDA.runtime--cu12") == "nvidia-cuda-runtime-cu12"


def test_release() -> None:
    assert (release("2.9.1rc1+cu128"), release("unknown")) == ((2, 9, 1), ())

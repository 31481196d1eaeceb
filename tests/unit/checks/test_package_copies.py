"""Copies that hide each other, and what has changed since the image was built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import package_copies as checks
from torch_doctor.facts.packages import Distribution, Manifest, PackagesFacts, Shadow
from torch_doctor.model import Severity

SITE, USER = "/opt/venv/lib/python3.13/site-packages", "/home/u/.local/lib/python3.13/site-packages"
TORCH = Distribution("torch", "2.15.0", f"{SITE}/torch-2.15.0.dist-info")
NUMPY = Distribution("numpy", "2.5.5", f"{SITE}/numpy-2.5.5.dist-info")
MANIFEST = Manifest("/m.json", "cuda", "2.15.0", {"torch": "2.15.0", "numpy": "2.5.5"})
GOOD = PackagesFacts("/opt/venv/bin/python", "3.13.5", distributions=(TORCH, NUMPY), manifest=MANIFEST)
ALL = (
    checks.cuda_libraries_hidden,
    checks.torch_installed_twice,
    checks.install_interrupted,
    checks.differs_from_image,
    checks.module_hidden_by_file,
)


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        replace(GOOD, manifest=None),
        # one that was added is no fault; nor is the system's NumPy behind another
        replace(GOOD, distributions=(TORCH, NUMPY, Distribution("wandb", "1", SITE))),
        replace(
            GOOD, distributions=(TORCH, NUMPY, Distribution("numpy", "1.24", "/usr/lib/python3/dist-packages/n"))
        ),
    ],
)
def test_a_healthy_environment_has_no_finding(facts: PackagesFacts) -> None:
    assert [finding for check in ALL for finding in check(facts)] == []


def test_two_copies_of_torch() -> None:
    own = Distribution("torch", "2.9.1", f"{USER}/torch-2.9.1.dist-info")
    (finding,) = checks.torch_installed_twice(replace(GOOD, distributions=(own, TORCH), user_site=USER))
    assert finding.message == (f"torch is installed 2 times; 2.9.1 in {USER} is what runs, before 2.15.0 in {SITE}")
    assert finding.remediation.commands == (
        "/opt/venv/bin/python -m pip uninstall -y torch",
        "export PYTHONNOUSERSITE=1",
    )


def test_two_versions_in_one_folder() -> None:
    old = Distribution("torch", "2.9.1", f"{SITE}/torch-2.9.1.dist-info")
    assert len(list(checks.torch_installed_twice(replace(GOOD, distributions=(TORCH, old))))) == 1


def test_leftovers_of_an_install() -> None:
    (finding,) = checks.install_interrupted(
        replace(GOOD, leftovers=(f"{SITE}/~orch", f"{SITE}/~orch-2.9.1.dist-info"))
    )
    assert finding.message.startswith("2 folders of an interrupted install: ")
    assert finding.remediation.commands == (f"rm -rf -- '{SITE}/~orch' '{SITE}/~orch-2.9.1.dist-info'",)


@pytest.mark.parametrize(
    ("changed", "severity", "text"),
    [
        ("torch", Severity.WARNING, "torch 9.9 (built with 2.15.0)"),
        ("numpy", Severity.NOTE, "numpy 9.9 (built with 2.5.5)"),
    ],
)
def test_changes_since_the_image_was_built(changed: str, severity: Severity, text: str) -> None:
    now = tuple(replace(d, version="9.9") if d.name == changed else d for d in GOOD.distributions)
    (finding,) = checks.differs_from_image(replace(GOOD, distributions=now))
    assert (finding.severity, finding.message) == (severity, f"changed since the image was built: {text}")


def test_a_package_that_is_gone() -> None:
    (finding,) = checks.differs_from_image(replace(GOOD, distributions=(TORCH,)))
    assert "numpy not installed (built with 2.5.5)" in finding.message


def test_libraries_on_ld_library_path() -> None:
    names = ("libcudnn.so.9", "libcublas.so.12", "libcudart.so.12", "libnvJitLink.so.12")
    hidden = tuple(Shadow(n, f"/usr/local/cuda/lib64/{n}", f"{SITE}/nvidia/x/lib/{n}") for n in names)
    (finding,) = checks.cuda_libraries_hidden(replace(GOOD, libraries=hidden))
    assert finding.message == (
        "LD_LIBRARY_PATH hides libraries of torch: libcublas.so.12, libcudart.so.12, libcudnn.so.9 and 1 more "
        "in /usr/local/cuda/lib64"
    )
    assert finding.remediation.commands == ("unset LD_LIBRARY_PATH",)


@pytest.mark.parametrize(
    ("script", "path", "severity", "command"),
    [
        (True, "/work/torch.py", Severity.ERROR, "mv /work/torch.py /work/torch_.py"),
        (False, "/work/torch/__init__.py", Severity.WARNING, "mv /work/torch /work/torch_"),
    ],
)
def test_a_file_beside_the_script(script: bool, path: str, severity: Severity, command: str) -> None:
    (finding,) = checks.module_hidden_by_file(replace(GOOD, script=script, shadows=(Shadow("torch", path),)))
    assert finding.severity is severity
    assert finding.message == f"{path} hides the module torch from a script in that folder"
    assert finding.remediation.commands == (command,)

"""The package probe on real virtual environments, and folders laid out like broken ones."""

from __future__ import annotations

import json
import os
import sys
import venv
from pathlib import Path

import pytest

from torch_doctor.facts.packages import Manifest, PackagesFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import packages


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture
def site(environment: Path) -> Path:
    """The site folder of a virtual environment, empty."""
    (found,) = environment.glob("lib/python*/site-packages")
    return found


def install(folder: Path, name: str, version: str, *requires: str, files: dict[str, str] | None = None) -> None:
    """Lay a distribution out as pip does."""
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: not-this-one\n")
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def probe(environment: Path, script: Path | None = None) -> PackagesFacts:
    request = Request(script=script, python=str(environment / "bin/python"), timeout=60)
    found = packages.probe(request, Path("/nonexistent/manifest.json"))
    assert isinstance(found, PackagesFacts)
    return found


def test_the_torch_of_these_tests() -> None:
    import numpy
    import torch

    found = packages.probe(Request(python=sys.executable, timeout=60), Path("/nonexistent"))
    assert isinstance(found, PackagesFacts)
    installed = found.find("torch")
    assert installed is not None
    assert installed.version == torch.__version__
    assert (found.torch_file, found.torch_cuda) == (torch.__file__, torch.version.cuda)
    assert (found.find("numpy") or installed).version == numpy.__version__
    assert "sympy>=1.13.3" in found.requires["torch"]
    assert (found.libraries, found.leftovers) == ((), ())


def test_everything_is_read_without_an_import(environment: Path, site: Path, tmp_path: Path) -> None:
    build = "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    install(
        site,
        "torch",
        "2.9.1+cu128",
        'nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"',
        files={"torch/__init__.py": "raise SystemExit('imported')", "torch/version.py": build},
    )
    install(site, "nvidia_cudnn_cu12", "9.10.2.21", files={"nvidia/cudnn/lib/libcudnn.so.9": "wheel"})
    (site / "~orch").mkdir()
    own = tmp_path / "own"
    install(own, "torch", "2.13.0", files={"torch/__init__.py": ""})
    system = tmp_path / "cuda"
    system.mkdir()
    (system / "libcudnn.so.9").write_text("other")
    (system / "libcublas.so.12").write_text("not in the wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", f":{system}:{site}/nvidia/cudnn/lib")
        found = probe(environment)
        patch.setenv("PYTHONPATH", str(own))
        shadowed = probe(environment)
    assert found.torch_cuda == "12.8" and found.torch_hip is None
    assert list(found.pins("torch")) == [("nvidia-cudnn-cu12", "9.10.2.21")]
    assert found.leftovers == (str(site / "~orch"),)
    assert [(lib.name, lib.path) for lib in found.libraries] == [("libcudnn.so.9", str(system / "libcudnn.so.9"))]
    assert [d.version for d in shadowed.all("torch")] == ["2.13.0", "2.9.1+cu128"]
    assert shadowed.torch_file == str(own / "torch/__init__.py")


def test_files_beside_the_script(environment: Path, tmp_path: Path) -> None:
    for name in ("train.py", "torch.py", "utils.py"):
        (tmp_path / name).touch()
    (tmp_path / "random").mkdir()
    (tmp_path / "random" / "__init__.py").touch()
    (tmp_path / "numpy").mkdir()  # no package: the installed one is taken
    (tmp_path / f"{sys.builtin_module_names[0]}.py").touch()  # never looked for in a folder
    (tmp_path / "datasets").mkdir()  # a project's own, as many have
    (tmp_path / "datasets" / "__init__.py").touch()
    found = probe(environment, tmp_path / "train.py")
    assert [(s.name, s.path) for s in found.shadows] == [
        ("torch", str(tmp_path / "torch.py")),
        ("random", str(tmp_path / "random/__init__.py")),
    ]
    assert found.script


def test_an_interpreter_that_is_not_there() -> None:
    failure = packages.probe(Request(python="/nonexistent/python"))
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.UNAVAILABLE


def test_the_manifest_of_an_image(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(
        json.dumps({"variant": "cpu", "torch": "2.13.0+cpu", "packages": {"Typing_Extensions": "4.16.0"}})
    )
    assert packages.read_manifest(path) == Manifest(str(path), "cpu", "2.13.0+cpu", {"typing-extensions": "4.16.0"})


def test_the_manifest_is_of_the_images_own_environment(environment: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"packages": {"torch": "2.13.0+cpu"}}))
    own = packages.probe(Request(python=sys.executable, timeout=60), path)
    other = packages.probe(Request(python=str(environment / "bin/python"), timeout=60), path)
    assert isinstance(own, PackagesFacts) and isinstance(other, PackagesFacts)
    assert (own.manifest is not None, other.manifest) == (True, None)


def test_one_folder_under_two_names_is_one(environment: Path, tmp_path: Path) -> None:
    install(tmp_path / "lib", "torch", "2.9.1", files={"torch/__init__.py": ""})
    (tmp_path / "lib64").symlink_to("lib")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}/lib64:{tmp_path}/lib")
        found = probe(environment)
    assert len([d for d in found.all("torch") if d.folder.startswith(str(tmp_path))]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"packages": 1}'])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert packages.read_manifest(tmp_path / "manifest.json") is None


def test_the_users_own_site_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(os.path.realpath(sys.executable))
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    folder = tmp_path / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    install(folder, "torch", "1.0.0", files={"torch/__init__.py": ""})
    found = packages.probe(Request(python=str(base), timeout=60))
    assert isinstance(found, PackagesFacts)
    assert found.user_site == str(folder)

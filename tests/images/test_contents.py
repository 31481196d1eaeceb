"""What is installed is what the table, the labels, the manifest and the SBOM say."""

from __future__ import annotations

import json
import shlex
from typing import Any

from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from support import containers


def facts_inside(host: Any) -> dict[str, str]:
    script = (
        "import json, platform, torch; "
        "from importlib.metadata import version; "
        "print(json.dumps({'torch': torch.__version__, 'wheel': version('torch'), 'cuda': torch.version.cuda or '', "
        "'python': platform.python_version(), 'doctor': version('torch-doctor')}))"
    )
    return dict(json.loads(host.check_output(f"python -c {shlex.quote(script)}")))


def test_the_row_of_the_table_is_what_is_installed(host: Any, row: dict[str, str]) -> None:
    inside = facts_inside(host)
    assert inside["wheel"] == row["TORCH_VERSION"]
    assert inside["cuda"] == row["TORCH_CUDA"]
    assert inside["python"].startswith(row["PYTHON_VERSION"] + ".")
    assert host.system_info.codename == row["DEBIAN_RELEASE"]


def test_the_labels_are_true(host: Any, config: dict[str, Any], row: dict[str, str]) -> None:
    inside = facts_inside(host)
    labels = {key: value for key, value in config["Labels"].items() if not key.endswith(".inputs")}
    assert labels == {
        "org.opencontainers.image.title": "torch-doctor",
        "org.opencontainers.image.description": "PyTorch training image with a preflight doctor",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": inside["doctor"],
        "org.torch-doctor.variant": row["VARIANT"],
        "org.torch-doctor.torch": inside["wheel"],
        "org.torch-doctor.cuda": inside["cuda"],
        "org.torch-doctor.python": ".".join(inside["python"].split(".")[:2]),
        "org.torch-doctor.debian": host.system_info.codename,
        "org.torch-doctor.minimum-driver": row["MINIMUM_DRIVER"],
    }


def test_the_manifest_is_what_is_installed(host: Any, manifest: dict[str, Any], row: dict[str, str]) -> None:
    inside = facts_inside(host)
    listing = host.check_output("uv pip list --format json --python /opt/venv")
    assert manifest == {
        "schema_version": 1,
        "variant": row["VARIANT"],
        "doctor": inside["doctor"],
        "torch": inside["torch"],
        "cuda": inside["cuda"],
        "python": inside["python"],
        "debian": host.system_info.codename,
        "minimum_driver": row["MINIMUM_DRIVER"],
        "packages": {package["name"]: package["version"] for package in json.loads(listing)},
    }


def test_the_sbom_is_cyclonedx_and_names_every_package(host: Any, manifest: dict[str, Any]) -> None:
    text = host.file(f"{containers.SHARE}/sbom.cdx.json").content_string
    assert make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6).validate_str(text) is None
    components = json.loads(text)["components"]
    python = {part["name"]: part["version"] for part in components if part["purl"].startswith("pkg:pypi/")}
    debian = {part["name"]: part["version"] for part in components if part["purl"].startswith("pkg:deb/debian/")}
    listing = host.check_output("dpkg-query -W -f '${Package} ${Version}\\n'")
    assert python == manifest["packages"]
    assert debian == dict(line.split() for line in listing.splitlines())


def test_every_requirement_is_locked_with_hashes(variant: str) -> None:
    lock = (containers.ROOT / "images" / variant / "requirements.lock").read_text(encoding="utf-8")
    entries = lock.replace("\\\n", "").splitlines()
    assert len(entries) > 20
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_no_cuda_comes_from_anywhere_but_the_wheels(host: Any) -> None:
    names = "-name 'libcud*.so*' -o -name 'libcublas*.so*' -o -name 'libnvrtc*' -o -name 'cuda-*'"
    found = host.check_output(f"find / -xdev -not -path '/proc/*' \\( {names} \\) -print 2>/dev/null || :")
    assert [path for path in found.splitlines() if not path.startswith("/opt/venv/")] == []


def test_the_gpu_runtime_is_asked_for_what_the_variant_needs(config: dict[str, Any], row: dict[str, str]) -> None:
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environment["NVIDIA_REQUIRE_CUDA"] == row["REQUIRE_CUDA"]


def test_the_default_variant_is_latest() -> None:
    if "cuda" in containers.variants():
        ids = [
            containers.docker("image", "inspect", "--format", "{{.Id}}", name).stdout
            for name in ("torch-doctor:cuda", "torch-doctor:latest")
        ]
        assert ids[0] == ids[1]

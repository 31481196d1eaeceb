"""Writes what the image says about itself; runs in the build, with the doctor installed.

    manifest.json     variant, versions, minimum driver, every Python package: what `check` compares with
    sbom.cdx.json     CycloneDX 1.6: every Debian and Python package
    constraints.txt   keeps pip and uv from replacing torch and the CUDA libraries it was built for
    subcommands       the command line's own names, one a line, for the entrypoint

The arguments of the build (VARIANT, TORCH_VERSION, ...) come in the environment; what is installed is
compared with them, so that labels made from the same arguments are true.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import runpy
import subprocess
import sys
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: a later `pip install` that wants another of these fails instead of replacing it silently
HELD = re.compile(r"torch|triton|nvidia-.*|cuda-.*")


def normal(name: str) -> str:
    """The package name as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(site: Path) -> dict[str, Distribution]:
    found = {normal(dist.metadata["Name"]): dist for dist in distributions(path=[str(site)])}
    return dict(sorted(found.items()))


def torch_versions(layers: Path) -> tuple[str, str]:
    """Returns (version, CUDA version or "") as torch's own version.py says; torch is not imported."""
    (path,) = layers.glob("torch/opt/venv/lib/python*/site-packages/torch/version.py")
    values = runpy.run_path(str(path))
    return str(values["__version__"]), str(values["cuda"] or "")


def manifest(packages: dict[str, Distribution], torch: str, cuda: str) -> dict[str, Any]:
    """Raises SystemExit where what is installed is not what the build was asked for."""
    python = platform.python_version()
    wanted = (os.environ["TORCH_VERSION"], os.environ["TORCH_CUDA"], os.environ["PYTHON_VERSION"])
    # torch names its CUDA in a local version ("2.15.0+cu132") where the wheel's metadata does not
    got = (packages["torch"].version, cuda, ".".join(python.split(".")[:2]))
    if wanted != got:
        sys.exit(f"describe.py: asked for torch, CUDA, Python {wanted}, installed {got}")
    return {
        "schema_version": 1,
        "variant": os.environ["VARIANT"],
        "doctor": packages["torch-doctor"].version,
        "torch": torch,
        "cuda": cuda,
        "python": python,
        "debian": os.environ["DEBIAN_RELEASE"],
        "minimum_driver": os.environ["MINIMUM_DRIVER"],
        "packages": {name: dist.version for name, dist in packages.items()},
    }


def debian_packages(admindir: Path) -> list[tuple[str, str, str]]:
    listing = subprocess.run(
        ["dpkg-query", f"--admindir={admindir}", "-W", "-f", "${Package} ${Version} ${Architecture}\n"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return sorted((name, version, arch) for name, version, arch in map(str.split, listing.splitlines()))


def python_component(name: str, dist: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{quote(dist.version, safe='')}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": dist.version, "purl": purl}
    licence = dist.metadata.get("License-Expression")
    return component | ({"licenses": [{"expression": licence}]} if licence else {})


def debian_component(name: str, version: str, arch: str, release: str) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={arch}&distro={release}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def sbom(facts: dict[str, Any], components: list[dict[str, Any]]) -> dict[str, Any]:
    """A CycloneDX 1.6 document; its serial number is made from its content, so equal images have equal ones."""
    digest = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    epoch = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), tz=timezone.utc)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{digest}",
        "version": 1,
        "metadata": {
            "timestamp": epoch.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": f"torch-doctor:{facts['variant']}",
                "version": facts["doctor"],
            },
        },
        "components": components,
    }


def subcommands() -> list[str]:
    from torch_doctor.cli.command import COMMANDS

    return sorted(COMMANDS)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--site", "--layers", "--dpkg", "--output"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    packages = installed(args.site)
    facts = manifest(packages, *torch_versions(args.layers))
    components = [debian_component(*package, facts["debian"]) for package in debian_packages(args.dpkg)]
    components += [python_component(name, dist) for name, dist in packages.items()]
    write_lines(args.output / "manifest.json", [json.dumps(facts, indent=2)])
    write_lines(args.output / "sbom.cdx.json", [json.dumps(sbom(facts, components), separators=(",", ":"))])
    held = [f"{name}=={version}" for name, version in facts["packages"].items() if HELD.fullmatch(name)]
    write_lines(args.output / "constraints.txt", held)
    write_lines(args.output / "subcommands", subcommands())


if __name__ == "__main__":
    main()

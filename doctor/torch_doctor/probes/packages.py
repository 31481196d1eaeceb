"""Looks at the packages of the user's interpreter, in a child process that imports none of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePath
from typing import Any

from torch_doctor.facts.packages import Distribution, Manifest, PackagesFacts, Shadow, normalised
from torch_doctor.facts.request import Request
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import isolated

MANIFEST = Path("/usr/local/share/torch-doctor/manifest.json")

#: modules that torch's import, or a loader's start, reaches: a file of that name beside the script is taken instead.
#: Not datasets or transformers: many projects have a package of that name of their own, on purpose
MODULES = (
    *("torch", "torchvision", "torchaudio", "numpy", "triton", "h5py"),
    *("random", "typing", "types", "copy", "queue", "logging", "inspect", "platform", "tempfile", "subprocess"),
    *("warnings", "dataclasses", "enum", "functools", "threading", "socket", "glob", "pickle", "struct", "weakref"),
    *("collections", "numbers", "operator", "contextlib", "string", "secrets", "select", "selectors", "signal"),
    *("statistics", "token", "tokenize", "ast", "dis", "linecache", "traceback", "textwrap", "uuid", "zipfile"),
    *("json", "csv", "calendar", "datetime", "decimal", "fractions", "hashlib", "html", "http", "email"),
    *("multiprocessing", "concurrent", "asyncio", "unittest", "cProfile", "pstats", "timeit", "heapq"),
    *("bisect", "shutil", "pathlib", "ctypes", "sysconfig", "math", "re", "pprint", "base64"),
)

_DEVICES = {"nvidia": ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"), "amd": ("/dev/kfd",)}


def probe(request: Request, manifest: Path = MANIFEST) -> PackagesFacts | ProbeFailure:
    """What is installed for ``request.python``, and what the image's manifest says should be."""
    folder = request.script.parent if request.script else Path()
    found = isolated.call(
        "packages_info",
        {"script_folder": str(folder.absolute()), "modules": MODULES},
        python=request.python,
        timeout=request.timeout,
    )
    if isinstance(found, ProbeFailure):
        return found
    # the manifest tells of the image's own environment: another one, made in the container, is not that
    own = any(PurePath(folder).is_relative_to(sys.prefix) for folder in found["path"])
    return facts(found, read_manifest(manifest) if own else None, request.script is not None)


def facts(found: dict[str, Any], manifest: Manifest | None, script: bool) -> PackagesFacts:
    """PackagesFacts from what the child wrote."""
    present = {kind for kind, devices in _DEVICES.items() if any(Path(device).exists() for device in devices)}
    return PackagesFacts(
        **{
            **found,
            "path": tuple(found["path"]),
            "distributions": tuple(Distribution(*item) for item in found["distributions"]),
            "requires": {name: tuple(lines) for name, lines in found["requires"].items()},
            "leftovers": tuple(found["leftovers"]),
            "shadows": tuple(Shadow(*item) for item in found["shadows"]),
            "libraries": tuple(Shadow(*item) for item in found["libraries"]),
        },
        gpu_devices=frozenset(present),
        manifest=manifest,
        script=script,
    )


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of our image; None where there is none, or it cannot be read."""
    try:
        data = json.loads(path.read_text())
        packages = {normalised(name): str(version) for name, version in data["packages"].items()}
        return Manifest(str(path), str(data.get("variant", "")), str(data.get("torch", "")), packages)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


PROBES = {PackagesFacts: probe}

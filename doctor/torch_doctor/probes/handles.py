"""Tries locks and h5py in a child process, in the folders that hold the training data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch_doctor.facts.filesystem import NETWORK_KINDS
from torch_doctor.facts.handles import DataFolder, DataFolderFacts, H5pyFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import isolated, mounts
from torch_doctor.probes.once import once

MOST_FOLDERS = 4


@once
def session(request: Request) -> dict[str, Any] | ProbeFailure:
    """What the child process found, with the folders that it was asked about."""
    wanted = folders(request)
    payload = {
        "folders": [{"path": path, "file": file} for path, file, _ in wanted],
        "swmr": request.deep or "swmr" in request.requirements.uses,
    }
    found = isolated.call("handles", payload, python=request.python, timeout=request.timeout)
    return found if isinstance(found, ProbeFailure) else {**found, "wanted": wanted}


def folders(request: Request) -> list[tuple[str, str, str]]:
    """Folder, file of the run in it (or empty), and what names it; the working folder where nothing does."""
    if request.data is not None:
        return [(*_split(request.data), f"--data {request.data}")]
    found: dict[str, tuple[str, str, str]] = {}
    for named in request.requirements.data_paths:
        path = _resolve(named, request.script)
        if path is not None:
            folder, file = _split(path)
            found.setdefault(folder, (folder, file, named))
    if not found:
        return [(str(Path.cwd()), "", "")]
    return list(found.values())[:MOST_FOLDERS]


def _resolve(named: str, script: Path | None) -> Path | None:
    """A path of the script: from the working folder, as the run would see it, else from the script's own."""
    path = Path(os.path.expandvars(named)).expanduser()
    bases = [Path.cwd(), *([script.resolve().parent] if script is not None else [])]
    for base in bases:
        candidate = base / path
        if candidate.exists():
            return candidate
    parents = (base / path.parent for base in bases)
    return next((parent for parent in parents if parent.is_dir()), None)


def _split(path: Path) -> tuple[str, str]:
    """A folder and the file in it; an LMDB or zarr store is a folder and stands for itself."""
    absolute = path.absolute()
    return (str(absolute), "") if absolute.is_dir() else (str(absolute.parent), str(absolute))


def h5py(request: Request) -> H5pyFacts | ProbeFailure:
    """Versions of h5py and of its HDF5.

    Returns:
        ProbeFailure(UNAVAILABLE) where it is not installed, ProbeFailure(ERROR) where its import raises.
    """
    found = session(request)
    if isinstance(found, ProbeFailure):
        return found
    seen = found["h5py"]
    evidence = {"python": seen["python"], "error": seen["error"]}
    if seen["missing"]:
        return ProbeFailure(f"h5py is not installed for {seen['python']}", evidence=evidence)
    if seen["error"]:
        return ProbeFailure(f"import h5py fails: {seen['error']}", FailureKind.ERROR, evidence)
    return H5pyFacts(seen["version"], seen["hdf5"], seen["hdf5_built"], seen["python"])


def data_folders(request: Request) -> DataFolderFacts | ProbeFailure:
    """What locks and h5py did in each folder."""
    found = session(request)
    if isinstance(found, ProbeFailure):
        return found
    table = mounts.read()
    results = [
        _folder(path, named, seen, table)
        for (path, _, named), seen in zip(found["wanted"], found["folders"], strict=True)
    ]
    named = any(folder.named_by for folder in results)
    if not named and not any(folder.was_looked_at for folder in results):
        return ProbeFailure(f"nothing can be written to {results[0].path}, and it holds no file to try")
    return DataFolderFacts(tuple(results), os.environ.get("HDF5_USE_FILE_LOCKING", ""))


def _folder(path: str, named: str, seen: dict[str, Any], table: tuple[mounts.Mount, ...]) -> DataFolder:
    mount = mounts.of(os.path.realpath(path), table)
    kind = mount.kind if mount else ""
    return DataFolder(path, named, kind, kind in NETWORK_KINDS, **seen)


PROBES = {H5pyFacts: h5py, DataFolderFacts: data_folders}

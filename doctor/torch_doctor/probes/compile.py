"""Looks for what torch.compile needs; with ``--deep`` compiles for real."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from torch_doctor.facts.compile import CacheFolder, CompileFacts, Compiler, CompileRun, DeepCompileFacts
from torch_doctor.facts.filesystem import Place
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import container, filesystem, isolated
from torch_doctor.probes import torch as torch_probe

#: a first compile takes 5 to 40 s where the compiler is not in the page cache: more than other probes
DEEP_FACTOR = 5
OS_RELEASE = Path("/etc/os-release")


def probe(request: Request) -> CompileFacts | ProbeFailure:
    """Compilers, headers, caches, triton and libcuda, as the user's interpreter finds them."""
    # a compiler that is not in the page cache yet may take its whole limit; the rest takes a moment
    payload = {"limit_s": request.timeout}
    found = isolated.call("compile_env", payload, python=request.python, timeout=2 * request.timeout)
    if isinstance(found, ProbeFailure):
        return found
    folders = [_folder(item, found) for item in found.pop("caches")]
    placed = filesystem.look([folder.place for folder in folders], request.timeout)
    if isinstance(placed, ProbeFailure):
        return placed
    return CompileFacts(
        **{
            **found,
            "c": Compiler(**found["c"]),
            "cxx": Compiler(**found["cxx"]),
            "libcuda": tuple(found["libcuda"]),
            "libcuda_elsewhere": tuple(found["libcuda_elsewhere"]),
        },
        caches=tuple(dataclasses.replace(f, place=p) for f, p in zip(folders, placed, strict=True)),
        system=os_release(OS_RELEASE),
        is_root=os.geteuid() == 0,
        uid=os.geteuid(),
        manager=container.manager(),
    )


def _folder(item: dict[str, Any], found: dict[str, Any]) -> CacheFolder:
    return CacheFolder(
        item["name"],
        Place("compile-cache", item["path"], item["variable"]),
        item["variable"],
        made_by(item, found["triton"], found["torch_version"]),
        item["foreign_uid"],
    )


def made_by(item: dict[str, Any], triton: str | None, torch: str) -> tuple[str, ...]:
    """What made the entries of a cache, where that is not this installation."""
    others: list[str] = []
    if triton is not None:
        own = triton.split("+")[0]
        others += [f"triton {v}" for v in sorted(item["triton_versions"]) if v.split("+")[0] != own]
    marker = item["marker"] if isinstance(item["marker"], dict) else {}
    if torch and marker.get("torch") not in (None, torch):
        others.append(f"torch {marker['torch']}")
    driver = driver_version()
    if driver and marker.get("driver") not in (None, "", driver):
        others.append(f"driver {marker['driver']}")
    return tuple(others)


def driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The loaded NVIDIA kernel module's version; empty without one."""
    try:
        words = path.read_text().split()
    except OSError:
        return ""
    return next((w for w in words if w[0].isdigit() and w.count(".") in (1, 2)), "")


def os_release(path: Path) -> str:
    """ID and ID_LIKE, ``ubuntu debian``; empty where there is no os-release."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return " ".join(values.get(key, "").strip("\"'") for key in ("ID", "ID_LIKE")).strip()


def deep(request: Request) -> DeepCompileFacts | ProbeFailure:
    """A real torch.compile on the CPU and, where torch sees one, on a GPU."""
    if not request.deep:
        return ProbeFailure("a real compile takes long: it runs with --deep")
    torch_probe.session(request)  # not beside the loaders: both would only be slower
    limit = request.timeout * DEEP_FACTOR
    found = isolated.call("compile_run", {}, python=request.python, timeout=limit)
    if isinstance(found, ProbeFailure):
        if found.kind is FailureKind.UNAVAILABLE:
            return found
        return DeepCompileFacts((CompileRun("cpu", False, error=found.reason),))
    if "skipped" in found:
        return ProbeFailure(found["skipped"])
    runs = tuple(CompileRun(**{**run, "traceback_tail": tuple(run["traceback_tail"])}) for run in found["runs"])
    return DeepCompileFacts(runs)


PROBES = {CompileFacts: probe, DeepCompileFacts: deep}

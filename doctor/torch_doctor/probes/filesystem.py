"""Looks at the folders that a run uses; only a child process touches them."""

from __future__ import annotations

import dataclasses
import os
import pwd
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch_doctor.facts.filesystem import FsFacts, Place
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import container, isolated, mounts

#: variable -> role. Without the variable the cache is below the home, which is looked at anyway.
CACHES = {
    "XDG_CACHE_HOME": "cache",
    "HF_HOME": "cache",
    "HF_HUB_CACHE": "cache",
    "HF_DATASETS_CACHE": "cache",
    "TORCH_HOME": "cache",
    "MPLCONFIGDIR": "cache",
    "NUMBA_CACHE_DIR": "cache",
    "CUDA_CACHE_PATH": "cache",
    "TORCH_EXTENSIONS_DIR": "cache",
    "WANDB_DIR": "cache",
    "WANDB_CACHE_DIR": "cache",
    "TORCHINDUCTOR_CACHE_DIR": "compile-cache",
    "TRITON_CACHE_DIR": "compile-cache",
}


def probe(request: Request, environment: Mapping[str, str] = os.environ) -> FsFacts | ProbeFailure:
    """The folders that this run would use, and what can be done in them."""
    looked_at = look(list(wanted(request.requirements, environment)), request.timeout)
    if isinstance(looked_at, ProbeFailure):
        return looked_at
    # what getpass.getuser() asks, in its order
    named_by = next((key for key in ("LOGNAME", "USER", "LNAME", "USERNAME") if environment.get(key)), "")
    return FsFacts(
        tuple(looked_at),
        uid=os.geteuid(),
        gid=os.getegid(),
        has_name=bool(_entry()),
        named_by=named_by,
        home_set="HOME" in environment,
        file_size_bytes=_file_size_limit(),
        needed_bytes=request.requirements.disk_bytes,
        manager=container.manager(environment),
    )


def look(places: list[Place], timeout: float) -> list[Place] | ProbeFailure:
    """The same places, with what a child process found out about each; one that hangs costs half the limit."""
    table = mounts.read()
    payload = {
        "places": [{"role": place.role, "path": place.path} for place in places],
        "slow": [index for index, place in enumerate(places) if mounts.can_hang(place.path, table)],
        "limit_s": timeout / 2,
    }
    found = isolated.call("places", payload, python=sys.executable, timeout=timeout, flags=isolated.ALONE)
    if isinstance(found, ProbeFailure):
        return found
    return [_filled(place, seen, table) for place, seen in zip(places, found["places"], strict=True)]


def _filled(place: Place, seen: dict[str, Any], table: tuple[mounts.Mount, ...]) -> Place:
    nearest = seen.get("nearest") or place.path
    mount = mounts.of(seen.pop("real", nearest), table)
    if mount is not None:
        seen = {**seen, "kind": mount.kind, "mount_point": mount.point, "mount_root": mount.root}
    return dataclasses.replace(place, **{**seen, "nearest": nearest})


def wanted(needs: Requirements, environment: Mapping[str, str]) -> Iterator[Place]:
    """The places to look at: absolute paths, each once."""
    yield Place("workspace", str(Path.cwd()))
    home = environment.get("HOME", "") or _home()
    if home:
        yield Place("home", home, "HOME" if "HOME" in environment else "")
    yield Place("tmp", environment.get("TMPDIR") or "/tmp", "TMPDIR" if environment.get("TMPDIR") else "")
    for variable, role in CACHES.items():
        if environment.get(variable):
            yield Place(role, _absolute(environment[variable], home), variable)
    yield from (Place("checkpoints", _absolute(path, home)) for path in dict.fromkeys(needs.checkpoint_paths))
    yield from (Place("data", _absolute(path, home)) for path in dict.fromkeys(needs.data_paths))


def _absolute(path: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    # links are not followed: that could hang, and a report names what the user named
    return os.path.abspath(path)  # noqa: PTH100


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:
        return None


def _home() -> str:
    entry = _entry()
    return entry.pw_dir if entry else ""


def _file_size_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


PROBES = {FsFacts: probe}

"""Runs each needed probe once, concurrently. The only module that imports probes."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, Notification, ProbeFailure

if TYPE_CHECKING:
    from torch_doctor.facts.requirements import Requirements
    from torch_doctor.facts.script import Script  # with the syntax tree: 4 ms that `explain` does without

Probe = Callable[[Request], Any]


def needed(checks: Iterable[Any]) -> set[type]:
    """The facts types that the checks need together."""
    return {need for item in checks for need in item.needs}


def take(needs: Iterable[type], request: Request) -> dict[type, Any]:
    """Probe the machine for each facts type; what failed is a ProbeFailure in its place."""
    ordered = sorted(set(needs), key=lambda need: need.__name__)
    if len(ordered) <= 1:
        return {need: _probe(need, request) for need in ordered}
    from concurrent.futures import ThreadPoolExecutor  # 20 ms that `explain` and `lint` do without

    with ThreadPoolExecutor(max_workers=max(4, len(ordered))) as pool:
        futures = {need: pool.submit(_probe, need, request) for need in ordered}
        return {need: future.result() for need, future in futures.items()}


def warm(request: Request) -> None:
    """Start the look that takes longest, the import of torch, while the checks are still being loaded."""
    from torch_doctor.probes import torch

    threading.Thread(target=torch.session, args=(request,), daemon=True).start()


def require(
    script: Path | None, *, need: Sequence[str] = (), gpus: str | None = None, sample_bytes: str | None = None
) -> tuple[Requirements, tuple[Notification, ...]]:
    """What the script (parsed, never executed) and the user's options ask of the machine.

    Raises:
        DoctorError: for a script that is not there, and for options that cannot be read.
    """
    from torch_doctor.probes import requirements

    return requirements.read(script, need=need, gpus=gpus, sample_bytes=sample_bytes)


def probe_for(need: type) -> Probe:
    """The probe of a facts type: ``facts/shm.py`` is filled by ``PROBES`` of ``probes/shm.py``."""
    module = importlib.import_module(need.__module__.replace(".facts.", ".probes."))
    probe: Probe = module.PROBES[need]
    return probe


def _probe(need: type, request: Request) -> Any:
    try:
        return probe_for(need)(request)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ImportError, RuntimeError) as error:
        # a probe is a guest here: whatever it trips over on a strange machine is a result
        return ProbeFailure(f"{need.__name__} probe: {type(error).__name__}: {error}", FailureKind.ERROR)


def source_paths(paths: Iterable[Path], exclude: Iterable[str] = ()) -> list[Path]:
    """The Python files and notebooks of files and folders, in order.

    Raises:
        DoctorError: for a path that does not exist.
    """
    from torch_doctor.probes import sources

    return list(sources.find(paths, exclude))


def source(path: Path) -> Script | Notification:
    """A file, parsed; or the Notification of why it could not be read."""
    from torch_doctor.probes import sources

    found = sources.read(path)
    return found.notification if isinstance(found, sources.Unread) else found


def source_of(path: Path, data: bytes) -> Script | Notification:
    """The same of bytes that would stand in a file."""
    from torch_doctor.probes import sources

    found = sources.from_bytes(path, data)
    return found.notification if isinstance(found, sources.Unread) else found


def plain(facts: Mapping[type, Any]) -> dict[str, Any]:
    """Facts as JSON values, keyed ``shm`` for ShmFacts; secrets and user names redacted."""
    return {key_of(need): _plain(value) for need, value in sorted(facts.items(), key=lambda i: key_of(i[0]))}


def key_of(need: type) -> str:
    """``ShmFacts`` is ``shm``; ``CpuQuotaFacts`` is ``cpu_quota``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", need.__name__.removesuffix("Facts")).lower()


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, ProbeFailure):
        return {"probe_failure": {"kind": value.kind.value, "reason": value.reason}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in _shown(value, key).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value


def _shown(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if key != "environment":
        return value
    from torch_doctor.redact import redact_environment  # its expressions take 2 ms, and few facts have one

    return redact_environment(value)

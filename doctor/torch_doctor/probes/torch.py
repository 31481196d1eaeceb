"""Imports torch in a child process and says what it is."""

from __future__ import annotations

from typing import Any

from torch_doctor.facts.request import Request
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import isolated
from torch_doctor.probes.once import once


@once
def probe(request: Request) -> TorchFacts | ProbeFailure:
    """What ``import torch`` gives in the user's interpreter.

    Returns:
        ProbeFailure(UNAVAILABLE) where no torch is installed; ProbeFailure(ERROR) where its import raises, with
        ``error_type``, ``error``, ``traceback_tail``, ``installed_version``, ``path`` and ``python`` as evidence;
        ProbeFailure(SIGNAL | TIMEOUT) where the import kills the interpreter or hangs.
    """
    found = isolated.call("torch_info", {}, python=request.python, timeout=request.timeout)
    if isinstance(found, ProbeFailure):
        return found
    return _facts(found) if "version" in found else _failure(found)


def _failure(found: dict[str, Any]) -> ProbeFailure:
    if found.get("missing"):
        return ProbeFailure(f"torch is not installed for {found['python']}", evidence=found)
    reason = f"import torch fails: {found.get('error_type')}: {found.get('error')}"
    return ProbeFailure(reason, FailureKind.ERROR, found)


def _facts(found: dict[str, Any]) -> TorchFacts:
    return TorchFacts(**{**found, "arch_list": tuple(found["arch_list"]), "warnings": tuple(found["warnings"])})


PROBES = {TorchFacts: probe}

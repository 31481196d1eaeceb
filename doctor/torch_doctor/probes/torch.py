"""Imports torch in a child process and says what it is."""

from __future__ import annotations

from typing import Any

from torch_doctor.facts.request import Request
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import isolated
from torch_doctor.probes.once import once


@once
def session(request: Request) -> dict[str, Any] | ProbeFailure:
    """One child process that imports torch: ``torch`` (what it is) and ``methods`` (what its DataLoader gave).

    Where a loader takes the child down with it, torch alone is asked again, and ``methods`` tells of the death.
    """
    methods = list(request.start_methods)
    if methods:
        limit = request.timeout
        payload = {"methods": methods, "limit_s": limit}
        # the import and each loader are one probe each, so each may take the time limit
        found = isolated.call("torch_session", payload, python=request.python, timeout=limit * (1 + len(methods)))
        # it writes its first byte once torch is imported: what died before that died of the import
        if not isinstance(found, ProbeFailure) or not found.evidence.get("wrote_bytes"):
            return found
    alone = isolated.call("torch_info", {}, python=request.python, timeout=request.timeout)
    if isinstance(alone, ProbeFailure):
        return alone
    died = {
        m: {"ok": False, "seconds": 0.0, "error": found.reason} for m in methods if isinstance(found, ProbeFailure)
    }
    return {"torch": alone, "methods": died}


@once
def probe(request: Request) -> TorchFacts | ProbeFailure:
    """What ``import torch`` gives in the user's interpreter.

    Returns:
        ProbeFailure(UNAVAILABLE) where no torch is installed; ProbeFailure(ERROR) where its import raises, with
        ``error_type``, ``error``, ``traceback_tail``, ``installed_version``, ``path`` and ``python`` as evidence;
        ProbeFailure(SIGNAL | TIMEOUT) where the import kills the interpreter or hangs.
    """
    found = session(request)
    if isinstance(found, ProbeFailure):
        return found
    info = found["torch"]
    return _facts(info) if "version" in info else _failure(info)


def _failure(found: dict[str, Any]) -> ProbeFailure:
    if found.get("missing"):
        return ProbeFailure(f"torch is not installed for {found['python']}", evidence=found)
    reason = f"import torch fails: {found.get('error_type')}: {found.get('error')}"
    return ProbeFailure(reason, FailureKind.ERROR, found)


def _facts(found: dict[str, Any]) -> TorchFacts:
    return TorchFacts(**{**found, "arch_list": tuple(found["arch_list"]), "warnings": tuple(found["warnings"])})


PROBES = {TorchFacts: probe}

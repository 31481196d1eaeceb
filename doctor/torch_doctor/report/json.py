"""The JSON report: the contract that other programs read (doctor/docs/report.schema.json)."""

from __future__ import annotations

import json
from typing import Any

from torch_doctor import __version__
from torch_doctor.model import SCHEMA_VERSION, Check, Finding, Location, Notification, Outcome, Report
from torch_doctor.report import Style


def render(report: Report, style: Style) -> str:
    """The report as one indented JSON object."""
    return json.dumps(as_dict(report, style.fail_on), indent=2, ensure_ascii=False, default=str) + "\n"


def as_dict(report: Report, fail_on: str = "error") -> dict[str, Any]:
    """The report as plain values, with the keys of the published schema."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "torch-doctor", "version": __version__},
        "command": report.command,
        "exit_code": report.exit_code(fail_on),
        "summary": {o.value: report.count(o) for o in Outcome} | {"duration_ms": _ms(report.duration)},
        "findings": [finding_dict(check, finding) for check, finding in report.findings()],
        "checks": [
            {
                "id": r.check.id,
                "name": r.check.name,
                "outcome": r.outcome.value,
                "reason": r.reason,
                "duration_ms": _ms(r.duration),
            }
            for r in report.results
        ],
        "notifications": [_notification(n) for n in report.notifications],
        "facts": dict(report.facts),
    }


def finding_dict(check: Check, finding: Finding) -> dict[str, Any]:
    """One finding; ``role`` is there only for an echo of the root cause."""
    value: dict[str, Any] = {
        "id": check.id,
        "name": check.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "evidence": dict(finding.evidence),
        "remediation": {"text": finding.remediation.text, "commands": list(finding.remediation.commands)},
        "location": _location(finding.location),
    }
    if finding.role:
        value["role"] = finding.role
    if finding.fix is not None:
        value["fix"] = {"message": finding.fix.message, "safe": finding.fix.safe}
    return value


def _location(place: Location | None) -> dict[str, Any] | None:
    if place is None:
        return None
    value: dict[str, Any] = {"path": place.path, "line": place.line, "column": place.column}
    if place.cell is not None:
        value["cell"] = place.cell
    return value


def _notification(item: Notification) -> dict[str, Any]:
    return {"severity": item.severity.value, "message": item.message, "location": _location(item.location)}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

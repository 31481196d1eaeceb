"""SARIF 2.1.0, as GitHub code scanning takes it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
https://docs.github.com/code-security/reference/code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from torch_doctor import __version__
from torch_doctor.model import Check, Edit, Finding, Location, Notification, Outcome, Report
from torch_doctor.report import Style
from torch_doctor.report.text import place, remedy, sections

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

#: code scanning shows a result only with a physical location; what has no file stands at the root
_NOWHERE = Location(".")


def render(report: Report, style: Style) -> str:
    """One run: only the rules that fired, results with fixes and suppressions, notifications."""
    findings = report.findings(suppressed=True)
    fired = sorted({check.id: check for check, _ in findings}.items())
    index = {id: number for number, (id, _) in enumerate(fired)}
    run = {
        "tool": {
            "driver": {
                "name": "torch-doctor",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(check, (f for c, f in findings if c is check)) for _, check in fired],
            }
        },
        "automationDetails": {"id": f"torch-doctor/{report.command}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, style.fail_on)],
        "results": [_result(check, finding, index[check.id]) for check, finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, default=str) + "\n"


def _rule(check: Check, findings: Iterable[Finding]) -> dict[str, Any]:
    text = sections(check)
    markdown = "\n\n".join(f"### {key}\n\n{_fenced(key, value)}" for key, value in text.items() if key and value)
    worst = max(findings, key=lambda f: f.severity.rank)
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": text[""]},
        "fullDescription": {"text": text["Why it matters"]},
        "help": {"text": check.doc, "markdown": markdown},
        "defaultConfiguration": {"level": worst.severity.value},
        "properties": {"tags": sorted({check.family.lower(), *check.tags}), "precision": "high"},
    }


def _fenced(heading: str, text: str) -> str:
    return f"```\n{text}\n```" if heading in ("Example",) else text


def _result(check: Check, finding: Finding, index: int) -> dict[str, Any]:
    value: dict[str, Any] = {
        "ruleId": check.id,
        "ruleIndex": index,
        "level": finding.severity.value,
        "message": {"text": f"{finding.message}\n{remedy(finding)}".rstrip()},
        "locations": [_location(finding.location or _NOWHERE)],
        "partialFingerprints": {"primaryLocationLineHash": _fingerprint(check, finding)},
    }
    if finding.evidence:
        value["properties"] = {"evidence": dict(finding.evidence)}
    if finding.fix is not None and finding.location is not None and finding.location.cell is None:
        replacements = [_replacement(edit) for edit in finding.fix.edits]
        change = {"artifactLocation": _artifact(finding.location), "replacements": replacements}
        value["fixes"] = [{"description": {"text": finding.fix.message}, "artifactChanges": [change]}]
    if finding.suppression is not None:
        kind = "inSource" if finding.suppression.kind == "in-source" else "external"
        value["suppressions"] = [{"kind": kind, "justification": finding.suppression.reason}]
    return value


def _fingerprint(check: Check, finding: Finding) -> str:
    # not the line: a finding that moves down the file is the same finding
    path = finding.location.path if finding.location else ""
    return hashlib.sha256(f"{check.id}\0{path}\0{finding.message}".encode("utf-8", "replace")).hexdigest()[:32]


def _location(location: Location) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(location)}
    if location.line is not None and location.cell is None:
        numbers = {
            "startLine": location.line,
            "startColumn": location.column,
            "endLine": location.end_line,
            "endColumn": location.end_column,
        }
        physical["region"] = {key: number for key, number in numbers.items() if number is not None}
    value: dict[str, Any] = {"physicalLocation": physical}
    if location.cell is not None:
        value["message"] = {"text": place(location)}
    return value


def _artifact(location: Location) -> dict[str, Any]:
    path = PurePosixPath(location.path)
    if path.is_absolute():
        return {"uri": "file://" + quote(str(path))}
    return {"uri": quote(str(path)), "uriBaseId": "%SRCROOT%"}


def _replacement(edit: Edit) -> dict[str, Any]:
    return {
        "deletedRegion": {
            "startLine": edit.line,
            "startColumn": edit.column,
            "endLine": edit.end_line,
            "endColumn": edit.end_column,
        },
        "insertedContent": {"text": edit.text},
    }


def _invocation(report: Report, fail_on: str) -> dict[str, Any]:
    crashes = [
        Notification(f"{r.check.id} {r.check.name} crashed: {r.reason}")
        for r in report.results
        if r.outcome is Outcome.CRASHED
    ]
    notes = [*report.notifications, *crashes]
    return {
        "executionSuccessful": not any(n.incomplete for n in notes),
        "exitCode": report.exit_code(fail_on),
        "toolExecutionNotifications": [_notification(n) for n in notes],
    }


def _notification(item: Notification) -> dict[str, Any]:
    value: dict[str, Any] = {"level": item.severity.value, "message": {"text": item.message}}
    if item.location is not None:
        value["locations"] = [_location(item.location)]
    return value

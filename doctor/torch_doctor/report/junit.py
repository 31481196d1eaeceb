"""JUnit XML, as Jenkins, GitLab and GitHub's test reporters read it: one test case per check."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from torch_doctor.model import NEVER, CheckResult, Finding, Outcome, Report, Severity
from torch_doctor.report import Style
from torch_doctor.report.text import place, remedy

# XML 1.0 has no place for these, not even escaped: https://www.w3.org/TR/xml/#charsets
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, style: Style) -> str:
    """A failure for each check with a finding at or above ``fail_on``; what is below goes to system-out."""
    failing = [r for r in report.results if _failing(r, style.fail_on)]
    sums = {
        "tests": str(len(report.results) + len(report.notifications)),
        "failures": str(len(failing)),
        "errors": str(report.count(Outcome.CRASHED) + len(report.notifications)),
        "skipped": str(report.count(Outcome.SKIPPED)),
        "time": f"{report.duration:.3f}",
    }
    root = ET.Element("testsuites", {"name": "torch-doctor", **sums})
    suite = ET.SubElement(root, "testsuite", {"name": f"torch-doctor.{report.command}", **sums})
    for result in report.results:
        _case(suite, result, style.fail_on)
    for note in report.notifications:
        path = note.location.path if note.location else report.command
        case = ET.SubElement(
            suite, "testcase", {"classname": "torch-doctor.files", "name": _clean(path), "time": "0"}
        )
        text = f"{place(note.location)}: {note.message}" if note.location else note.message
        ET.SubElement(case, "error", {"message": _clean(text), "type": "notification"})
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, result: CheckResult, fail_on: str) -> None:
    name = f"{result.check.id} {result.check.name}"
    attributes = {"classname": f"torch-doctor.{result.check.family}", "name": name, "time": f"{result.duration:.3f}"}
    case = ET.SubElement(suite, "testcase", attributes)
    if result.outcome is Outcome.SKIPPED:
        ET.SubElement(case, "skipped", {"message": _clean(result.reason)})
    elif result.outcome is Outcome.CRASHED:
        ET.SubElement(case, "error", {"message": _clean(result.reason), "type": "crashed"})
    failing = _failing(result, fail_on)
    if failing:
        attributes = {"message": _clean(failing[0].message), "type": failing[0].severity.value}
        ET.SubElement(case, "failure", attributes).text = _clean("\n\n".join(map(_text, failing)))
    rest = [f for f in _shown(result) if f not in failing]
    if rest:
        ET.SubElement(case, "system-out").text = _clean("\n\n".join(map(_text, rest)))


def _shown(result: CheckResult) -> list[Finding]:
    return [f for f in result.findings if f.suppression is None]


def _failing(result: CheckResult, fail_on: str) -> list[Finding]:
    if fail_on == NEVER:
        return []
    floor = Severity(fail_on).rank
    return [f for f in _shown(result) if f.severity.rank >= floor]


def _text(finding: Finding) -> str:
    where = f"{place(finding.location)}: " if finding.location else ""
    return f"{finding.severity.value}: {where}{finding.message}\n{remedy(finding)}".rstrip()


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)

"""Every format renders the whole report: compared with golden files, and read back by its own reader."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from support import reports
from support.golden import assert_golden

from torch_doctor import report
from torch_doctor.model import Location, Report

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(__file__).parents[3] / "doctor/docs/report.schema.json"


@pytest.mark.parametrize("format", report.FORMATS)
def test_the_whole_report_in_each_format(format: str) -> None:
    assert_golden(GOLDEN / f"{format}.txt", report.render(format, reports.FULL, report.Style(width=80, verbose=True)))


@pytest.mark.parametrize("format", report.FORMATS)
@pytest.mark.parametrize("item", [reports.HEALTHY, reports.EMPTY], ids=["healthy", "empty"])
def test_nothing_found_still_renders(format: str, item: Report) -> None:
    text = report.render(format, item, report.Style())
    assert text == "" if format == "github" else text.endswith("\n")
    assert report.exit_code(format, item, "error") == 0


@pytest.mark.parametrize("fail_on", ["error", "warning", "note", "never"])
@pytest.mark.parametrize("format", [f for f in report.FORMATS if f != "nagios"])
def test_the_exit_status_does_not_change_with_the_format(format: str, fail_on: str) -> None:
    assert report.exit_code(format, reports.FULL, fail_on) == (3 if fail_on == "never" else 1)


@pytest.mark.parametrize("item", [reports.FULL, reports.HEALTHY, reports.EMPTY], ids=["full", "healthy", "empty"])
def test_json_holds_its_published_schema(item: Report) -> None:
    value = json.loads(report.render("json", item, report.Style()))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(value)


def test_json_orders_causes_before_echoes_and_errors_first() -> None:
    value = json.loads(report.render("json", reports.FULL, report.Style()))
    assert [(f["id"], f.get("role")) for f in value["findings"]] == [
        ("SHM098", None),
        ("GRD198", None),
        ("GPU098", None),
        ("SHM098", "consequence"),
    ]


def test_junit_counts_what_it_holds() -> None:
    root = ET.fromstring(report.render("junit", reports.FULL, report.Style(fail_on="warning")))
    suite = root[0]
    assert len(suite.findall(".//failure")) == int(suite.get("failures", "")) == 2
    assert len(suite.findall(".//error")) == int(suite.get("errors", "")) == 2
    assert len(suite.findall(".//skipped")) == int(suite.get("skipped", "")) == 1
    assert len(suite.findall("testcase")) == int(suite.get("tests", "")) == 7


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    lines = report.render("github", reports.FULL, report.Style()).splitlines()
    assert all(re.match(r"::(error|warning|notice) title=[^:]*::", line) for line in lines)
    assert len(lines) == 6
    assert "100 %25 of it" in lines[1] and "file=dir with space/träin.py,line=12,endLine=12,col=5" in lines[1]


def test_sarif_tells_what_was_fixed_suppressed_and_not_looked_at() -> None:
    run = json.loads(report.render("sarif", reports.FULL, report.Style()))["runs"][0]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert ids == ["GPU098", "GRD198", "SHM098"]
    assert all(ids[r["ruleIndex"]] == r["ruleId"] for r in run["results"])
    assert all(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"])
    assert [r.get("suppressions", [{}])[0].get("kind") for r in run["results"]].count("inSource") == 1
    fixed = [r["fixes"][0]["artifactChanges"][0] for r in run["results"] if "fixes" in r and "suppressions" not in r]
    assert [c["artifactLocation"]["uri"] for c in fixed] == ["dir%20with%20space/tr%C3%A4in.py"]
    assert [c["replacements"][0]["insertedContent"]["text"] for c in fixed] == [".item()"]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert [n["message"]["text"] for n in notes] == [
        "invalid syntax",
        "CMP099 compiler-missing crashed: killed by SIGSEGV",
    ]
    assert run["invocations"][0]["executionSuccessful"] is False


@pytest.mark.parametrize(
    ("item", "fail_on", "status", "word"),
    [
        (reports.FULL, "error", 2, "CRITICAL"),
        (reports.FULL, "never", 3, "UNKNOWN"),
        (reports.HEALTHY, "error", 0, "OK"),
        (Report("check", reports.FULL.results[1:3]), "error", 1, "WARNING"),
        (Report("check", reports.FULL.results[2:3]), "error", 0, "OK"),
        (Report("check", reports.FULL.results[2:3]), "note", 1, "WARNING"),
        (Report("check", reports.FULL.results[4:]), "error", 3, "UNKNOWN"),
    ],
)
def test_nagios_has_its_own_convention(item: Report, fail_on: str, status: int, word: str) -> None:
    assert report.exit_code("nagios", item, fail_on) == status
    text = report.render("nagios", item, report.Style(fail_on=fail_on))
    assert text.startswith(f"TORCH-DOCTOR {word} - ")
    assert text.count("|") == 1


def test_no_escape_and_no_wrapped_command_without_colour() -> None:
    text = report.render("table", reports.FULL, report.Style(width=40, verbose=True))
    assert "\x1b" not in text and "\x00" not in text and "c\\x1b[31m\\x00" in text
    assert "    docker run --shm-size=8g ...\n" in text


def test_colour_where_it_is_asked_for() -> None:
    assert "\x1b[1;31merror" in report.render("table", reports.FULL, report.Style(color=True))


def test_ascii_where_the_terminal_has_no_utf8() -> None:
    report.render("table", reports.HEALTHY, report.Style(unicode=False)).encode("ascii")


def test_a_path_that_is_longer_than_the_line_stays_whole() -> None:
    path = "/data/" + "deep/" * 20 + "train.py"
    found = replace(reports.GRAD, location=Location(path, 3))
    result = replace(reports.FULL.results[1], findings=(found,))
    assert f"  {path}:3:\n" in report.render("table", Report("lint", (result,)), report.Style(width=40))

"""The preflight's report, and what is told of it."""

from __future__ import annotations

import json

from torch_doctor.sessions import preflight
from torch_doctor.sessions.preflight import Preflight

NONE = {"text": "", "commands": []}
REPORT = {
    "findings": [
        {"id": "SHM001", "name": "shm-too-small", "severity": "error", "message": "/dev/shm is 64 MiB",
         "remediation": {"text": "more", "commands": ["docker run --shm-size=8g ..."]}},
        {"id": "CPU001", "name": "threads", "severity": "warning", "message": "m", "remediation": NONE},
        {"id": "GPU001", "name": "no-gpu-found", "severity": "note", "message": "n", "remediation": NONE},
    ],
    "summary": {"passed": 9, "failed": 3, "skipped": 2, "crashed": 0},
}  # fmt: skip


def test_errors_and_warnings_are_told_with_what_to_type() -> None:
    found = preflight.parse(json.dumps(REPORT))
    assert found.errors == 1
    assert preflight.lines(found) == [
        "preflight: 1 error, 1 warning, 1 note (9 checks passed, 2 skipped)",
        "  error SHM001 shm-too-small: /dev/shm is 64 MiB",
        "      $ docker run --shm-size=8g ...",
        "  warning CPU001 threads: m",
    ]


def test_nothing_found() -> None:
    assert preflight.lines(Preflight((), {"passed": 3})) == ["preflight: nothing found (3 checks passed)"]


def test_a_report_that_cannot_be_read_is_a_failure_that_is_told() -> None:
    for text in ("", "{", "[]", "{}"):
        found = preflight.parse(text)
        assert found.failure and preflight.lines(found)[0].startswith("preflight: did not run: ")

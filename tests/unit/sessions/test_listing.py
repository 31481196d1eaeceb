"""The table and the JSON of ``ps``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import choice, launch, listing, places
from torch_doctor.sessions.listing import Row


def row(**values: object) -> Row:
    standard: dict[str, object] = {
        **dict.fromkeys(
            ("signal", "reason", "cause", "cwd", "backend", "last_line", "log", "log_error", "stopped_by"), ""
        ),
        **dict.fromkeys(
            ("duration_s", "exit_status", "gpu_memory_bytes", "peak_rss_bytes", "ended", "pid", "oom_kills")
        ),
        **{
            "name": "a",
            "state": "running",
            "age_s": 5.0,
            "command": ["python", "t.py"],
            "restarts": 0,
            "created": 0.0,
        },
        "log_lost_bytes": 0,
    }
    return Row(**{**standard, **values})  # type: ignore[arg-type]


def test_the_table_fits_and_says_why_a_session_ended() -> None:
    rows = [
        row(last_line="epoch 3 " * 40, gpu_memory_bytes=3 << 30),
        row(name="b", state="failed", exit_status=137, signal="SIGKILL", reason="SIGKILL by the kernel's OOM killer"),
        row(name="c", state="failed", exit_status=1, reason="exit status 1", cause="MEM201 cuda-oom: 2 GiB asked"),
        row(name="d", command=["sh", "-c", "a\nb\x1b[31m"]),
    ]
    text = listing.as_table(rows, 80)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == ["NAME", "STATE", "AGE", "EXIT", "GPU", "COMMAND", "LAST", "LINE"]
    assert "3 GiB" in lines[1] and "SIGKILL by the kernel's OOM killer" in text and "MEM201" in text
    assert len(lines) == 7 and "\x1b" not in text


def test_json_is_one_object_with_every_field() -> None:
    document = json.loads(listing.as_json([row(command=["\udcff"])]))
    assert document["command"] == "ps" and document["schema_version"] == 1
    assert document["sessions"][0]["command"] == ["\udcff"]


def test_no_sessions_is_a_heading() -> None:
    assert listing.as_table([], 80).splitlines()[0].startswith("NAME")


def test_a_session_is_listed_from_its_preflight_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.STATE_VARIABLE, str(tmp_path))
    place = launch.reserve("exp1", ["python", "train.py"], None)
    assert [(r.name, r.state) for r in listing.rows()] == [("exp1", "starting")]
    for name in ("exp1", None):
        with pytest.raises(DoctorError, match="exp1: is in its preflight"):
            choice.one(name)
    os.close(place.lock)  # as the kernel does where the preflight was killed
    assert listing.rows() == []
    with pytest.raises(DoctorError, match="there is no session of this name"):
        choice.one("exp1")

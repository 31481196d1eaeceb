"""What a command's environment gets, and what of the user's is never touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.sessions.environment import CRASH_SETTINGS, for_command, parse

FOLDER = Path("/state/sessions/a")


def test_crash_settings_are_added() -> None:
    found = for_command({"HOME": "/h"}, {}, "a", FOLDER, "screen-256color")
    assert set(CRASH_SETTINGS) <= set(found)
    assert found["TORCHELASTIC_ERROR_FILE"] == "/state/sessions/a/error.json"
    assert (found["TERM"], found["HOME"], found["TORCH_DOCTOR_SESSION"]) == ("screen-256color", "/h", "a")


@pytest.mark.parametrize("name", sorted(CRASH_SETTINGS))
def test_what_the_user_has_set_stays(name: str) -> None:
    assert for_command({name: ""}, {}, "a", FOLDER, "dumb")[name] == ""


def test_an_older_name_that_the_user_has_set_is_not_overridden_by_the_newer_one() -> None:
    found = for_command({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, {}, "a", FOLDER, "dumb")
    assert "TORCH_FR_BUFFER_SIZE" not in found and found["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "0"


def test_options_of_run_and_the_outer_view_are_not_inherited() -> None:
    inherited = dict.fromkeys(("TORCH_DOCTOR_NAME", "TORCH_DOCTOR_DETACH", "TMUX", "STY", "COLUMNS"), "x")
    kept = {"TORCH_DOCTOR_STATE_DIR": "/s", "TORCH_DOCTOR_NEED": "gpus=1"}
    found = for_command({**inherited, **kept}, {"TERM": "mine"}, "a", FOLDER, "dumb")
    assert not set(inherited) & set(found) and kept.items() <= found.items() and found["TERM"] == "mine"


def test_pairs() -> None:
    assert parse(["A=1=2", "B=", "C", "D"], {"C": "here"}) == {"A": "1=2", "B": "", "C": "here"}


@pytest.mark.parametrize("pair", ["=x", "", "A=\0"])
def test_a_pair_without_a_name_is_refused(pair: str) -> None:
    with pytest.raises(DoctorError, match="NAME=VALUE"):
        parse([pair], {})

"""Names of sessions."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import names
from torch_doctor.sessions.views.tmux import encoded


@pytest.mark.parametrize("name", ["a", "exp-1", "resnet50.lr0.1", "_x", "9", "x" * 64])
def test_valid(name: str) -> None:
    assert names.validated(name) == name


@given(st.text())
def test_what_is_accepted_is_safe_everywhere(name: str) -> None:
    try:
        names.validated(name)
    except DoctorError:
        return
    assert name.isascii() and 0 < len(name) <= 64 and name[0] not in "-." and not set(name) & set("/ :;$'\"\n\t*?\\=")


@pytest.mark.parametrize(
    ("command", "script", "name"),
    [
        (["python", "x"], "/w/my train.py", "my-train"),
        (["/usr/bin/torchrun"], None, "torchrun"),
        (["--"], None, "run"),
        (["a" * 200], None, "a" * 58),
        (["-we ird;"], None, "we-ird"),
    ],
)
def test_proposals_are_valid_and_numbered(command: list[str], script: str | None, name: str) -> None:
    found = list(islice(names.proposals(command, script), 3))
    assert found == [name, f"{name}-2", f"{name}-3"]
    assert all(names.validated(n) for n in found)


@given(st.lists(st.text("ab_.d", min_size=1, max_size=4), min_size=2, max_size=2, unique=True))
def test_two_names_are_two_tmux_sessions(pair: list[str]) -> None:
    assert encoded(pair[0]) != encoded(pair[1])
    assert not set(encoded(pair[0])) & set(".:")

"""Restart policies and sizes as they are written."""

from __future__ import annotations

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.sessions.starting import restarts, size


@pytest.mark.parametrize(("text", "number"), [("no", 0), ("on-failure:0", 0), ("on-failure:3", 3)])
def test_restarts(text: str, number: int) -> None:
    assert restarts(text) == number


@pytest.mark.parametrize("text", ["", "always", "on-failure", "on-failure:", "on-failure:-1", "on-failure:1.5"])
def test_no_policy(text: str) -> None:
    with pytest.raises(DoctorError, match="on-failure:N"):
        restarts(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("0", 0), ("5", 5), ("16k", 16384), ("1M", 1 << 20), ("2g", 2 << 30)]
)
def test_size(text: str, size_bytes: int) -> None:
    assert size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "k", "1x", "1kk", "-1", "1.5m"])
def test_no_size(text: str) -> None:
    with pytest.raises(DoctorError, match="is not a size"):
        size(text)

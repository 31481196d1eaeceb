"""Configuration files: found upwards, read strictly, commands override what is common."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor import config
from torch_doctor.errors import DoctorError


def test_nearest_file_wins_and_the_search_ends_at_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "torch-doctor.toml").write_text("fail-on = 'never'\n")
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    assert config.load(inner).path == tmp_path / "torch-doctor.toml"
    (inner.parent / ".git").mkdir()
    assert config.load(inner).path is None
    (inner.parent / "pyproject.toml").write_text("[tool.torch-doctor]\nfail-on = 'note'\n")
    assert config.load(inner).for_command("check") == {"fail_on": "note"}


def test_a_pyproject_without_the_section_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "torch-doctor.toml").write_text("timeout = 3\n")
    inner = tmp_path / "a"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\ndependencies = ['torch-doctor']\n")
    assert config.load(inner).for_command("check") == {"timeout": 3}


def test_a_commands_table_overrides_the_common_options(tmp_path: Path) -> None:
    (tmp_path / "torch-doctor.toml").write_text("select = ['shm']\n[lint]\nselect = ['grd']\nexclude = ['old']\n")
    found = config.load(tmp_path)
    assert found.for_command("check") == {"select": ["shm"]}
    assert found.for_command("lint") == {"select": ["grd"], "exclude": ["old"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch-doctor.toml", "a = ["),
        ("pyproject.toml", "[tool]\ntorch-doctor = 3\n"),
        ("torch-doctor.toml", "\udcff"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DoctorError, match=name):
        config.load(tmp_path)

"""Which findings a comment or the configuration silences, and which comments silence nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.linting import CHECKS

from torch_doctor import linting

SOURCE = "import torch\nx = torch.zeros(1)\n{before}x.cuda(){after}\n"


def shown(tmp_path: Path, source: str, **options: object) -> tuple[list[str], list[str]]:
    """(rules that are shown, messages of the notifications)."""
    script = tmp_path / "train.py"
    script.write_text(source)
    found = linting.lint([script], CHECKS, **options)  # type: ignore[arg-type]
    rules = [c.id for c, f in found.findings.get(str(script), []) if f.suppression is None]
    return rules, [n.message for n in found.notifications]


@pytest.mark.parametrize(
    "comment",
    [
        "  # noqa",
        "  # NOQA: DEV101",
        "  # noqa: F401, DEV101",
        "  # noqa:DEV101,LOS101",
        "  # type: ignore  # noqa: DEV101",
        "  # torch-doctor: ignore[DEV101] a test of the comment",
        "  # torch-doctor: ignore[dev101]",
        "  # torch-doctor: ignore[move-result-dropped]",
        "  # torch-doctor: ignore[DEV]",
        "  # torch-doctor: ignore",
    ],
)
def test_a_comment_that_silences(tmp_path: Path, comment: str) -> None:
    rules, _ = shown(tmp_path, SOURCE.format(before="", after=comment))
    assert rules == []


@pytest.mark.parametrize(
    "comment",
    [
        "  # noqa: F401",
        "  # noqa: E501,W291",
        "  # noqa: LOS101",
        "; s = '# noqa'",
        "  # torch-doctor: ignore[LOS101]",
    ],
)
def test_a_comment_that_does_not(tmp_path: Path, comment: str) -> None:
    rules, _ = shown(tmp_path, SOURCE.format(before="", after=comment))
    assert rules == ["DEV101"]


def test_a_comment_on_a_line_of_its_own_is_for_the_next(tmp_path: Path) -> None:
    rules, _ = shown(tmp_path, SOURCE.format(before="# torch-doctor: ignore[DEV101]\n", after=""))
    assert rules == []


def test_a_whole_file(tmp_path: Path) -> None:
    rules, _ = shown(tmp_path, "# torch-doctor: ignore-file[DEV101]\n" + SOURCE.format(before="", after=""))
    assert rules == []


def test_a_statement_of_several_lines_is_one(tmp_path: Path) -> None:
    rules, _ = shown(
        tmp_path, "import torch\nfrom torch import nn\na = nn.MSELoss(\n    reduce=False,\n)  # noqa: LOS101\n"
    )
    assert rules == []


def test_what_is_unused_is_said(tmp_path: Path) -> None:
    _, notes = shown(tmp_path, "import torch\nx = 1  # torch-doctor: ignore[DEV101]\ny = 2  # noqa: DEV101\n")
    assert notes == ["suppression of dev101 silences nothing"]


def test_the_reason_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SOURCE.format(before="", after="  # torch-doctor: ignore[DEV101] - warms up the cache"))
    pairs = linting.lint([script], CHECKS).findings[str(script)]
    assert [(f.suppression.kind, f.suppression.reason) for _, f in pairs if f.suppression] == [
        ("in-source", "warms up the cache")
    ]


@pytest.mark.parametrize(
    ("pattern", "tokens", "silent"),
    [
        ("train.py", ["DEV101"], True),
        ("*.py", ["dev"], True),
        ("train.py", ["ALL"], True),
        ("tests/*", ["DEV101"], False),
        ("train.py", ["LOS101"], False),
    ],
)
def test_the_configuration(tmp_path: Path, pattern: str, tokens: list[str], silent: bool) -> None:
    rules, _ = shown(tmp_path, SOURCE.format(before="", after=""), per_file_ignores={pattern: tokens})
    assert rules == ([] if silent else ["DEV101"])

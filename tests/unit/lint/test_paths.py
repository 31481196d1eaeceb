"""What a file's path says: code under tests/ tries things out."""

from __future__ import annotations

import pytest
from support.linting import lint


@pytest.mark.parametrize(
    ("path", "found"),
    [("train.py", ["CKP104"]), ("pkg/tests/test_state.py", []), ("pkg/test_state.py", ["CKP104"])],
)
def test_a_test_hands_text_to_a_mock(path: str, found: list[str]) -> None:
    source = 'import torch\ndef check(mock):\n    mock.load_state_dict("state")\n'
    assert [c.id for c, _ in lint(source, path)] == found

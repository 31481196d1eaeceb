"""The examples of each rule's documentation: the bad one fires exactly that rule, the good one none."""

from __future__ import annotations

import re
import textwrap

import pytest
from support.linting import CHECKS, ids

from torch_doctor.model import Check


def example(item: Check, kind: str) -> str:
    body = item.doc.split("\nExample:\n", 1)[1].split("\nFix:\n", 1)[0]
    found = re.search(rf"{kind}::\n\n(.*?)(?=\n\s*\n\s*Good::|\Z)", body, re.DOTALL)
    assert found, f"{item.id} has no {kind} example"
    return textwrap.dedent(found[1])


@pytest.mark.parametrize("item", CHECKS, ids=lambda c: c.id)
def test_the_bad_example_fires_this_rule_alone(item: Check) -> None:
    assert {rule for rule, _ in ids(example(item, "Bad"))} == {item.id}


@pytest.mark.parametrize("item", CHECKS, ids=lambda c: c.id)
def test_the_good_example_fires_none(item: Check) -> None:
    assert ids(example(item, "Good")) == []

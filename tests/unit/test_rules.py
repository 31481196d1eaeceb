"""What `rule` and the documentation say of each rule."""

from __future__ import annotations

import json

import pytest

from torch_doctor import registry, rules
from torch_doctor.model import HEADINGS, Check

ALL = registry.load()


@pytest.mark.parametrize("item", ALL, ids=lambda c: c.id)
def test_every_rule_documents_itself(item: Check) -> None:
    value = rules.as_dict(item)
    sections = value["sections"]
    assert isinstance(sections, dict)
    assert list(sections) == list(HEADINGS) and all(sections.values())
    assert rules.markdown(item).startswith(f"# {item.id} {item.name}\n")


def test_the_list_has_every_rule_once() -> None:
    lines = rules.render(ALL, "table", pages=False).splitlines()
    assert [line.split()[0] for line in lines] == [c.id for c in ALL]
    assert [v["id"] for v in json.loads(rules.render(ALL, "json", pages=False))] == [c.id for c in ALL]


def test_one_rule_whole() -> None:
    (item,) = registry.find("SHM001")
    assert item.doc in rules.render([item], "table", pages=True)

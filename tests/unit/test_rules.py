"""What `rule` and the documentation say of each rule."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from torch_doctor import registry, rules
from torch_doctor.cli.command import COMMANDS
from torch_doctor.model import HEADINGS, Check

ALL = registry.load()
DOCS = Path(__file__).parents[2] / "doctor" / "docs"
_COMMAND = re.compile(r"(?:^|[`\s])torch-doctor ([a-z]+)\b")


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


@pytest.mark.parametrize("item", ALL, ids=lambda c: c.id)
def test_a_rule_names_only_commands_that_exist(item: Check) -> None:
    assert set(_COMMAND.findall(item.doc)) <= set(COMMANDS)


def test_the_pages_are_those_of_the_rules() -> None:
    """Mend with: python doctor/docs/generate.py"""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    written = {str(p.relative_to(DOCS)): p.read_text(encoding="utf-8") for p in DOCS.rglob("rules*/*.md")}
    written["rules.md"] = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert written == generate.pages()

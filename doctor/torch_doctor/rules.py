"""What the rules say of themselves: for ``torch-doctor rule``, doctor/docs and whoever reads them as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torch_doctor.model import FAMILIES, HEADINGS, Check
from torch_doctor.report.text import sections

_WHEN = {"check": "environment", "lint": "code", "explain": "log"}


def render(checks: Sequence[Check], format: str, *, pages: bool) -> str:
    """A list of rules, or with ``pages`` the whole text of each, as ``table``, ``json`` or ``markdown``."""
    if format == "json":
        values = [as_dict(item) for item in checks]
        value = values[0] if pages and len(values) == 1 else values
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    if format == "markdown":
        return "\n".join(markdown(item) for item in checks) if pages else index(checks)
    return "\n".join(_page(item) for item in checks) if pages else _list(checks)


def as_dict(item: Check) -> dict[str, object]:
    """One rule as plain values; ``sections`` are keyed by the docstring's headings."""
    text = sections(item)
    return {
        "id": item.id,
        "name": item.name,
        "family": item.family,
        "subject": FAMILIES[item.family],
        "command": item.command,
        "tags": sorted(item.tags),
        "summary": text.pop(""),
        "sections": text,
    }


def markdown(item: Check) -> str:
    """The rule's documentation page."""
    text = sections(item)
    lines = [
        f"# {item.id} {item.name}",
        "",
        text[""],
        "",
        f"Subject: {FAMILIES[item.family]}. Seen in: {_WHEN[item.command]} (`torch-doctor {item.command}`)."
        + (f" Tags: {', '.join(sorted(item.tags))}." if item.tags else ""),
        "",
    ]
    for heading in HEADINGS:
        body = text[heading]
        lines += [f"## {heading}", "", f"```\n{body}\n```" if heading == "Example" else body, ""]
    return "\n".join(lines)


def index(checks: Sequence[Check]) -> str:
    """A Markdown table of the rules that links to their pages."""
    head = ["# Rules", "", "| ID | name | the fault |", "| --- | --- | --- |"]
    rows = [f"| [{c.id}](rules/{c.id}.md) | {c.name} | {_cell(c)} |" for c in checks]
    return "\n".join([*head, *rows, ""])


def _cell(item: Check) -> str:
    return item.doc.splitlines()[0].replace("|", "\\|")


def _list(checks: Sequence[Check]) -> str:
    width = max((len(c.name) for c in checks), default=0)
    return "".join(f"{c.id}  {c.name:{width}}  {c.doc.splitlines()[0]}\n" for c in checks)


def _page(item: Check) -> str:
    return f"{item.id} {item.name} ({FAMILIES[item.family]}; torch-doctor {item.command})\n\n{item.doc}\n"

"""Writes docs/rules.md and docs/rules/<ID>.md from the rules' docstrings: ``python docs/generate.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from torch_doctor import registry, rules

DOCS = Path(__file__).parent


def pages() -> dict[str, str]:
    """Path below docs/ -> text, for the index and every rule."""
    checks = registry.load()
    return {"rules.md": rules.index(checks)} | {f"rules/{c.id}.md": rules.markdown(c) for c in checks}


def main() -> int:
    """Write the pages, and remove those of rules that are gone."""
    wanted = pages()
    (DOCS / "rules").mkdir(exist_ok=True)
    for stale in (DOCS / "rules").glob("*.md"):
        if f"rules/{stale.name}" not in wanted:
            stale.unlink()
    for name, text in wanted.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

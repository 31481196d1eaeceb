"""``torch-doctor rule``: what a rule means."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

import typer

Words = Annotated[Literal["table", "json", "markdown"], typer.Option("--format", help="How it is written.")]


def rule(
    id: Annotated[Optional[str], typer.Argument(metavar="[ID]", help="An ID (SHM001) or a name.")] = None,
    format: Words = "table",
) -> None:
    """What a rule means; lists all without an ID."""
    from torch_doctor import registry, rules
    from torch_doctor.cli import emit

    checks = registry.load() if id is None else registry.find(id)
    emit.write(rules.render(checks, format, pages=id is not None))

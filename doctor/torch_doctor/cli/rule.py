"""``torch-doctor rule``: what a rule means."""

from __future__ import annotations

from typing import Annotated

import typer


def rule(id: Annotated[str | None, typer.Argument(help="An ID or a name.")] = None) -> None:
    """What a rule means; lists all without an ID."""
    from torch_doctor import registry

    if id is None:
        for item in registry.load():
            typer.echo(f"{item.id}  {item.name:40} {item.doc.splitlines()[0]}")
        return
    found = registry.find(id)
    typer.echo(f"{found.id} {found.name} ({registry.FAMILIES[found.family]})\n\n{found.doc}")

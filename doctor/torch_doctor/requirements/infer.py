"""From the parsed files of a program to Requirements."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from torch_doctor.facts.requirements import Requirements
from torch_doctor.requirements import loaders, usage
from torch_doctor.requirements.alive import grouped
from torch_doctor.requirements.complete import least_capability
from torch_doctor.requirements.source import Source


def infer(sources: Sequence[Source], script: str = "") -> Requirements:
    """What the program needs. The first source is the script, the others the modules beside it that it imports."""
    classes = program_classes(sources)
    wrappers = frozenset(name for name, (source, node) in classes.items() if _is_loader(source, node))
    needs = tuple(need for source in sources for need in loaders.loaders(source, classes, wrappers))
    found = [usage.usage(source) for source in sources]
    uses = frozenset(use for one in found for use in one.uses)
    world = max((one.world_size for one in found if one.world_size), default=None)
    gpu = next((one.gpu for one in found if one.gpu), "")
    return Requirements(
        gpus=max((one.gpus for one in found), default=0) if gpu else None,
        gpus_asked=gpu,
        min_compute_capability=least_capability(uses),
        world_size=world,
        local_processes=world or 1,
        loaders=grouped(sources, needs),
        uses=uses,
        compiles=_compiles(uses),
        data_paths=_unique(one.data_paths for one in found),
        checkpoint_paths=_unique(one.checkpoint_paths for one in found),
        start_method=next((one.start_method for one in found if one.start_method), None),
        script=script,
    )


def program_classes(sources: Sequence[Source]) -> dict[str, tuple[Source, ast.ClassDef]]:
    """The program's classes by name; the first file that defines one wins."""
    classes: dict[str, tuple[Source, ast.ClassDef]] = {}
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, (source, node))
    return classes


def _is_loader(source: Source, node: ast.ClassDef) -> bool:
    return any((source.dotted(base) or "").rsplit(".", 1)[-1] in loaders.LOADERS for base in node.bases)


def _compiles(uses: frozenset[str]) -> bool | None:
    if uses & {"compile", "flex_attention", "triton"}:
        return True
    return None if any(use.startswith("framework:") for use in uses) else False


def _unique(groups: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for group in groups for path in group))

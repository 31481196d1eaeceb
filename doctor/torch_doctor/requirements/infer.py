"""From the parsed files of a program to Requirements."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.facts.shm import DEFAULT_NEEDED_BYTES
from torch_doctor.requirements import loaders, usage
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
        min_compute_capability=max((usage.CAPABILITIES[u] for u in uses & set(usage.CAPABILITIES)), default=None),
        world_size=world,
        local_processes=world or 1,
        loaders=needs,
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


def complete(
    found: Requirements, stated: dict[str, Any], *, needs: dict[str, str], sample_bytes: int | None, gpus: str
) -> Requirements:
    """What the source says, overruled by what the user states, and the sums over both.

    Args:
        found: from the script; empty without one.
        stated: fields that ``--need`` gives.
        needs: the same as written.
        sample_bytes: of ``--sample-bytes``, for loaders whose own size the source does not say.
        gpus: ``--gpus`` as written; empty without it. ``stated`` holds its count.
    """
    values = dict(stated)
    values["uses"] = found.uses | values.get("uses", frozenset())
    if "compile" in needs:
        values["compiles"] = "compile" in values["uses"] and needs["compile"] not in ("no", "false", "0", "off")
    if "gpus" in values:
        wanted = values["gpus"] != 0
        values["gpus_asked"] = (f"--gpus {gpus}" if gpus else f"--need gpus={needs['gpus']}") if wanted else ""
    if "min_compute_capability" not in values and values["uses"]:
        floors = [usage.CAPABILITIES[u] for u in values["uses"] & set(usage.CAPABILITIES)]
        values["min_compute_capability"] = max(floors, default=None)
    result = replace(found, **values, stated=needs, loaders=with_sample(found.loaders, sample_bytes))
    if sample_bytes is not None and not result.loaders and result.stated_workers:
        result = replace(result, loaders=(LoaderNeed(0, result.stated_workers, 1, sample_bytes=sample_bytes),))
    result = replace(result, local_processes=_local_processes(result))
    return _with_shm(result, "shm_bytes" in stated)


def with_sample(needs: Sequence[LoaderNeed], sample_bytes: int | None) -> tuple[LoaderNeed, ...]:
    """``--sample-bytes`` is what the user measured: it overrules what the source suggests."""
    if sample_bytes is None:
        return tuple(needs)
    return tuple(replace(need, sample_bytes=sample_bytes) for need in needs)


def _local_processes(found: Requirements) -> int:
    if found.uses & {"ddp", "fsdp"} or found.local_processes > 1:
        return max(found.world_size or 1, found.gpus or 1, 1)
    return 1


def _with_shm(found: Requirements, stated: bool) -> Requirements:
    if stated:
        return replace(found, shm_source=f"--need shm={found.stated['shm']}")
    known = [need.shm_bytes for need in found.loaders if need.shm_bytes]
    if not known:
        return replace(found, shm_bytes=0 if _no_workers(found) else None)
    total = sum(known) * found.local_processes
    if any(need.shm_bytes is None for need in found.loaders) and total < DEFAULT_NEEDED_BYTES:
        # the known part is a lower bound; where it is small it says nothing
        return replace(found, shm_bytes=None)
    return replace(found, shm_bytes=total, shm_source=_shm_source(found))


def _no_workers(found: Requirements) -> bool:
    """Every loader of the script surely works in the main process, and nothing else needs /dev/shm."""
    return bool(found.loaders) and all(n.workers == 0 for n in found.loaders) and found.local_processes == 1


def _shm_source(found: Requirements) -> str:
    big = max((n for n in found.loaders if n.shm_bytes), key=lambda n: n.shm_bytes or 0)
    place = f"{big.path}:{big.line}: " if big.path else ""
    text = f"{place}{big.workers} workers x {big.prefetch_factor or 2} batches x {big.batch_size} samples"
    others = sum(1 for n in found.loaders if n.shm_bytes) - 1
    text += f" and {others} more" if others else ""
    return text + (f", on each of {found.local_processes} processes" if found.local_processes > 1 else "")

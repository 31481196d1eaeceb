"""What the source says, overruled by what the user states, and the sums over both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_doctor.facts.requirements import DEFAULT_PREFETCH, LoaderNeed, Requirements
from torch_doctor.facts.shm import DEFAULT_NEEDED_BYTES

#: least compute capability with hardware for it: CUDA C++ Programming Guide, arithmetic throughput, 2026-11.
#: fp16 runs on every GPU that torch supports, so it asks for none.
CAPABILITIES = {"bf16": (8, 0), "fp8": (8, 9)}


def least_capability(uses: frozenset[str]) -> tuple[int, int] | None:
    """The compute capability that what is used needs; None where any will do."""
    # where both 16-bit types stand in the program, it has a choice
    firm = uses - {"bf16"} if "fp16" in uses else uses
    return max((CAPABILITIES[use] for use in firm & set(CAPABILITIES)), default=None)


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
        values["min_compute_capability"] = least_capability(values["uses"])
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
    alive = _alive_together(found.loaders)
    if not alive:
        return replace(found, shm_bytes=0 if _no_workers(found) else None)
    total = sum(need.shm_bytes or 0 for need in alive) * found.local_processes
    if any(need.shm_bytes is None for need in found.loaders) and total < DEFAULT_NEEDED_BYTES:
        # the known part is a lower bound; where it is small it says nothing
        return replace(found, shm_bytes=None)
    return replace(found, shm_bytes=total, shm_source=_shm_source(alive, found.local_processes))


def _alive_together(needs: Sequence[LoaderNeed]) -> list[LoaderNeed]:
    """The loaders with a known need at the moment that needs most: all of group 0, and the largest other group."""
    groups: dict[int, list[LoaderNeed]] = {}
    for need in needs:
        if need.shm_bytes:
            groups.setdefault(need.group, []).append(need)
    always = groups.pop(0, [])
    return always + max(groups.values(), key=lambda group: sum(n.shm_bytes or 0 for n in group), default=[])


def _no_workers(found: Requirements) -> bool:
    """Every loader of the script surely works in the main process, and nothing else needs /dev/shm."""
    return bool(found.loaders) and all(n.workers == 0 for n in found.loaders) and found.local_processes == 1


def _shm_source(alive: Sequence[LoaderNeed], processes: int) -> str:
    big = max(alive, key=lambda need: need.shm_bytes or 0)
    place = f"{big.path}:{big.line}: " if big.path else ""
    batches = big.prefetch_factor or DEFAULT_PREFETCH
    text = f"{place}{big.workers} workers x {batches} batches x {big.batch_size} samples"
    text += f" and {len(alive) - 1} more" if len(alive) > 1 else ""
    return text + (f", on each of {processes} processes" if processes > 1 else "")

"""DistributedDataParallel: every rank reads the whole data set, or the same order at each epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import is_backward, repeated_in, uses
from torch_doctor.lint.flow import constant, has_star, keyword, origins, reached
from torch_doctor.lint.found import WARNING, finding
from torch_doctor.lint.kinds import is_iterable_dataset
from torch_doctor.lint.loaders import Loader, loaders
from torch_doctor.model import Finding
from torch_doctor.registry import check

_OWN_SAMPLERS = (
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "deepspeed",
    "fastai",
    "webdataset",
    "ignite.distributed",
    "ray",
    "opacus",
)


def _ddp(script: Script) -> bool:
    names = (
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.fully_shard",
    )
    return any(script.index.qual(c) in names for c in script.index.calls)


@check("DST101", "distributed-sampler-missing")
def distributed_sampler_missing(script: Script) -> Iterator[Finding]:
    """A DDP script's training loader has no DistributedSampler.

    What it checks:
        DataLoaders that a loop with backward() reads (or that shuffle), in a file that wraps a model in
        DistributedDataParallel or FSDP, without sampler, batch_sampler or another way to split the data.
    Why it matters:
        Every rank trains on the whole data set: n GPUs do the work of one, n times.
    Example:
        Bad::

            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader
            def main(data, model):
                model = DistributedDataParallel(model)
                return model, DataLoader(data, batch_size=8, shuffle=True)

        Good::

            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader, DistributedSampler
            def main(data, model):
                model = DistributedDataParallel(model)
                return model, DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
    Fix:
        sampler=DistributedSampler(dataset), without shuffle, and sampler.set_epoch(epoch) at each epoch.
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
    """
    if not _ddp(script) or uses(script, *_OWN_SAMPLERS):
        return
    for item in loaders(script):
        if (
            (item.argument("sampler") is not None and not _is_local_sampler(script, item))
            or item.argument("batch_sampler") is not None
            or has_star(item.call)
        ):
            continue
        if (item.dataset is not None and is_iterable_dataset(*item.dataset)) or _split_by_rank(script, item):
            continue
        shuffles = constant(script, item.argument("shuffle")) is True or item.argument("sampler") is not None
        if shuffles or _trains(script, item):
            yield finding(
                script,
                item.call,
                WARNING,
                "no DistributedSampler: every rank trains on the whole data set",
                "sampler=DistributedSampler(dataset) instead of shuffle=True, and set_epoch(epoch) at each epoch",
            )


def _is_local_sampler(script: Script, item: Loader) -> bool:
    """A sampler of torch that knows nothing of ranks."""
    names = ("RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler")
    value = item.argument("sampler")
    found = origins(script, value) if value is not None else []
    return bool(found) and all(
        isinstance(o.node, ast.Call) and dotted(o.node.func).rsplit(".", 1)[-1] in names for o in found
    )


def _split_by_rank(script: Script, item: Loader) -> bool:
    """Whether the data set is cut by rank: Subset(..., rank), dataset[rank::world], split_dataset_by_node."""
    value = item.argument("dataset")
    for origin in origins(script, value) if value is not None else ():
        for node in ast.walk(origin.node):
            if isinstance(node, (ast.Name, ast.Attribute)) and "rank" in dotted(node).lower():
                return True
            if isinstance(node, ast.Call) and any(
                w in dotted(node.func).lower() for w in ("shard", "split_dataset", "iterable")
            ):
                return True
    return False


def _trains(script: Script, item: Loader) -> bool:
    for scope in script.index.module.walk():
        for loop in scope.loops:
            if isinstance(loop, ast.While):
                continue
            node: ast.expr = loop.iter
            while isinstance(node, ast.Call) and node is not item.call and node.args:
                node = node.args[0]
            if any(o.node is item.call for o in origins(script, node)) and any(
                is_backward(w, c) for w, c in reached(script, loop)
            ):
                return True
    return False


@check("DST102", "set-epoch-missing")
def set_epoch_missing(script: Script) -> Iterator[Finding]:
    """A DistributedSampler shuffles and set_epoch() is never called.

    What it checks:
        A DistributedSampler (shuffle is on by default) in a file with an epoch loop and no call of set_epoch.
    Why it matters:
        The seed stays the same, so every epoch has the same order and each rank the same rows.
    Example:
        Bad::

            from torch.utils.data import DataLoader, DistributedSampler
            def train(data, step):
                loader = DataLoader(data, sampler=DistributedSampler(data))
                for epoch in range(9):
                    for x in loader:
                        step(x)

        Good::

            from torch.utils.data import DataLoader, DistributedSampler
            def train(data, step):
                sampler = DistributedSampler(data)
                loader = DataLoader(data, sampler=sampler)
                for epoch in range(9):
                    sampler.set_epoch(epoch)
                    for x in loader:
                        step(x)
    Fix:
        sampler.set_epoch(epoch) at the start of each epoch.
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
    """
    if script.index.by_tail.get("set_epoch") or uses(script, *_OWN_SAMPLERS):
        return
    for call in script.index.by_tail.get("DistributedSampler", ()):
        if constant(script, keyword(call, "shuffle")) is False or has_star(call):
            continue
        if _is_evaluation(script, call) or not _has_epochs(script, call):
            continue
        yield finding(
            script,
            call,
            WARNING,
            "set_epoch() is never called: every epoch has the same order",
            "sampler.set_epoch(epoch) at the start of each epoch",
        )


def _is_evaluation(script: Script, call: ast.Call) -> bool:
    statement = script.index.statement(call)
    targets = getattr(statement, "targets", [])
    shown = [dotted(t).lower() for t in targets] + [dotted(a).lower() for a in call.args[:1]]
    return any(word in name for name in shown for word in ("val", "test", "eval"))


def _has_epochs(script: Script, call: ast.Call) -> bool:
    for scope in script.index.module.walk():
        for loop in scope.loops:
            if isinstance(loop, ast.For) and "epoch" in (dotted(loop.target) + ast.dump(loop.iter)).lower():
                return True
    return any(True for _ in repeated_in(script, call)) and False

"""CUDA in DataLoader workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    keyword,
    origins,
    reached,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, source
from torch_doctor.lint.loaders import dataset_classes, function_named, loaders
from torch_doctor.lint.rules.two_devices import device_of
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("WRK103", "cuda-in-worker", tags={"workers"})
def cuda_in_worker(script: Script) -> Iterator[Finding]:
    """A data set's __getitem__ or a collate_fn uses CUDA.

    What it checks:
        .cuda(), .to("cuda") and device="cuda" in __getitem__, __iter__ and collate_fn, where a loader has workers.
    Why it matters:
        A forked worker fails with "Cannot re-initialize CUDA in forked subprocess"; a spawned one takes a CUDA
        context (some hundred MiB of GPU memory) each.
    Example:
        Bad::

            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __getitem__(self, at):
                    return torch.zeros(3).cuda()
            loader = DataLoader(Rows(), num_workers=4)

        Good::

            import torch
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __getitem__(self, at):
                    return torch.zeros(3)
            loader = DataLoader(Rows(), num_workers=4, pin_memory=True)
            for x in loader:
                x = x.cuda(non_blocking=True)
    Fix:
        Return CPU tensors, set pin_memory=True, move the batch in the training loop.
    References:
        https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing
    """
    yield from _cuda_tensors(script)
    places: list[tuple[Scope, bool]] = []
    for item in dataset_classes(script):
        if item.workers != "none":
            names = ("__getitem__", "__iter__", "__getitems__")
            places += [(c, item.workers == "some") for c in item.scope.children if c.name in names]
    for loader in loaders(script):
        value = loader.argument("collate_fn")
        if value is None or not loader.has_workers:
            continue
        function = function_named(script, value)
        if function is not None:
            places.append((function, True))
    yield from _cuda_kept(script)
    seen: set[ast.AST] = set()
    for scope, sure in places:
        for where, call in reached(script, scope.node, 2):
            if where is script and call not in seen and _uses_cuda(script, call):
                seen.add(call)
                yield finding(
                    script,
                    call,
                    ERROR if sure else WARNING,
                    f"{source(script, call)} runs in a worker: CUDA cannot be initialised in a forked process",
                    "Return CPU tensors, set pin_memory=True, move the batch in the training loop",
                )


def _cuda_tensors(script: Script) -> Iterator[Finding]:
    """DataLoader(TensorDataset(x.cuda()), num_workers=4)."""
    for item in loaders(script):
        given = item.argument("dataset")
        made = [o.node for o in origins(script, given)] if given is not None and item.workers else []
        for call in made:
            if not isinstance(call, ast.Call) or not script.index.qual(call).endswith(".TensorDataset"):
                continue
            if any(device_of(script, a) == "cuda" for a in call.args):
                yield finding(
                    script,
                    item.call,
                    ERROR,
                    f"{source(script, call)} holds CUDA tensors and workers read it: a fork cannot use CUDA",
                    "Keep it on the CPU and move the batch in the training loop, or num_workers=0",
                )


def _cuda_kept(script: Script) -> Iterator[Finding]:
    """A CUDA tensor that __init__ keeps and __getitem__ reads."""
    for item in dataset_classes(script):
        start, reader = item.scope.function("__init__"), item.scope.function("__getitem__")
        if item.workers != "some" or start is None or reader is None:
            continue
        for name, bound in start.bindings.items():
            for binding in bound if name.startswith("self.") else ():
                value = binding.value
                if not isinstance(value, ast.Call) or not _uses_cuda(script, value):
                    continue
                if any(dotted(n) == name for n in ast.walk(reader.node) if isinstance(n, ast.Attribute)):
                    yield finding(
                        script,
                        value,
                        ERROR,
                        f"{name} is a CUDA tensor and the workers read it: a forked process cannot use CUDA",
                        "Keep it on the CPU and move the batch in the training loop",
                    )


def _uses_cuda(script: Script, call: ast.Call) -> bool:
    short = dotted(call.func).rsplit(".", 1)[-1]
    if short == "cuda" and isinstance(call.func, ast.Attribute):
        return True
    values = [keyword(call, "device")]
    if short == "to" and isinstance(call.func, ast.Attribute):
        values += call.args[:1]
    return any(v is not None and _is_cuda(script, v) for v in values)


def _is_cuda(script: Script, value: ast.AST) -> bool:
    for origin in origins(script, value):
        for item in ast.walk(origin.node):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.value.startswith("cuda"):
                return True
    return False

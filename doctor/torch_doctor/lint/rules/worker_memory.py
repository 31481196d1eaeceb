"""Memory that is paid once per worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    argument_for,
    call_sites,
    constant,
    has_star,
    loops_around,
    origins,
)
from torch_doctor.lint.found import NOTE, WARNING, finding
from torch_doctor.lint.loaders import dataset_classes
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: items of a Python container from which on copy-on-write of the reference counts is felt
MANY_ITEMS = 1_000_000


@check("WRK104", "python-objects-times-workers", tags={"workers", "memory", "performance"})
def python_objects_times_workers(script: Script) -> Iterator[Finding]:
    """A data set holds millions of Python objects and several workers touch them.

    What it checks:
        Lists and dicts of at least a million items that __init__ builds by a constant size, where the loader has
        workers.
    Why it matters:
        Reading an object writes its reference count: each worker gets its own copy of the pages in time, so the
        list's memory is paid once per worker until the container is killed.
    Example:
        Bad::

            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.rows = [{"id": i} for i in range(10_000_000)]
                def __getitem__(self, at):
                    return self.rows[at]["id"]
            loader = DataLoader(Rows(), num_workers=8)

        Good::

            import numpy as np
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self):
                    self.rows = np.arange(10_000_000)
                def __getitem__(self, at):
                    return self.rows[at]
            loader = DataLoader(Rows(), num_workers=8)
    Fix:
        Hold the rows in a NumPy array, a tensor, Arrow, or a memory-mapped file; none of them has a reference count
        per row.
    References:
        https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
    """
    for item in dataset_classes(script):
        start = item.scope.function("__init__")
        if item.workers != "some" or start is None:
            continue
        workers = item.loader.workers if item.loader is not None else None
        for name, node, size in _containers(script, start):
            if size >= MANY_ITEMS:
                many = f"{workers} workers" if workers else "each worker"
                yield finding(
                    script,
                    node,
                    WARNING if (workers or 0) * size >= 50 * MANY_ITEMS else NOTE,
                    f"{name} holds {size} Python objects and is read by {many}: each copies them in time",
                    "Hold them in a NumPy array, a tensor or Arrow",
                    evidence={"items": size, "workers": workers},
                )


def _containers(script: Script, start: Scope) -> Iterator[tuple[str, ast.AST, int]]:
    """(attribute, where it is filled, objects in it) of what __init__ keeps: built at once, or appended in a loop."""
    for name, bound in start.bindings.items():
        for binding in bound if name.startswith("self.") else ():
            if binding.value is not None and binding.how == "assign":
                yield name, binding.value, _items(script, binding.value, 3)
    for call in start.calls:
        name = dotted(call.func)
        around = loops_around(script, call)
        if name.startswith("self.") and name.endswith(".append") and around:
            total = 1
            for loop in around:
                total *= _length(script, loop.iter) if isinstance(loop, ast.For) else 0
            yield name.removesuffix(".append"), call, total


def _items(script: Script, value: ast.AST | None, depth: int) -> int:
    """The number of objects that a container expression makes, at least; 0 where it is not known."""
    if value is None or depth == 0:
        return 0
    if isinstance(value, (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)):
        total = 1
        for generator in value.generators:
            if generator.ifs:
                return 0
            total *= _length(script, generator.iter)
        return total
    if (
        isinstance(value, ast.Call)
        and dotted(value.func) in ("list", "dict", "set", "tuple", "sorted")
        and value.args
    ):
        inner = value.args[0]
        return _items(script, inner, depth - 1) or _length(script, inner)
    if isinstance(value, ast.Name):
        return max(
            (_items(script, o.node, depth - 1) for o in origins(script, value) if o.node is not value), default=0
        )
    return 0


def _default(script: Script, name: ast.Name) -> ast.expr | None:
    """The default of a parameter that no call in the file gives another value."""
    scope = script.index.scope(name)
    arguments = getattr(scope.node, "args", None)
    if not isinstance(arguments, ast.arguments) or len(scope.bindings.get(name.id, ())) != 1:
        return None
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = dict(zip([a.arg for a in plain][::-1], arguments.defaults[::-1], strict=False))
    pairs |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    sites = call_sites(script, scope)
    if any(has_star(s) or argument_for(scope, s, name.id) is not None for s in sites):
        return None
    return pairs.get(name.id)


def _length(script: Script, node: ast.AST) -> int:
    if isinstance(node, ast.Call) and dotted(node.func) in ("range", "enumerate", "trange"):
        if dotted(node.func) == "enumerate":
            return _length(script, node.args[0]) if node.args else 0
        values = [_number(script, a) for a in node.args]
        if values and all(isinstance(v, (int, float)) for v in values):
            return int(values[0]) if len(values) == 1 else max(0, int(values[1]) - int(values[0]))  # type: ignore[arg-type]
    return 0


def _number(script: Script, node: ast.AST) -> float | None:
    value = constant(script, node)
    if value is None and isinstance(node, ast.Name):
        value = constant(script, _default(script, node))
    if isinstance(value, (int, float)):
        return value
    if isinstance(node, ast.Call) and dotted(node.func) == "int" and node.args:
        return _number(script, node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Pow)):
        left, right = _number(script, node.left), _number(script, node.right)
        if left is not None and right is not None and left < 1e6 and right < 1e9:
            return left * right if isinstance(node.op, ast.Mult) else left ** min(right, 20)
    return None

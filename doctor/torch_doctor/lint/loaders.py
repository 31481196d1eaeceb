"""The DataLoaders of a file: workers, start method, and the data set class that each is given."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.requirements import LOADER_POSITIONAL
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import class_of, constant, has_star, keyword, origins
from torch_doctor.lint.kinds import is_dataset_class

SPAWNING = ("spawn", "forkserver")


@dataclass(frozen=True, eq=False)
class Loader:
    """One DataLoader call. ``workers`` is None where it is given and not known."""

    call: ast.Call
    workers: int | None
    start_method: str
    dataset: tuple[Script, Scope] | None

    @property
    def has_workers(self) -> bool:
        """True unless it is known to have none: a variable number of workers is meant to be one."""
        return self.workers != 0

    def argument(self, name: str) -> ast.expr | None:
        """What is passed for a parameter, by keyword or position."""
        return argument(self.call, name)


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """What a DataLoader call passes for a parameter."""
    found = keyword(call, name)
    if found is None and name in LOADER_POSITIONAL:
        at = LOADER_POSITIONAL.index(name)
        if at < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
            return call.args[at]
    return found


def loaders(script: Script) -> list[Loader]:
    """Every DataLoader of the file."""
    if "loaders" not in script.memo:
        script.memo["loaders"] = [_loader(script, c) for c in script.index.by_tail.get("DataLoader", ())]
        for alias, target in script.index.imports.items():
            if target.rsplit(".", 1)[-1] == "DataLoader" and alias != "DataLoader":
                script.memo["loaders"] += [_loader(script, c) for c in script.index.by_tail.get(alias, ())]
    found: list[Loader] = script.memo["loaders"]
    return found


def _loader(script: Script, call: ast.Call) -> Loader:
    given = argument(call, "num_workers")
    workers: int | None = 0 if given is None and not has_star(call) else None
    value = constant(script, given)
    if isinstance(value, int):
        workers = int(value)
    context = argument(call, "multiprocessing_context")
    method = _context(script, context) if context is not None else start_method(script)
    return Loader(call, workers, method, _dataset(script, argument(call, "dataset")))


def _context(script: Script, node: ast.expr) -> str:
    value = constant(script, node)
    if isinstance(value, str):
        return value
    for origin in origins(script, node):
        if (
            isinstance(origin.node, ast.Call)
            and dotted(origin.node.func).endswith("get_context")
            and origin.node.args
        ):
            value = constant(script, origin.node.args[0])
            return value if isinstance(value, str) else ""
    return ""


def start_method(script: Script) -> str:
    """What set_start_method sets in this file; "" where nothing does."""
    for call in script.index.by_tail.get("set_start_method", ()):
        value = constant(script, call.args[0] if call.args else keyword(call, "method"))
        if isinstance(value, str):
            return value
    return ""


def _dataset(script: Script, node: ast.expr | None, depth: int = 4) -> tuple[Script, Scope] | None:
    if node is None or depth == 0:  # train = Subset(train, rows) leads to itself
        return None
    for origin in origins(script, node):
        if isinstance(origin.node, ast.Call):
            owner = class_of(origin.script, origin.node)
            if owner is not None:
                return owner
            short = dotted(origin.node.func).rsplit(".", 1)[-1]
            if short in ("Subset", "ConcatDataset") and origin.node.args:
                return _dataset(origin.script, origin.node.args[0], depth - 1)
    return None


def function_named(script: Script, value: ast.expr) -> Scope | None:
    """The function of this file that an argument names: a name, a method of self, a lambda."""
    if isinstance(value, ast.Lambda):
        return script.index.scope_at[value]
    at: Scope | None = script.index.scope(value)
    name = dotted(value)
    if name.startswith("self.") and at is not None and at.owner is not None:
        return at.owner.function(name[5:])
    while at is not None:
        found = at.function(name)
        if found is not None:
            return found
        at = at.parent
    return None


@dataclass(frozen=True, eq=False)
class DatasetClass:
    """A data set class of this file and what its loaders say. ``workers``: "some", "none", or "" (no loader seen)."""

    scope: Scope
    workers: str
    loader: Loader | None


def dataset_classes(script: Script) -> list[DatasetClass]:
    """The data set classes of the file: by their base, or because a DataLoader is given an instance."""
    if "dataset_classes" not in script.memo:
        found = []
        everything = loaders(script)
        for owner in script.index.classes.values():
            own = [x for x in everything if x.dataset is not None and x.dataset[1] is owner]
            if not own and not (is_dataset_class(script, owner) and _has_items(owner)):
                continue
            busy = [x for x in own if x.has_workers]
            workers = "some" if busy else "none" if own else ""
            if not own and everything and all(x.workers == 0 for x in everything):
                workers = "none"
            elif not own and len(everything) and any(x.has_workers and x.dataset is None for x in everything):
                workers = "some"
            found.append(DatasetClass(owner, workers, next(iter(busy or own), None)))
        script.memo["dataset_classes"] = found
    result: list[DatasetClass] = script.memo["dataset_classes"]
    return result


def _has_items(owner: Scope) -> bool:
    return any(c.name in ("__getitem__", "__iter__", "__getitems__") for c in owner.children)

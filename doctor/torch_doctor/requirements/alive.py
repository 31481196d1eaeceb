"""Which DataLoaders of a program have workers at the same time, and so share /dev/shm."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch_doctor.facts.requirements import LoaderNeed
from torch_doctor.requirements.source import Source

#: what keeps an iterator, and with it the workers, beyond one loop
_KEEPERS = frozenset({"iter", "itertools.cycle", "cycle"})


def grouped(sources: Sequence[Source], needs: Sequence[LoaderNeed]) -> tuple[LoaderNeed, ...]:
    """The needs with their ``group`` filled.

    Group 0 is alive all the time: persistent workers, iterators that are kept, and loaders whose name is not known
    (a method of a framework returns them). Loaders of one other group are alive together: one is used within the
    loop over another. Loaders of two groups follow each other.
    """
    kept = {name for source in sources for name in _kept(source)}
    groups: list[set[str]] = [set(need.names) for need in needs if need.names]
    for source in sources:
        for names in _used_together(source, set().union(*groups)):
            groups = _merged(groups, names)
    numbers = {name: number for number, group in enumerate(groups, 1) for name in group}
    return tuple(replace(need, group=_group(need, numbers, kept)) for need in needs)


def _group(need: LoaderNeed, numbers: dict[str, int], kept: set[str]) -> int:
    if need.persistent or not need.names or kept & set(need.names):
        return 0
    return numbers[need.names[0]]


def _merged(groups: list[set[str]], names: set[str]) -> list[set[str]]:
    apart = [group for group in groups if not group & names]
    joined = set().union(names, *(group for group in groups if group & names))
    return [*apart, joined]


def _kept(source: Source) -> Iterator[str]:
    for call, name in source.calls():
        if name in _KEEPERS:
            yield from _identifiers(*call.args)


def _used_together(source: Source, known: set[str]) -> Iterator[set[str]]:
    """Names of loaders that stand in one loop's head, or in the head of one and in its body."""
    for node in source.nodes:
        if isinstance(node, (ast.For, ast.AsyncFor)):
            head = _identifiers(node.iter) & known
            names = head | (_identifiers(*node.body) & known)
            if head and len(names) > 1:
                yield names


def _identifiers(*nodes: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        inner = list(ast.walk(node))
        called = {each.func for each in inner if isinstance(each, ast.Call)}  # model.train() is no loader
        named = (getattr(each, "id", None) or getattr(each, "attr", None) for each in inner if each not in called)
        found.update(name for name in named if isinstance(name, str))
    return found


def names_of(source: Source, call: ast.Call) -> tuple[str, ...]:
    """The names and attributes that a call's value is given to; empty where it is given to none."""
    node: ast.AST = call
    while isinstance(parent := source.parents.get(node), (ast.IfExp, ast.Tuple, ast.Call)):
        if isinstance(parent, ast.Call) and not _wraps(source, parent):
            break
        node = parent
    if not isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        return ()
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
    return tuple(sorted({name for target in targets for name in _targets(target)}))


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _targets(each)
    elif isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr


def _wraps(source: Source, call: ast.Call) -> bool:
    """``accelerator.prepare(DataLoader(...))`` and the like give back the loader."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("prepare", "setup_dataloaders")

"""The DataLoaders of a program: workers, batch size, prefetch and sample size, where the source fixes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch_doctor.facts.requirements import LOADER_POSITIONAL, LoaderNeed
from torch_doctor.requirements.alive import names_of
from torch_doctor.requirements.samples import sample_bytes
from torch_doctor.requirements.source import UNKNOWN, Source, parameters

#: loader classes that take torch's own parameters; by the last part of their dotted name
LOADERS = frozenset({"DataLoader", "MultiEpochsDataLoader", "StatefulDataLoader", "ThreadDataLoader"})
#: settings objects that make loaders: class -> (workers, batch size)
SETTINGS = {
    "TrainingArguments": ("dataloader_num_workers", "per_device_train_batch_size"),
    "Seq2SeqTrainingArguments": ("dataloader_num_workers", "per_device_train_batch_size"),
}

_DEEPEST = 4

Classes = Mapping[str, tuple[Source, ast.ClassDef]]


def loaders(source: Source, classes: Classes, wrappers: frozenset[str] = frozenset()) -> Iterator[LoaderNeed]:
    """Each loader that the file makes, once per call of the function that makes it where its values come from there.

    Args:
        source: the file.
        classes: the program's own classes by name.
        wrappers: dotted names of more classes that take DataLoader's parameters.
    """
    for call, name in source.calls():
        last = name.rsplit(".", 1)[-1]
        if last in LOADERS or name in wrappers:
            yield from _with_callers(source, call, dict(classes))
        elif last in SETTINGS:
            yield _settings(source, call, *SETTINGS[last])


def _with_callers(
    source: Source, call: ast.Call, classes: dict[str, tuple[Source, ast.ClassDef]]
) -> Iterator[LoaderNeed]:
    given = arguments(source, call)
    names = {n.id: n for v in given.values() for n in ast.walk(v) if isinstance(n, ast.Name)}
    owners = {owner for n in names.values() if (owner := source.owner(n)) is not None}
    functions = [o for o in owners if isinstance(o, (ast.FunctionDef, ast.AsyncFunctionDef))]
    callers = [c for c, name in source.calls() if functions and name == functions[0].name]
    if not callers:
        yield replace(_need(source, call, given, {}, {}, classes), names=names_of(source, call))
    for caller in callers:
        passed = _passed(functions[0], caller)
        bound = {k: v for k, v in ((k, source.value(v)) for k, v in passed.items()) if v is not UNKNOWN}
        need = _need(source, call, given, bound, passed, classes)
        returned = isinstance(source.parents.get(call), ast.Return)
        yield replace(need, names=names_of(source, caller if returned else call))


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef, caller: ast.Call) -> dict[str, ast.expr]:
    given = dict(zip(parameters(function), caller.args, strict=False))
    given.update({k.arg: k.value for k in caller.keywords if k.arg})
    return given


def arguments(source: Source, call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a DataLoader call by name, ``**options`` looked up where they are a plain dict."""
    found = dict(zip(LOADER_POSITIONAL, (a for a in call.args if not isinstance(a, ast.Starred)), strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            found.update(_options(source, keyword.value))
    found.update({k.arg: k.value for k in call.keywords if k.arg})
    return found


def _options(source: Source, node: ast.expr, depth: int = 0) -> dict[str, ast.expr]:
    """The entries of a dict of options, with what ``.update()`` and item assignments add to it."""
    found: dict[str, ast.expr] = {}
    if depth > _DEEPEST:  # options = {**options, ...} leads to itself
        return found
    if isinstance(node, ast.Name):
        definition = source.definition(node)
        if definition is not None:
            found.update(_options(source, definition, depth + 1))
        for other in source.nodes:
            found.update(_added(source, other, node.id, depth + 1))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.update(_options(source, value, depth + 1))
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                found[key.value] = value
    elif isinstance(node, ast.Call) and source.dotted(node.func) == "dict":
        found.update({k.arg: k.value for k in node.keywords if k.arg})
    elif isinstance(node, ast.IfExp):  # kwargs = {...} if use_cuda else {}
        found.update({**_options(source, node.orelse, depth + 1), **_options(source, node.body, depth + 1)})
    return found


def _added(source: Source, node: ast.AST, name: str, depth: int) -> dict[str, ast.expr]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        if isinstance(node.func.value, ast.Name) and node.func.value.id == name:
            first = node.args[0] if node.args else None
            same = isinstance(first, ast.Name) and first.id == name
            added = _options(source, first, depth) if first is not None and not same else {}
            return {**added, **{k.arg: k.value for k in node.keywords if k.arg}}
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        if isinstance(target.value, ast.Name) and target.value.id == name and isinstance(target.slice, ast.Constant):
            return {str(target.slice.value): node.value}
    return {}


def _need(
    source: Source,
    call: ast.Call,
    given: Mapping[str, ast.expr],
    bound: Mapping[str, Any],
    passed: Mapping[str, ast.expr],
    classes: dict[str, tuple[Source, ast.ClassDef]],
) -> LoaderNeed:
    def whole(name: str, default: int | None) -> int | None:
        return default if name not in given else _whole(source.value(given[name], bound))

    dataset = given.get("dataset")
    if isinstance(dataset, ast.Name) and dataset.id in passed and source.owner(dataset) is not None:
        dataset = passed[dataset.id]
    batch = None if "batch_sampler" in given and "batch_size" not in given else whole("batch_size", 1)
    return LoaderNeed(
        line=call.lineno,
        workers=whole("num_workers", 0),
        batch_size=batch,
        prefetch_factor=whole("prefetch_factor", None),
        sample_bytes=sample_bytes(source, dataset, classes),
        pin_memory=source.value(given.get("pin_memory"), bound) is True,
        start_method=start_method(source, given.get("multiprocessing_context"), bound),
        path=source.path,
        persistent=source.value(given.get("persistent_workers"), bound) is True,
    )


def _settings(source: Source, call: ast.Call, workers: str, batch: str) -> LoaderNeed:
    given = {k.arg: k.value for k in call.keywords if k.arg}
    count = _whole(source.value(given[workers])) if workers in given else 0
    size = _whole(source.value(given[batch])) if batch in given else 8
    return LoaderNeed(call.lineno, count, size, path=source.path)


def start_method(source: Source, node: ast.expr | None, bound: Mapping[str, Any] | None = None) -> str | None:
    """``"spawn"`` of ``"spawn"`` or ``get_context("spawn")``; None where the source does not say."""
    if isinstance(node, ast.Name):
        definition = source.definition(node)
        node = definition if definition is not None else node
    if isinstance(node, ast.Call) and (source.dotted(node.func) or "").endswith("get_context") and node.args:
        node = node.args[0]
    value = source.value(node, bound)
    return value if value in ("fork", "forkserver", "spawn") else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isdecimal():  # argparse reads a default that is a string, too
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None

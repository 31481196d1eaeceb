"""DataLoader workers: pickling, the main guard, contradicting arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Binding, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    Loop,
    called,
    constant,
    keyword,
    loops_around,
    origins,
    reached,
)
from torch_doctor.lint.found import ERROR, NOTE, finding
from torch_doctor.lint.kinds import is_iterable_dataset, kind
from torch_doctor.lint.loaders import SPAWNING, Loader, dataset_classes, loaders, start_method
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("WRK101", "worker-argument-not-picklable", tags={"workers"})
def worker_argument_not_picklable(script: Script) -> Iterator[Finding]:
    """A loader whose workers are spawned is given a lambda, or a function or class defined in a function.

    What it checks:
        collate_fn, worker_init_fn, the data set and the lambdas in its arguments, where the loader has workers and
        the start method is spawn or forkserver. A note where it is not set: forkserver is the default from Python
        3.14 on.
    Why it matters:
        The worker's arguments are pickled: "Can't pickle <function <lambda>>" at the first batch.
    Example:
        Bad::

            from torch.utils.data import DataLoader
            def main(data):
                return DataLoader(data, num_workers=2, collate_fn=lambda b: b, multiprocessing_context="spawn")

        Good::

            from torch.utils.data import DataLoader
            def keep(b):
                return b
            def main(data):
                return DataLoader(data, num_workers=2, collate_fn=keep, multiprocessing_context="spawn")
    Fix:
        Define the function at module level; functools.partial binds what it needs.
    References:
        https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors
    """
    yield from _kept_by_dataset(script)
    for item in loaders(script):
        if item.workers == 0:
            continue
        for name in ("collate_fn", "worker_init_fn", "dataset", "sampler"):
            value = item.argument(name)
            culprit = _unpicklable(script, value, name) if value is not None else None
            if culprit is None:
                continue
            spawned = item.start_method in SPAWNING
            if not spawned and item.start_method == "fork":
                continue
            if not spawned and not (item.workers or 0) > 0:
                continue
            how = f"{item.start_method}ed" if item.start_method == "spawn" else item.start_method or "forkserver"
            yield finding(
                script,
                value or item.call,
                ERROR if spawned else NOTE,
                f"{culprit} cannot be pickled for {how} workers"
                + ("" if spawned else ", the default from Python 3.14 on"),
                "Define it at module level; functools.partial binds what it needs",
            )


def _kept_by_dataset(script: Script) -> Iterator[Finding]:
    """A data set that keeps a lambda, a local function or a generator in self, under spawned workers."""
    for item in dataset_classes(script):
        if item.workers != "some" or item.loader is None or item.loader.start_method not in SPAWNING:
            continue
        start = item.scope.function("__init__")
        for name, bound in (
            start.bindings.items() if start is not None and not item.scope.function("__getstate__") else ()
        ):
            for binding in bound if name.startswith("self.") and binding_is_kept(bound) else ():
                value = binding.value
                local = isinstance(value, ast.Name) and start is not None and start.function(value.id) is not None
                if isinstance(value, (ast.Lambda, ast.GeneratorExp)) or local:
                    yield finding(
                        script,
                        value or item.scope.node,
                        ERROR,
                        f"{name} of the data set cannot be pickled for spawned workers",
                        "Use a function of module level, or functools.partial of one",
                    )


def binding_is_kept(bound: list[Binding]) -> bool:
    """Whether nothing replaces it later in __init__."""
    return all(b.how == "assign" for b in bound) and len(bound) == 1


def _unpicklable(script: Script, value: ast.expr, name: str) -> str | None:
    if isinstance(value, ast.Lambda):
        return f"the lambda of {name}"
    if isinstance(value, ast.Call):
        short = dotted(value.func).rsplit(".", 1)[-1]
        if short == "partial" and value.args:
            return _unpicklable(script, value.args[0], name)
        if name == "dataset":
            return _of_dataset(script, value)
        return None
    if isinstance(value, ast.Name):
        scope = script.index.scope(value)
        at: Scope | None = scope
        while at is not None and at.kind in ("function", "lambda"):
            if at.function(value.id) is not None:
                return f"{value.id}(), defined within {at.name}(),"
            at = at.parent
        found = [o.node for o in origins(script, value)]
        if any(isinstance(n, ast.Lambda) for n in found):
            return f"the lambda {value.id}"
        if name == "dataset" and len(found) == 1 and isinstance(found[0], ast.Call):
            return _of_dataset(script, found[0])
    return None


def _of_dataset(script: Script, call: ast.Call) -> str | None:
    name = dotted(call.func)
    owner = script.index.classes.get(name)
    if owner is not None and owner.parent is not None and owner.parent.kind == "function":
        return f"{name}, a class defined within {owner.parent.name}(),"
    parts: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
    parts += [o.node for p in parts if isinstance(p, ast.Name) for o in origins(script, p) if o.script is script]
    for part in parts:
        for item in ast.walk(part) if not isinstance(part, ast.arg) else ():
            if isinstance(item, ast.Lambda) and _is_kept(script, item):
                return f"the lambda in {name}(...)"
    return None


def _is_kept(script: Script, node: ast.Lambda) -> bool:
    # sorted(key=lambda ...) and the like use it up at once
    parent = script.index.parent.get(node)
    return not (isinstance(parent, ast.keyword) and parent.arg in ("key", "default")) and not (
        isinstance(parent, ast.Call) and dotted(parent.func) in ("sorted", "map", "filter", "max", "min")
    )


@check("WRK102", "main-guard-missing", tags={"workers"})
def main_guard_missing(script: Script) -> Iterator[Finding]:
    """Processes are spawned from module level, outside if __name__ == "__main__".

    What it checks:
        Loops over a loader with workers, mp.spawn and Process.start at module level, where the start method is spawn
        or forkserver.
    Why it matters:
        Each spawned worker imports the script and runs its module level again: "An attempt has been made to start a
        new process before the current process has finished its bootstrapping phase".
    Example:
        Bad::

            import torch.multiprocessing as mp
            from torch.utils.data import DataLoader
            mp.set_start_method("spawn")
            for x in DataLoader(list(range(8)), num_workers=2):
                print(x)

        Good::

            import torch.multiprocessing as mp
            from torch.utils.data import DataLoader
            if __name__ == "__main__":
                mp.set_start_method("spawn")
                for x in DataLoader(list(range(8)), num_workers=2):
                    print(x)
    Fix:
        Put what runs under if __name__ == "__main__":.
    References:
        https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
    """
    method = start_method(script)
    spawning = [x for x in loaders(script) if x.start_method in SPAWNING and x.has_workers]
    starts: list[ast.AST] = []
    if spawning:
        starts += [loop for loop in script.index.module.loops if _iterates(script, loop, spawning)]
        starts += [c for c in script.index.module.calls if _starts_within(script, c, spawning)]
    for call in script.index.module.calls:
        name = script.index.qual(call)
        if name in ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn") or (
            method in SPAWNING and name.endswith(".start") and call.args == [] and _is_process(script, call)
        ):
            starts.append(call)
    for node in sorted((s for s in starts if not _guarded(script, s)), key=lambda n: n.lineno)[:1]:  # type: ignore[attr-defined]
        yield finding(
            script,
            node,
            ERROR,
            "processes are spawned at module level: every worker runs this line again",
            'Put it under if __name__ == "__main__":',
        )


def _iterates(script: Script, loop: Loop, spawning: list[Loader]) -> bool:
    if isinstance(loop, ast.While):
        return False
    wanted = {x.call for x in spawning}
    node: ast.expr = loop.iter
    while isinstance(node, ast.Call) and node not in wanted and node.args:
        node = node.args[0]
    return any(o.node in wanted for o in origins(script, node))


def _starts_within(script: Script, call: ast.Call, spawning: list[Loader]) -> bool:
    """A module-level call of a function that loops over such a loader."""
    wanted = {x.call for x in spawning}
    if dotted(call.func) in ("next", "iter", "list") and call.args:
        return any(o.node in wanted for o in origins(script, call.args[0]))
    target = called(script, call)
    if target is None or target[0] is not script:
        return False
    inner = {c for _, c in reached(script, target[1].node)}
    return any(_iterates(script, loop, spawning) for loop in target[1].loops) or bool(
        wanted & inner
        and any(
            kind(script, x.iter) == "loader"
            for s in target[1].walk()
            for x in s.loops
            if not isinstance(x, ast.While)
        )
    )


def _is_process(script: Script, call: ast.Call) -> bool:
    value = call.func.value if isinstance(call.func, ast.Attribute) else None
    return value is not None and any(
        isinstance(o.node, ast.Call) and dotted(o.node.func).endswith("Process") for o in origins(script, value)
    )


def _guarded(script: Script, node: ast.AST) -> bool:
    return any(isinstance(p, ast.If) and "__name__" in ast.dump(p.test) for p in script.index.ancestors(node))


@check("WRK105", "workers-restarted-each-epoch", tags={"workers", "performance"})
def workers_restarted_each_epoch(script: Script) -> Iterator[Finding]:
    """The workers of a loader are started anew at every epoch.

    What it checks:
        A training loader with a constant number of workers and without persistent_workers=True that is iterated
        within an epoch loop. Advice: a note.
    Why it matters:
        Starting a worker costs from a tenth of a second (fork) to several seconds (spawn) at each epoch.
    Example:
        Bad::

            from torch.utils.data import DataLoader
            def train(data, step):
                loader = DataLoader(data, num_workers=4)
                for epoch in range(90):
                    for x in loader:
                        step(x)

        Good::

            from torch.utils.data import DataLoader
            def train(data, step):
                loader = DataLoader(data, num_workers=4, persistent_workers=True)
                for epoch in range(90):
                    for x in loader:
                        step(x)
    Fix:
        persistent_workers=True.
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
    """
    for item in loaders(script):
        if (
            not item.workers
            or keyword(item.call, "persistent_workers") is not None
            or any(k.arg is None for k in item.call.keywords)
        ):
            continue
        scope = script.index.scope(item.call)
        for loop in scope.loops:
            if isinstance(loop, ast.While) or not loops_around(script, loop):
                continue
            outer = loops_around(script, loop)[0]
            if (
                isinstance(outer, ast.For)
                and "epoch" in dotted(outer.target).lower()
                and _iterates(script, loop, [item])
            ):
                yield finding(
                    script,
                    item.call,
                    NOTE,
                    f"{item.workers} workers are started anew at every epoch",
                    "persistent_workers=True",
                )
                break


@check("WRK106", "loader-arguments-contradict", tags={"workers"})
def loader_arguments_contradict(script: Script) -> Iterator[Finding]:
    """DataLoader is given arguments that exclude each other.

    What it checks:
        persistent_workers, prefetch_factor, multiprocessing_context or timeout without workers; shuffle together
        with a sampler; batch_sampler together with batch_size, shuffle, sampler or drop_last; shuffle with an
        IterableDataset.
    Why it matters:
        DataLoader raises a ValueError, as a rule after the data set was built.
    Example:
        Bad::

            from torch.utils.data import DataLoader
            def make(data, sampler):
                return DataLoader(data, shuffle=True, sampler=sampler)

        Good::

            from torch.utils.data import DataLoader
            def make(data, sampler):
                return DataLoader(data, sampler=sampler)
    Fix:
        Remove one of them.
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
    """
    for item in loaders(script):
        if not script.index.qual(item.call).startswith("torch.utils.data") or any(
            k.arg is None for k in item.call.keywords
        ):
            continue
        message = _contradiction(script, item)
        if message:
            yield finding(script, item.call, ERROR, message, "Remove one of them")


def _contradiction(script: Script, item: Loader) -> str:
    def true(name: str) -> bool:
        return constant(script, item.argument(name)) is True

    def given(name: str) -> bool:
        value = item.argument(name)
        if value is None or isinstance(value, ast.Constant):
            return value is not None and value.value not in (None, False, 0)
        return kind(script, value) == "other" or _is_sampler(script, value)

    if item.workers == 0:
        if true("persistent_workers"):
            return "persistent_workers=True needs num_workers > 0: ValueError"
        if isinstance(constant(script, item.argument("prefetch_factor")), int):
            return "prefetch_factor needs num_workers > 0: ValueError"
        if isinstance(constant(script, item.argument("multiprocessing_context")), str):
            return "multiprocessing_context needs num_workers > 0: ValueError"
    if true("shuffle") and given("sampler"):
        return "shuffle=True and sampler= exclude each other: ValueError"
    if given("batch_sampler"):
        size = constant(script, item.argument("batch_size"))
        if (isinstance(size, int) and size != 1) or true("shuffle") or true("drop_last") or given("sampler"):
            return "batch_sampler= excludes batch_size, shuffle, sampler and drop_last: ValueError"
    if item.dataset is not None and is_iterable_dataset(*item.dataset) and (true("shuffle") or given("sampler")):
        return "an IterableDataset has no shuffle or sampler: ValueError"
    return ""


def _is_sampler(script: Script, value: ast.AST) -> bool:
    found = list(origins(script, value))
    if any(isinstance(o.node, ast.Constant) and o.node.value is None for o in found):
        return False
    if any(isinstance(o.node, ast.Call) and dotted(o.node.func).endswith("Sampler") for o in found):
        return True
    return len(found) == 1 and isinstance(found[0].node, ast.arg) and "sampler" in found[0].node.arg

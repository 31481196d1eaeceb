"""DataLoader workers: pickling, the main guard, CUDA in workers, memory times workers, contradicting arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Binding, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    Loop,
    argument_for,
    call_sites,
    constant,
    has_star,
    keyword,
    loops_around,
    origins,
    reached,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, source
from torch_doctor.lint.kinds import is_iterable_dataset, kind
from torch_doctor.lint.loaders import SPAWNING, Loader, dataset_classes, loaders, start_method
from torch_doctor.lint.rules.two_devices import device_of
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: items of a Python container from which on copy-on-write of the reference counts is felt
MANY_ITEMS = 1_000_000


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
    from torch_doctor.lint.flow import called

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
        function = _function(script, value)
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


def _function(script: Script, value: ast.expr) -> Scope | None:
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

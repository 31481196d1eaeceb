"""Data sets: random generators copied into every worker, iterable sets read in full by every worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import constant, reached
from torch_doctor.lint.found import NOTE, WARNING, finding
from torch_doctor.lint.kinds import is_iterable_dataset
from torch_doctor.lint.loaders import dataset_classes, function_named, loaders
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: generators with a state of their own: a worker gets a copy. The global one of numpy is seeded by torch.
GENERATORS = frozenset(
    [
        "numpy.random.default_rng",
        "numpy.random.RandomState",
        "numpy.random.Generator",
        "random.Random",
        "torch.Generator",
        "np.random.default_rng",
        "np.random.RandomState",
    ]
)


@check("DAT101", "generator-copied-into-workers", tags={"workers"})
def generator_copied_into_workers(script: Script) -> Iterator[Finding]:
    """A data set makes a random generator in __init__, and every worker gets a copy in the same state.

    What it checks:
        default_rng, RandomState, random.Random and torch.Generator kept in self by __init__ and drawn from when items
        are read, where the loader has workers and nothing seeds it again in the worker. The global generators of
        random, numpy and torch are seeded per worker by current PyTorch.
    Why it matters:
        All workers draw the same numbers: the same crops and flips, n times, and again at every epoch.
    Example:
        Bad::

            import numpy as np
            from torch.utils.data import DataLoader, Dataset
            class Noisy(Dataset):
                def __init__(self):
                    self.rng = np.random.default_rng(0)
                def __getitem__(self, at):
                    return self.rng.normal()
            loader = DataLoader(Noisy(), num_workers=4)

        Good::

            import numpy as np
            from torch.utils.data import DataLoader, Dataset
            class Noisy(Dataset):
                def __getitem__(self, at):
                    return np.random.default_rng([7, at]).normal()
            loader = DataLoader(Noisy(), num_workers=4)
    Fix:
        Seed it in the worker: worker_init_fn with get_worker_info().seed, or make it from (seed, epoch, index).
    References:
        https://docs.pytorch.org/docs/stable/notes/faq.html#my-data-loader-workers-return-identical-random-numbers
    """
    for item in dataset_classes(script):
        start = item.scope.function("__init__")
        if item.workers == "none" or start is None or _seeded_in_worker(script, item.scope):
            continue
        for name, bound in start.bindings.items():
            if not name.startswith("self."):
                continue
            for binding in bound:
                value = binding.value
                while (
                    isinstance(value, ast.Call)
                    and isinstance(value.func, ast.Attribute)
                    and value.func.attr == "manual_seed"
                ):
                    value = value.func.value
                if (
                    isinstance(value, ast.Call)
                    and script.index.qual(value) in GENERATORS
                    and _drawn(item.scope, name)
                ):
                    yield finding(
                        script,
                        value,
                        WARNING if item.workers == "some" else NOTE,
                        f"{name} is copied into every worker in the same state: all draw the same numbers",
                        "Seed it per worker (get_worker_info().seed), or make it from (seed, index)",
                    )


def _drawn(owner: object, name: str) -> bool:
    for child in getattr(owner, "children", ()):
        if child.name not in ("__init__", "set_epoch", "__len__"):
            for scope in child.walk():
                if any(dotted(n) == name for n in ast.walk(scope.node) if isinstance(n, ast.Attribute)):
                    return True
    return False


def _seeded_in_worker(script: Script, owner: object) -> bool:
    if any(x.argument("worker_init_fn") is not None for x in loaders(script)):
        return True
    if script.index.by_tail.get("get_worker_info"):
        return True
    for child in getattr(owner, "children", ()):
        if child.name in ("__getitem__", "__iter__", "set_epoch", "reseed", "seed"):
            for bound in child.bindings.values():
                if any(isinstance(b.value, ast.Call) and script.index.qual(b.value) in GENERATORS for b in bound):
                    return True
            if any(dotted(c.func).rsplit(".", 1)[-1] in ("manual_seed", "seed") for c in child.calls):
                return True
    return False


@check("DAT102", "iterable-dataset-not-split", tags={"workers"})
def iterable_dataset_not_split(script: Script) -> Iterator[Finding]:
    """An IterableDataset is read in full by every worker.

    What it checks:
        An IterableDataset whose __iter__ never asks get_worker_info(), under a loader with a constant number of
        workers above 1 and without worker_init_fn.
    Why it matters:
        Every row comes once per worker: an epoch has n times the rows, each n times.
    Example:
        Bad::

            from torch.utils.data import DataLoader, IterableDataset
            class Rows(IterableDataset):
                def __iter__(self):
                    yield from range(100)
            loader = DataLoader(Rows(), num_workers=4)

        Good::

            from torch.utils.data import DataLoader, IterableDataset, get_worker_info
            class Rows(IterableDataset):
                def __iter__(self):
                    info = get_worker_info()
                    yield from range(info.id if info else 0, 100, info.num_workers if info else 1)
            loader = DataLoader(Rows(), num_workers=4)
    Fix:
        Give each worker its part, by get_worker_info().id and .num_workers.
    References:
        https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset
    """
    if script.index.by_tail.get("get_worker_info") or "worker_info" in script.text:
        return
    for item in loaders(script):
        if (
            not item.workers
            or item.workers < 2
            or item.dataset is None
            or item.argument("worker_init_fn") is not None
        ):
            continue
        where, owner = item.dataset
        iterate = owner.function("__iter__")
        if where is not script or iterate is None or not is_iterable_dataset(script, owner):
            continue
        if any(
            "worker" in dotted(c.func).lower() or "shard" in dotted(c.func).lower()
            for _, c in reached(script, iterate.node)
        ):
            continue
        if any(w in script.segment(iterate.node).lower() for w in ("random", "rand", "queue", "socket", "randint")):
            continue  # an endless random stream has no rows to repeat
        yield finding(
            script,
            item.call,
            WARNING,
            f"each of {item.workers} workers reads all of {owner.name}: every row comes {item.workers} times",
            "Give each worker its part in __iter__, by get_worker_info()",
        )


@check("DAT103", "same-seed-in-every-worker", tags={"workers"})
def same_seed_in_every_worker(script: Script) -> Iterator[Finding]:
    """worker_init_fn, or __getitem__, seeds a generator with a constant.

    What it checks:
        np.random.seed, random.seed or torch.manual_seed with a constant in a worker_init_fn or in __getitem__.
    Why it matters:
        All workers (or all items) draw the same numbers: augmentation repeats itself.
    Example:
        Bad::

            import numpy as np
            from torch.utils.data import DataLoader
            def init(worker):
                np.random.seed(42)
            def make(data):
                return DataLoader(data, num_workers=4, worker_init_fn=init)

        Good::

            import numpy as np
            from torch.utils.data import DataLoader
            def init(worker):
                np.random.seed(42 + worker)
            def make(data):
                return DataLoader(data, num_workers=4, worker_init_fn=init)
    Fix:
        Seed with torch.initial_seed() % 2**32, or add the worker's number.
    References:
        https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader
    """
    places = []
    for loader in loaders(script):
        value = loader.argument("worker_init_fn")
        function = function_named(script, value) if value is not None and loader.has_workers else None
        if function is not None:
            places.append(function)
    for item in dataset_classes(script):
        places += [c for c in item.scope.children if c.name == "__getitem__"]
    for scope in dict.fromkeys(places):
        for call in scope.calls:
            name = script.index.qual(call)
            if (
                name in ("numpy.random.seed", "random.seed", "torch.manual_seed", "torch.random.manual_seed")
                and call.args
            ) and isinstance(constant(script, call.args[0]), int):
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"{name}({ast.unparse(call.args[0])}) gives every worker the same numbers",
                    "Seed with torch.initial_seed() % 2**32, or add the worker's number",
                )

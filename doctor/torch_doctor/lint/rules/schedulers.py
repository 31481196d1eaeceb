"""Learning-rate schedulers: stepped at the wrong place, or at the wrong cadence for their class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import is_backward, is_lightning, is_step, repeated_in, uses
from torch_doctor.lint.flow import (
    Loop,
    calls_in,
    constant,
    has_star,
    in_body,
    keyword,
    loops_around,
    origins,
    place,
    reached,
    receiver,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


@dataclass(frozen=True)
class Cadence:
    """How a scheduler counts. ``unit`` is the argument that says how long it runs: (name, position)."""

    unit: tuple[str, int]
    steps: tuple[str, ...] = ()  # arguments that are given per step where it is stepped per batch


#: torch.optim.lr_scheduler as of torch 2.9: class -> what tells whether it counts epochs or batches
CADENCE = {
    "StepLR": Cadence(("step_size", 1)),
    "MultiStepLR": Cadence(("milestones", 1)),
    "CosineAnnealingLR": Cadence(("T_max", 1)),
    "CosineAnnealingWarmRestarts": Cadence(("T_0", 1)),
    "PolynomialLR": Cadence(("total_iters", 1)),
    "LinearLR": Cadence(("total_iters", 3)),
    "ConstantLR": Cadence(("total_iters", 2)),
    "ExponentialLR": Cadence(("gamma", 1)),
}
#: those whose length is a number of batches
PER_BATCH = {"OneCycleLR": ("total_steps", 2), "CyclicLR": ("step_size_up", 3)}
PER_STEP_MAKERS = {
    "get_linear_schedule_with_warmup": 2,
    "get_cosine_schedule_with_warmup": 2,
    "get_cosine_with_hard_restarts_schedule_with_warmup": 2,
    "get_polynomial_decay_schedule_with_warmup": 2,
    "get_scheduler": 3,
}
_STEP_WORDS = (
    "len",
    "step",
    "steps",
    "iter",
    "iters",
    "iterations",
    "batches",
    "num_batches",
    "updates",
    "max_steps",
)
_EPOCH_WORDS = ("epoch", "epochs", "n_epochs", "num_epochs", "max_epochs", "nepochs", "epoch_count")


@dataclass(frozen=True, eq=False)
class Stepped:
    """One ``scheduler.step()``: how the scheduler was made, and the loops that repeat the call."""

    call: ast.Call
    made: ast.Call
    where: Script
    name: str
    loops: tuple[Loop, ...]


def steps(script: Script) -> Iterator[Stepped]:
    """Every step of a scheduler whose making can be seen."""
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or kind(script, value) != "scheduler":
            continue
        made = [
            o
            for o in origins(script, value)
            if isinstance(o.node, ast.Call) and kind(o.script, o.node) == "scheduler"
        ]
        if len(made) != 1 or not isinstance(made[0].node, ast.Call):
            continue
        name = made[0].script.index.qual(made[0].node).rsplit(".", 1)[-1]
        loops = tuple(dict.fromkeys(repeated_in(script, call)))
        yield Stepped(call, made[0].node, made[0].script, name, loops)


def in_batch_loop(script: Script, item: Stepped) -> bool | None:
    """True where the innermost loop around is one over batches, False for one over epochs, None where unclear."""
    if not item.loops:
        return None
    inner = item.loops[0]
    if isinstance(inner, ast.While):
        return None
    if _epoch_loop(script, inner):
        return False
    trains = any(is_step(w, c) or is_backward(w, c) for w, c in reached(script, inner))
    if trains and (_over_batches(script, inner) or any(_epoch_loop(script, o) for o in item.loops[1:])):
        deeper = [x for x in _inner_loops(script, inner) if any(is_step(script, c) for c in calls_in(script, x))]
        return not deeper
    return None


def _inner_loops(script: Script, loop: ast.AST) -> list[Loop]:
    scope = script.index.scope(loop)
    return [x for x in scope.loops if x is not loop and in_body(x, loop)]


def _epoch_loop(script: Script, loop: ast.AST) -> bool:
    if not isinstance(loop, ast.For):
        return False
    target = dotted(loop.target).lower()
    names = {words.tail(dotted(n)).lower() for n in ast.walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))}
    if "epoch" in target or (any("epoch" in n for n in names) and not _over_batches(script, loop)):
        return True
    # for e in range(n): for x, y in loader: ...
    counts = isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) in ("range", "trange")
    return counts and any(_over_batches(script, inner) for inner in _inner_loops(script, loop))


def _over_batches(script: Script, loop: ast.AST) -> bool:
    if not isinstance(loop, ast.For):
        return False
    node: ast.expr = loop.iter
    while (
        isinstance(node, ast.Call)
        and node.args
        and dotted(node.func).rsplit(".", 1)[-1] in ("enumerate", "tqdm", "iter", "zip", "islice")
    ):
        node = node.args[0]
    return kind(script, node) == "loader" or words.says(words.LOADED, dotted(node))


def _epochs(script: Script, loops: tuple[Loop, ...]) -> int | None:
    """The number of rounds of the epoch loop, where it is a constant."""
    for loop in loops:
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and dotted(loop.iter.func) in ("range", "trange")
        ):
            value = constant(script, loop.iter.args[-1 if len(loop.iter.args) < 3 else 1]) if loop.iter.args else None
            if isinstance(value, int) and _epoch_loop(script, loop):
                return value
    return None


def unit(script: Script, node: ast.AST | None, epochs: int | None) -> str:
    """ "epochs" or "batches": what an argument of a scheduler counts; "" where it cannot be known."""
    if node is None:
        return ""
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        found = {unit(script, e, epochs) for e in node.elts}
        return found.pop() if len(found) == 1 else ""
    text = _counted_by(script, node, 3)
    if text:
        return text
    value = constant(script, node)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if epochs is not None:
            return "epochs" if value <= epochs else ""
        return "epochs" if value <= 200 else ""
    return ""


def _counted_by(script: Script, node: ast.AST, depth: int) -> str:
    epochs = False
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and dotted(item.func) == "len":
            return "batches"
        if isinstance(item, (ast.Name, ast.Attribute)):
            parts = words.tail(dotted(item)).lower().split("_")
            if any(w in parts for w in _STEP_WORDS) and "epoch" not in "".join(parts[:1]):
                return "batches"
            if any(w in parts for w in _EPOCH_WORDS):
                epochs = True
            if depth and isinstance(item, ast.Name):
                for origin in origins(script, item)[:3]:
                    if isinstance(origin.node, (ast.BinOp, ast.Call)):
                        found = _counted_by(origin.script, origin.node, depth - 1)
                        if found == "batches":
                            return found
                        epochs = epochs or found == "epochs"
    return "epochs" if epochs else ""


@check("OPT105", "scheduler-cadence-wrong")
def scheduler_cadence_wrong(script: Script) -> Iterator[Finding]:
    """A scheduler that counts epochs is stepped per batch, or one that counts batches per epoch.

    What it checks:
        Where scheduler.step() stands, against the class and its length: step_size, milestones, T_max, total_steps. A
        StepLR of 10 000 steps, or T_max=epochs * len(loader), may be stepped per batch.
    Why it matters:
        Per batch instead of per epoch, the learning rate is at its end within the first epoch; the other way round it
        never moves.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                        sched.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                    sched.step()
    Fix:
        Move step() to the end of the epoch, or of the batch, as the class counts.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    yield from _left_to_lightning(script)
    if not script.index.by_tail.get("step"):
        return
    for item in steps(script):
        batch = in_batch_loop(script, item)
        if batch is None:
            continue
        message = _per_batch(script, item) if batch else _per_epoch(script, item)
        if message:
            where = "at the end of the epoch" if batch else "after each optimizer step"
            yield finding(script, item.call, WARNING, message, f"Call it {where}")


def _left_to_lightning(script: Script) -> Iterator[Finding]:
    """configure_optimizers of a LightningModule: without interval="step" the trainer steps it once per epoch."""
    for function in script.index.functions:
        if function.name != "configure_optimizers" or not is_lightning(script, function) or function.owner is None:
            continue
        own = function.owner
        by_hand = "automatic_optimization" in script.text or own.function("lr_scheduler_step") is not None
        interval = _intervals(script, function.node)
        for call in function.calls if not by_hand else ():
            name = script.index.qual(call).rsplit(".", 1)[-1]
            if kind(script, call) != "scheduler" or interval not in (set(), {"epoch"}, {"step"}):
                continue
            message = _by_interval(script, call, name, "step" if interval == {"step"} else "epoch")
            if message:
                remedy = '"epoch"' if interval == {"step"} else '"step"'
                yield finding(script, call, WARNING, message, f'{{"scheduler": ..., "interval": {remedy}}}')


def _intervals(script: Script, function: ast.AST) -> set[object]:
    """The values of "interval" in a function."""
    found: set[object] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            keys = zip(node.keys, node.values, strict=True)
            found |= {constant(script, v) for k, v in keys if isinstance(k, ast.Constant) and k.value == "interval"}
        elif isinstance(node, ast.keyword) and node.arg == "interval":
            found.add(constant(script, node.value))
        elif isinstance(node, ast.Constant) and node.value == "interval":
            found.add("")
    return found - {""} if found != {""} else {None}


def _by_interval(script: Script, call: ast.Call, name: str, interval: str) -> str:
    known = CADENCE.get(name)
    at = PER_BATCH.get(name) or (known and known.unit)
    if name in PER_STEP_MAKERS:
        at = ("num_training_steps", PER_STEP_MAKERS[name])
    if interval == "epoch" and name in ("StepLR", "MultiStepLR"):
        return ""  # lr_step, step_size: its own word for a number of epochs
    value = _argument(call, *at) if at else None
    counted = _counted_by(script, value, 3) if value is not None else ""
    if interval == "step":
        return f"{name} counts epochs and Lightning steps it once per batch" if known and counted == "epochs" else ""
    if name == "OneCycleLR" or counted == "batches":
        return f"{name} counts batches and Lightning steps it once per epoch"
    return ""


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    found = keyword(call, name)
    if found is None and len(call.args) > position and not has_star(call):
        found = call.args[position]
    return found


def _per_batch(script: Script, item: Stepped) -> str:
    if _conditional(script, item):
        return ""
    if item.name == "ReduceLROnPlateau":
        return "ReduceLROnPlateau counts epochs without improvement and is stepped once per batch"
    if item.name in ("LambdaLR", "MultiplicativeLR") and _decays_by_epoch(item):
        return f"{item.name} is given a factor per epoch and is stepped once per batch"
    epochs = _epochs(script, item.loops)
    if item.name == "SequentialLR" and _all_count_epochs(item, epochs):
        return "the schedulers of SequentialLR count epochs and it is stepped once per batch"
    known = CADENCE.get(item.name)
    if known is None or _fraction(item.call):
        return ""
    value = _argument(item.made, *known.unit)
    if item.name == "ExponentialLR":
        gamma = constant(item.where, value)
        if isinstance(gamma, float) and gamma <= 0.99:
            return f"ExponentialLR multiplies by {gamma} at every batch: the learning rate is gone within one epoch"
        return ""
    if item.name in ("LinearLR", "ConstantLR") and (value is None or (epochs is None and _is_number(item, value))):
        return ""  # a warm-up of so many batches, as a rule
    if unit(item.where, value, epochs) == "epochs" or _is_number_of_epochs(script, item, value):
        return (
            f"{item.name} counts epochs ({known.unit[0]}={source(item.where, value)}) and is stepped once per batch"  # type: ignore[arg-type]
        )
    return ""


def _is_number(item: Stepped, value: ast.expr) -> bool:
    return isinstance(constant(item.where, value), (int, float)) and not _counted_by(item.where, value, 3)


def _is_number_of_epochs(script: Script, item: Stepped, value: ast.expr | None) -> bool:
    """Whether an argument is what the epoch loop counts to: T_max=n and for e in range(n)."""
    name = dotted(value) if value is not None else ""
    for loop in item.loops[1:] if item.where is script and name else ():
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and _epoch_loop(script, loop):
            return bool(loop.iter.args) and dotted(loop.iter.args[-1]) == name
    return False


def _all_count_epochs(item: Stepped, epochs: int | None) -> bool:
    """Whether each scheduler within a SequentialLR has a length that counts epochs."""
    listed = _argument(item.made, "schedulers", 1)
    found = [o.node for o in origins(item.where, listed)] if listed is not None else []
    inner = found[0].elts if len(found) == 1 and isinstance(found[0], (ast.List, ast.Tuple)) else []
    units = set()
    for element in inner:
        made = [o.node for o in origins(item.where, element)]
        call = made[0] if len(made) == 1 else None
        known = CADENCE.get(item.where.index.qual(call).rsplit(".", 1)[-1]) if isinstance(call, ast.Call) else None
        value = _argument(call, *known.unit) if known is not None and isinstance(call, ast.Call) else None
        units.add(unit(item.where, value, epochs))
    return units == {"epochs"}


def _decays_by_epoch(item: Stepped) -> bool:
    """``lambda epoch: 0.95 ** epoch``: the parameter's name and a power of a constant say what is counted."""
    given = _argument(item.made, "lr_lambda", 1)
    found = [o.node for o in origins(item.where, given)] if given is not None else []
    function = found[0] if len(found) == 1 else given
    if (
        not isinstance(function, ast.Lambda)
        or len(function.args.args) != 1
        or "epoch" not in function.args.args[0].arg
    ):
        return False
    body = function.body
    own = function.args.args[0].arg
    if any(_counted_by(item.where, n, 3) == "epochs" for n in _others(body, own)) and not any(
        _counted_by(item.where, n, 3) == "batches" for n in _others(body, own)
    ):
        return True
    base = body.left if isinstance(body, ast.BinOp) and isinstance(body.op, ast.Pow) else body
    return isinstance(base, ast.Constant) and isinstance(base.value, float) and base.value < 0.99


def _others(body: ast.AST, own: str) -> list[ast.AST]:
    """The names in a lambda's body, its own parameter aside."""
    return [n for n in ast.walk(body) if isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) != own]


def _conditional(script: Script, item: Stepped) -> bool:
    """Whether the step is under a condition on the batch's number: every n batches may be an epoch."""
    for parent in script.index.ancestors(item.call):
        if parent is item.loops[0] or isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if (
            isinstance(parent, ast.If)
            and not all(isinstance(n, (ast.Name, ast.Attribute, ast.Constant)) for n in [parent.test])
            and any(isinstance(n, (ast.BinOp, ast.Call, ast.Eq)) for n in ast.walk(parent.test))
        ):
            return True
    return False


def _fraction(call: ast.Call) -> bool:
    """scheduler.step(epoch + i / n): the position is given, so the cadence does not matter."""
    return bool(call.args)


def _per_epoch(script: Script, item: Stepped) -> str:
    if item.name in PER_BATCH:
        name, position = PER_BATCH[item.name]
        value = _argument(item.made, name, position)
        if item.name == "OneCycleLR" and keyword(item.made, "steps_per_epoch") is not None:
            per = constant(item.where, keyword(item.made, "steps_per_epoch"))
            return "" if per == 1 else "OneCycleLR has steps_per_epoch and is stepped once per epoch"
        counted = unit(item.where, value, _epochs(script, item.loops))
        if counted == "batches":
            return f"{item.name} counts batches ({name}={source(item.where, value)}) and is stepped once per epoch"  # type: ignore[arg-type]
        if (
            isinstance(big := constant(item.where, value), int)
            and (few := _epochs(script, item.loops))
            and big >= 10 * few
        ):
            return f"{item.name} counts {big} steps and is stepped once in each of {few} epochs"
        if item.name == "CyclicLR" and value is None and _trains_inside(script, item):
            return "CyclicLR counts batches (step_size_up=2000) and is stepped once per epoch"
        return ""
    if item.name in PER_STEP_MAKERS:
        value = _argument(item.made, "num_training_steps", PER_STEP_MAKERS[item.name])
        if unit(item.where, value, None) == "batches":
            return f"{item.name} counts batches and is stepped once per epoch"
        return ""
    known = CADENCE.get(item.name)
    if known is None or item.name == "ExponentialLR" or item.call.args:
        return ""
    value = _argument(item.made, *known.unit)
    if value is not None and any(
        isinstance(n, ast.Call) and dotted(n.func) == "len" for n in _values(item.where, value)
    ):
        return (
            f"{item.name} counts batches ({known.unit[0]}={source(item.where, value)}) and is stepped once per epoch"
        )
    return ""


def _values(script: Script, node: ast.AST) -> Iterator[ast.AST]:
    yield from ast.walk(node)
    for origin in origins(script, node):
        if not isinstance(origin.node, ast.arg):
            yield from ast.walk(origin.node)


def _trains_inside(script: Script, item: Stepped) -> bool:
    return bool(item.loops) and any(is_step(w, c) for w, c in reached(script, item.loops[0]))


@check("OPT106", "scheduler-stepped-first")
def scheduler_stepped_first(script: Script) -> Iterator[Finding]:
    """scheduler.step() runs before optimizer.step().

    What it checks:
        A scheduler that is stepped in a loop before the optimizer's step in the same round.
    Why it matters:
        The first value of the schedule is skipped, and PyTorch warns "Detected call of lr_scheduler.step() before
        optimizer.step()".
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    sched.step()
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                    sched.step()
    Fix:
        Step the scheduler after the optimizer.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    if uses(script, "lightning", "pytorch_lightning"):
        return
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or kind(script, value) != "scheduler" or call.args or call.keywords:
            continue
        loop = next(iter(loops_around(script, call)), None)
        statement = script.index.statement(call)
        if loop is None or not isinstance(statement, ast.Expr) or statement not in loop.body:
            continue
        at = loop.body.index(statement)
        before = [s for s in loop.body[:at] if _trains(script, s)]
        after = [s for s in loop.body[at + 1 :] if _trains(script, s)]
        if after and not before:
            yield finding(
                script,
                call,
                WARNING,
                f"{source(script, call)} comes before the optimizer's step: the first learning rate is skipped",
                "Call it after the optimizer's step",
            )


def _trains(script: Script, statement: ast.stmt) -> bool:
    return any(is_step(w, c) for w, c in reached(script, statement, 3))


@check("OPT107", "plateau-without-metric")
def plateau_without_metric(script: Script) -> Iterator[Finding]:
    """ReduceLROnPlateau.step() is called without the metric.

    What it checks:
        step() without an argument on a ReduceLROnPlateau.
    Why it matters:
        It raises a TypeError at the end of the first epoch.
    Example:
        Bad::

            import torch
            def train(opt, epochs):
                sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
                for epoch in range(epochs):
                    sched.step()

        Good::

            import torch
            def train(opt, epochs, validate):
                sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
                for epoch in range(epochs):
                    sched.step(validate())
    Fix:
        scheduler.step(validation_loss).
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html
    """
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or call.args or call.keywords:
            continue
        made = [
            o.script.index.qual(o.node).rsplit(".", 1)[-1]
            for o in origins(script, value)
            if isinstance(o.node, ast.Call)
        ]
        if made and set(made) == {"ReduceLROnPlateau"}:
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call)} needs the metric: ReduceLROnPlateau raises TypeError without it",
                "scheduler.step(validation_loss)",
            )


@check("OPT108", "scheduler-never-stepped")
def scheduler_never_stepped(script: Script) -> Iterator[Finding]:
    """A scheduler is made and never stepped.

    What it checks:
        A scheduler held by a local name that is used nowhere in a function that trains.
    Why it matters:
        The learning rate stays at its first value.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.999)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
                    sched.step()
    Fix:
        scheduler.step() at the end of each epoch, or remove it.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    for assign in script.index.statements[ast.Assign]:
        value, targets = getattr(assign, "value", None), getattr(assign, "targets", [])
        if not isinstance(value, ast.Call) or len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        if not script.index.qual(value).startswith("torch.optim.lr_scheduler."):
            continue
        scope, name = script.index.scope(assign), targets[0].id
        if any(
            n is not targets[0] for s in scope.walk() for n in s.names.get(name, ()) if isinstance(n.ctx, ast.Load)
        ):
            continue
        if any(is_step(script, c) and place(c) > place(assign) for c in scope.calls):
            yield finding(
                script, value, WARNING, f"{name} is made and never stepped", f"{name}.step() at the end of each epoch"
            )


__all__ = ["steps"]

"""Learning-rate schedulers that are stepped at another cadence than they count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.cadence import (
    CADENCE,
    PER_BATCH,
    PER_STEP_MAKERS,
    Stepped,
    counted_by,
    epochs_of,
    in_batch_loop,
    is_epoch_loop,
    steps,
    unit,
)
from torch_doctor.lint.events import is_lightning, is_step
from torch_doctor.lint.flow import (
    constant,
    has_star,
    keyword,
    origins,
    reached,
)
from torch_doctor.lint.found import WARNING, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


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
    counted = counted_by(script, value, 3) if value is not None else ""
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
    epochs = epochs_of(script, item.loops)
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
    return isinstance(constant(item.where, value), (int, float)) and not counted_by(item.where, value, 3)


def _is_number_of_epochs(script: Script, item: Stepped, value: ast.expr | None) -> bool:
    """Whether an argument is what the epoch loop counts to: T_max=n and for e in range(n)."""
    name = dotted(value) if value is not None else ""
    for loop in item.loops[1:] if item.where is script and name else ():
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and is_epoch_loop(script, loop):
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
    if any(counted_by(item.where, n, 3) == "epochs" for n in _others(body, own)) and not any(
        counted_by(item.where, n, 3) == "batches" for n in _others(body, own)
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
        counted = unit(item.where, value, epochs_of(script, item.loops))
        if counted == "batches":
            return f"{item.name} counts batches ({name}={source(item.where, value)}) and is stepped once per epoch"  # type: ignore[arg-type]
        if (
            isinstance(big := constant(item.where, value), int)
            and (few := epochs_of(script, item.loops))
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

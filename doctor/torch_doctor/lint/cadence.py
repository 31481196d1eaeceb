"""What learning-rate schedulers count, and how often they are stepped."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import is_backward, is_step, repeated_in
from torch_doctor.lint.flow import (
    Loop,
    calls_in,
    constant,
    in_body,
    origins,
    reached,
    receiver,
)
from torch_doctor.lint.kinds import kind


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
    if is_epoch_loop(script, inner):
        return False
    trains = any(is_step(w, c) or is_backward(w, c) for w, c in reached(script, inner))
    if trains and (over_batches(script, inner) or any(is_epoch_loop(script, o) for o in item.loops[1:])):
        deeper = [x for x in _inner_loops(script, inner) if any(is_step(script, c) for c in calls_in(script, x))]
        return not deeper
    return None


def _inner_loops(script: Script, loop: ast.AST) -> list[Loop]:
    scope = script.index.scope(loop)
    return [x for x in scope.loops if x is not loop and in_body(x, loop)]


def is_epoch_loop(script: Script, loop: ast.AST) -> bool:
    """Whether a loop runs over epochs: by its target or bound, or as it holds a loop over batches."""
    if not isinstance(loop, ast.For):
        return False
    target = dotted(loop.target).lower()
    names = {words.tail(dotted(n)).lower() for n in ast.walk(loop.iter) if isinstance(n, (ast.Name, ast.Attribute))}
    if "epoch" in target or (any("epoch" in n for n in names) and not over_batches(script, loop)):
        return True
    # for e in range(n): for x, y in loader: ...
    counts = isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) in ("range", "trange")
    return counts and any(over_batches(script, inner) for inner in _inner_loops(script, loop))


def over_batches(script: Script, loop: ast.AST) -> bool:
    """Whether a loop runs over the batches of a loader."""
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


def epochs_of(script: Script, loops: tuple[Loop, ...]) -> int | None:
    """The number of rounds of the epoch loop, where it is a constant."""
    for loop in loops:
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.iter, ast.Call)
            and dotted(loop.iter.func) in ("range", "trange")
        ):
            value = constant(script, loop.iter.args[-1 if len(loop.iter.args) < 3 else 1]) if loop.iter.args else None
            if isinstance(value, int) and is_epoch_loop(script, loop):
                return value
    return None


def unit(script: Script, node: ast.AST | None, epochs: int | None) -> str:
    """ "epochs" or "batches": what an argument of a scheduler counts; "" where it cannot be known."""
    if node is None:
        return ""
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        found = {unit(script, e, epochs) for e in node.elts}
        return found.pop() if len(found) == 1 else ""
    text = counted_by(script, node, 3)
    if text:
        return text
    value = constant(script, node)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if epochs is not None:
            return "epochs" if value <= epochs else ""
        return "epochs" if value <= 200 else ""
    return ""


def counted_by(script: Script, node: ast.AST, depth: int) -> str:
    """ "epochs" or "batches" by the words in an expression, names followed; "" where there are none."""
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
                        found = counted_by(origin.script, origin.node, depth - 1)
                        if found == "batches":
                            return found
                        epochs = epochs or found == "epochs"
    return "epochs" if epochs else ""

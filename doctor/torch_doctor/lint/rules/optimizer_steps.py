"""Optimizer steps: gradients that are cleared before them, and steps that never come."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import (
    is_backward,
    is_step,
    is_zero,
    step_target,
)
from torch_doctor.lint.flow import (
    calls_in,
    inside,
    loops_around,
    reached,
    receiver,
)
from torch_doctor.lint.found import ERROR, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("OPT102", "gradients-cleared-before-step")
def gradients_cleared_before_step(script: Script) -> Iterator[Finding]:
    """zero_grad() runs between backward() and step(), so the step uses no gradient.

    What it checks:
        backward(), zero_grad() and step() of one optimizer in this order in one block.
    Why it matters:
        The gradients are gone before they are used: the model does not learn.
    Example:
        Bad::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    loss_fn(model(x), y).backward()
                    opt.zero_grad()
                    opt.step()

        Good::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
    Fix:
        Move zero_grad() before backward() or after step().
    References:
        https://docs.pytorch.org/docs/stable/optim.html#taking-an-optimization-step
    """
    for call in script.index.by_tail.get("zero_grad", ()):
        target = receiver(call)
        block = block_of(script, call)
        statement = script.index.statement(call)
        if target is None or statement not in block or statement is None:
            continue
        at = block.index(statement)
        earlier = _last_event(script, block[:at], dotted(target))
        after = _first_event(script, block[at + 1 :], dotted(target))
        if (
            not earlier
            and _steps_then_backward(script, block[at + 1 :], dotted(target))
            and loops_around(script, call)
        ):
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, target)} is stepped before backward(): its gradients are cleared unused",
                "zero_grad(), then backward(), then step()",
            )
            continue
        if earlier == "backward" and after == "step" and not any(c.args for c in [call]):
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call)} erases the gradients between backward() and step()",
                "Move it before backward() or after step()",
            )


def block_of(script: Script, node: ast.AST) -> list[ast.stmt]:
    """The statements among which a node's statement stands."""
    statement = script.index.statement(node)
    parent = script.index.parent.get(statement) if statement is not None else None
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return []


def _events(script: Script, statement: ast.stmt, optimizer: str) -> list[str]:
    found = []
    for call in calls_in(script, statement):
        if is_backward(script, call):
            found.append("backward")
        elif (target := step_target(script, call)) is not None:
            if dotted(target) == optimizer or (
                kind(script, receiver(call) or call) == "optimizer" and "." not in optimizer
            ):
                found.append("step" if dotted(target) == optimizer or True else "")
        elif is_zero(script, call):
            found.append("zero")
    return found


def _steps_then_backward(script: Script, block: list[ast.stmt], optimizer: str) -> bool:
    found = [e for statement in block for e in _events(script, statement, optimizer)]
    return found == ["step", "backward"] and all(isinstance(s, (ast.Expr, ast.Assign, ast.AugAssign)) for s in block)


def _last_event(script: Script, block: list[ast.stmt], optimizer: str) -> str:
    for statement in reversed(block):
        found = _events(script, statement, optimizer)
        if found:
            simple = isinstance(statement, (ast.Expr, ast.With))
            return found[-1] if simple else ""
    return ""


def _first_event(script: Script, block: list[ast.stmt], optimizer: str) -> str:
    for statement in block:
        found = _events(script, statement, optimizer)
        if found:
            return found[0] if isinstance(statement, (ast.Expr, ast.With)) else ""
    return ""


@check("OPT103", "step-missing")
def step_missing(script: Script) -> Iterator[Finding]:
    """A loop runs backward() and zero_grad() and nothing steps the optimizer.

    What it checks:
        Loops over batches with backward() and zero_grad() of an optimizer made in the same function, where no step()
        is called in the function and nothing that cannot be read is handed the optimizer.
    Why it matters:
        The model stays as it was initialised.
    Example:
        Bad::

            import torch
            def train(model, loader, loss_fn):
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()

        Good::

            import torch
            def train(model, loader, loss_fn):
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
    Fix:
        opt.step() after backward().
    References:
        https://docs.pytorch.org/docs/stable/optim.html#taking-an-optimization-step
    """
    for call in script.index.by_tail.get("zero_grad", ()):
        target = receiver(call)
        loops = loops_around(script, call)
        if not isinstance(target, ast.Name) or not loops or kind(script, target) != "optimizer":
            continue
        scope = script.index.scope(call)
        uses_of = [n for s in scope.walk() for n in s.names.get(target.id, ()) if isinstance(n.ctx, ast.Load)]
        known = all(_is_method_use(script, n) for n in uses_of)
        bodies = [c for c in calls_in(script, loops[0]) if is_backward(script, c)]
        reads = any(inside(a, loops[0]) for a in script.index.attributes.get("grad", ()))
        if reads or not known or not bodies or any(b.keywords or b.args for b in bodies):
            continue
        if (
            not any(dotted(c.func) == f"{target.id}.step" for s in scope.walk() for c in s.calls)
            and _only_zero(script, uses_of)
        ) and not any(is_step(w, c) for w, c in reached(script, loops[0])):
            yield finding(
                script,
                bodies[0],
                ERROR,
                f"{target.id} is never stepped: backward() and zero_grad() alone change nothing",
                f"{target.id}.step() after backward()",
            )


def _is_method_use(script: Script, node: ast.AST) -> bool:
    return isinstance(script.index.parent.get(node), ast.Attribute)


def _only_zero(script: Script, nodes: list[ast.Name]) -> bool:
    return all(
        getattr(script.index.parent.get(n), "attr", "") in ("zero_grad", "param_groups", "state_dict") for n in nodes
    )

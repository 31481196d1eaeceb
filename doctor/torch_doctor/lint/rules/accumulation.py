"""Gradients that are accumulated over batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.script import Script
from torch_doctor.lint.events import (
    backward_calls,
    backward_loss,
    engine_backward,
    is_forward,
    is_step,
    is_zero,
    repeated_in,
    uses,
)
from torch_doctor.lint.flow import (
    calls_in,
    constant,
    in_body,
    inside,
    keyword,
    loops_around,
    origins,
)
from torch_doctor.lint.found import WARNING, finding, source
from torch_doctor.lint.rules.retention import makes_scalar
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("OPT104", "accumulation-not-scaled")
def accumulation_not_scaled(script: Script) -> Iterator[Finding]:
    """Gradients are accumulated over several batches and the loss is not divided by their number.

    What it checks:
        A loop with backward() at every batch and step() under "if (i + 1) % k == 0", where the loss of a mean loss
        function is never divided by k.
    Why it matters:
        The gradient is k times as large as with one large batch: the learning rate is k times too high.
    Example:
        Bad::

            def train(model, loader, opt, loss_fn, k):
                for i, (x, y) in enumerate(loader):
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    if (i + 1) % k == 0:
                        opt.step()
                        opt.zero_grad()

        Good::

            def train(model, loader, opt, loss_fn, k):
                for i, (x, y) in enumerate(loader):
                    loss = loss_fn(model(x), y) / k
                    loss.backward()
                    if (i + 1) % k == 0:
                        opt.step()
                        opt.zero_grad()
    Fix:
        (loss / k).backward().
    References:
        https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
    """
    if uses(script, "accelerate", "lightning", "pytorch_lightning", "deepspeed"):
        return
    for call in backward_calls(script):
        round_ = _round(script, call)
        if round_ is None or engine_backward(script, call) or _guarded_by_modulo(script, call, round_):
            continue
        steps = [c for c in calls_in(script, round_) if is_step(script, c)]
        guards = [_guarded_by_modulo(script, c, round_) for c in steps]
        clears = [c for c in calls_in(script, round_) if is_zero(script, c)]
        if (
            not steps
            or not all(guards)
            or not clears
            or not all(_guarded_by_modulo(script, c, round_) for c in clears)
        ):
            continue
        loss = backward_loss(script, call)
        if any(inside(a, round_) for a in script.index.attributes.get("grad", ())):
            continue  # the gradients are seen to by hand
        if loss is not None and _plain_mean(script, loss, round_):
            yield finding(
                script,
                call,
                WARNING,
                f"the loss is not divided by the number of accumulated batches ({source(script, guards[0])})",  # type: ignore[arg-type]
                f"({source(script, loss)} / steps).backward()",
            )


def _round(script: Script, call: ast.Call) -> ast.AST | None:
    """What is run for each batch: the loop around a call, or its function where that is called in a loop."""
    loops = loops_around(script, call)
    if loops:
        return loops[0]
    scope = script.index.scope(call)
    return scope.node if scope.kind == "function" and next(repeated_in(script, call), None) is not None else None


def _guarded_by_modulo(script: Script, call: ast.AST, loop: ast.AST) -> ast.expr | None:
    for item in script.index.ancestors(call):
        if item is loop:
            return None
        if isinstance(item, ast.If):
            for part in ast.walk(item.test):
                if (
                    isinstance(part, ast.BinOp)
                    and isinstance(part.op, ast.Mod)
                    and not isinstance(part.left, ast.Constant)
                ):
                    return part
            for origin in [n for n in ast.walk(item.test) if isinstance(n, ast.Name)]:
                scope = script.index.scope(origin)
                for bound in scope.bindings.get(origin.id, ()):
                    if bound.value is not None and bound.how == "assign" and in_body(bound.node, loop):
                        for part in ast.walk(bound.value):
                            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                                return part
    return None


def _plain_mean(script: Script, loss: ast.expr, loop: ast.AST) -> bool:
    """Whether a loss comes from a loss function of this file's making and is never divided or weighted."""
    if isinstance(loss, ast.Name):
        scope = script.index.scope(loss)
        bound = [b for b in scope.bindings.get(loss.id, ()) if in_body(b.node, loop)]
        if len(bound) != 1 or bound[0].how != "assign" or bound[0].value is None:
            return False
        loss = bound[0].value
    if isinstance(loss, ast.Attribute) and loss.attr == "loss":
        # of what a model returns that is given the labels: the mean over its batch (transformers)
        return _is_output(script, loss.value, loop)
    if not isinstance(loss, ast.Call) or not makes_scalar(script, loss):
        return False
    return not _sums(script, loss)


def _is_output(script: Script, node: ast.expr, loop: ast.AST) -> bool:
    """Whether a value is what a module returned in this round."""
    if isinstance(node, ast.Call):
        return is_forward(script, node)
    bound = script.index.scope(node).bindings.get(node.id, ()) if isinstance(node, ast.Name) else ()
    return (
        len(bound) == 1
        and in_body(bound[0].node, loop)
        and isinstance(bound[0].value, ast.Call)
        and (is_forward(script, bound[0].value))
    )


def _sums(script: Script, call: ast.Call) -> bool:
    made = [o.node for o in origins(script, call.func) if isinstance(o.node, ast.Call)]
    for item in [call, *made]:
        value = keyword(item, "reduction")
        if value is not None and constant(script, value) != "mean":
            return True
    return isinstance(call.func, ast.Attribute) and call.func.attr == "sum"

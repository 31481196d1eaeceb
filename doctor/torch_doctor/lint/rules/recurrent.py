"""Recurrent states that are carried from batch to batch with their graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import is_backward, is_forward, step_target
from torch_doctor.lint.flow import (
    calls_in,
    constant,
    in_body,
    inside,
    keyword,
    loops_around,
)
from torch_doctor.lint.found import ERROR, finding
from torch_doctor.lint.grad_mode import grad_off
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD108", "hidden-state-not-detached")
def hidden_state_not_detached(script: Script) -> Iterator[Finding]:
    """A recurrent state is carried from batch to batch with its graph.

    What it checks:
        out, h = model(x, h) in a loop that runs backward() at each round, where h is bound before the loop and never
        detached or made anew in it.
    Why it matters:
        The second backward() goes back into the first batch's graph: "Trying to backward through the graph a second
        time".
    Example:
        Bad::

            def train(model, loader, opt, loss_fn, h):
                for x, y in loader:
                    opt.zero_grad()
                    out, h = model(x, h)
                    loss = loss_fn(out, y)
                    loss.backward()
                    opt.step()

        Good::

            def train(model, loader, opt, loss_fn, h):
                for x, y in loader:
                    opt.zero_grad()
                    h = h.detach()
                    out, h = model(x, h)
                    loss = loss_fn(out, y)
                    loss.backward()
                    opt.step()
    Fix:
        h = h.detach() at the top of the loop; for an LSTM each of the two states.
    References:
        https://docs.pytorch.org/docs/stable/notes/faq.html
    """
    yield from _kept_by_module(script)
    for assign in script.index.statements[ast.Assign]:
        value, targets = getattr(assign, "value", None), getattr(assign, "targets", [])
        if not isinstance(value, ast.Call) or len(targets) != 1 or not isinstance(targets[0], (ast.Tuple, ast.List)):
            continue
        if not is_forward(script, value):
            continue
        loop = next(iter(loops_around(script, assign)), None)
        given = {dotted(a) for a in [*value.args, *(k.value for k in value.keywords)]}
        for target in targets[0].elts:
            name = dotted(target)
            if name and name in given and loop is not None and _carried(script, name, assign, loop):
                yield finding(
                    script,
                    assign,
                    ERROR,
                    f"{name} carries its graph into the next round: the second backward() fails",
                    f"{name} = {name}.detach() at the top of the loop",
                )


def _kept_by_module(script: Script) -> Iterator[Finding]:
    """``out, self.h = self.rnn(x, self.h)`` in forward(), and nothing in the file ever detaches or resets it."""
    if not script.index.by_tail.get("backward"):
        return
    for scope in script.index.functions:
        if scope.name != "forward":
            continue
        for name, bound in scope.bindings.items():
            for item in bound if name.startswith("self.") and name.count(".") == 1 else ():
                call = item.value
                if item.how != "unpack" or not isinstance(call, ast.Call) or not is_forward(script, call):
                    continue
                given = {dotted(n) for a in call.args for n in ast.walk(a) if isinstance(n, ast.Attribute)}
                if name in given and not _reset_anywhere(script, name, item.node):
                    yield finding(
                        script,
                        item.node,
                        ERROR,
                        f"{name} carries its graph into the next batch: the second backward() fails",
                        f"{name} = {name}.detach() before it is used",
                    )


def _reset_anywhere(script: Script, name: str, node: ast.AST) -> bool:
    short = name.removeprefix("self.")
    for attribute in script.index.attributes.get(short, ()):
        if isinstance(attribute.ctx, ast.Store) and not inside(attribute, node):
            owner = script.index.scope(attribute)
            if owner.name != "__init__":
                return True
        parent = script.index.parent.get(attribute)
        if isinstance(parent, ast.Attribute) and parent.attr in ("detach", "detach_", "data", "zero_"):
            return True
        if isinstance(parent, (ast.GeneratorExp, ast.comprehension, ast.Call)) and not inside(attribute, node):
            return True
    return False


def _carried(script: Script, name: str, assign: ast.AST, loop: ast.AST) -> bool:
    scope = script.index.scope(assign)
    for item in scope.bindings.get(name, ()):
        if item.node is not assign and in_body(item.node, loop):
            return False
    for call in calls_in(script, loop):
        if dotted(call.func) in (f"{name}.detach_", f"{name}.zero_"):
            return False
    runs = [c for c in calls_in(script, loop) if is_backward(script, c)]
    if not runs or any(loops_around(script, c)[:1] != [loop] for c in runs):
        return False
    # with a step between, retain_graph=True fails too: the step changed what the old graph saved
    steps = any(step_target(script, c) is not None for c in calls_in(script, loop))
    for run in runs:
        retain = keyword(run, "retain_graph")
        if retain is not None and constant(script, retain) is not False and not steps:
            return False
        if any(isinstance(p, ast.If) and inside(p, loop) for p in script.index.ancestors(run)):
            return False
    return not any(grad_off(script, c) for c in calls_in(script, assign) if is_forward(script, c))

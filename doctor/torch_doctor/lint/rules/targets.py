"""Regression targets and advantages that carry the graph of the network that is trained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import (
    backward_loss,
    is_backward,
)
from torch_doctor.lint.flow import (
    last_before,
)
from torch_doctor.lint.found import WARNING, finding, source
from torch_doctor.lint.graph import is_loss_function
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.rules.detach import graph_sources, values_of
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD107", "target-not-detached")
def target_not_detached(script: Script) -> Iterator[Finding]:
    """The target of a regression is computed by the network that is trained, with its graph.

    What it checks:
        mse_loss, smooth_l1_loss, huber_loss and their classes, whose target is a name for a target (target,
        expected, ...) or holds a discount, and goes back to a module call outside no_grad() and without detach().
    Why it matters:
        The gradient flows into the target, too: the bootstrapped value moves towards the prediction and learning
        diverges.
    Example:
        Bad::

            import torch.nn.functional as F
            def step(net, opt, s, a, r, s2, gamma):
                target = r + gamma * net(s2).max(1)[0]
                loss = F.mse_loss(net(s).gather(1, a), target)
                opt.zero_grad()
                loss.backward()
                opt.step()

        Good::

            import torch.nn.functional as F
            def step(net, opt, s, a, r, s2, gamma):
                target = r + gamma * net(s2).max(1)[0].detach()
                loss = F.mse_loss(net(s).gather(1, a), target)
                opt.zero_grad()
                loss.backward()
                opt.step()
    Fix:
        Compute the target under torch.no_grad(), or detach() it.
    References:
        https://docs.pytorch.org/tutorials/intermediate/reinforcement_q_learning.html
    """
    yield from _advantages(script)
    if "gamma" not in script.text and "discount" not in script.text:
        return
    for call, value in _targets_of(script):
        name = dotted(value).lower()
        if not _is_bootstrap(script, value, name):
            continue
        for maker in graph_sources(script, value):
            called_name = dotted(maker.func)
            if words.says(words.TEACHER, called_name) or words.says(words.TARGET_NET, called_name):
                continue  # GRD106 says it
            if _trained_here(script, call):
                yield finding(
                    script,
                    maker,
                    WARNING,
                    f"the target {source(script, value)} carries the graph of {source(script, maker)}",
                    "Compute it under torch.no_grad(), or detach() it",
                )
                break


def _targets_of(script: Script) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(where, target) of every regression: a loss function's second argument, or what is subtracted in a square."""
    for call in script.index.calls:
        if len(call.args) >= 2 and _regression(script, call):
            yield call, call.args[1]
    for short in ("pow", "square", "abs"):
        for call in script.index.by_tail.get(short, ()):
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            if script.index.qual(call).startswith("torch.") and call.args:
                base = call.args[0]
            yield from ((call, side) for side in _difference(script, base))
    for statement in script.index.statements[ast.Assign]:
        for item in ast.walk(statement):
            if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Pow):
                yield from ((statement, side) for side in _difference(script, item.left))


def _difference(script: Script, node: ast.expr | None) -> list[ast.expr]:
    """The two sides of a difference, also where it has a name; [] for anything else."""
    if isinstance(node, ast.Name):
        found = last_before(script, node.id, node)
        same = found is not None and found.how == "assign" and found.scope is script.index.scope(node)
        node = found.value if found is not None and same else None
    is_one = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return [node.left, node.right] if is_one and isinstance(node, ast.BinOp) else []


_ADVANTAGE = re.compile(r"(?:.*_)?(?:adv|advs|advantages?|td_errors?|delta|deltas)(?:_.*)?")


def _advantages(script: Script) -> Iterator[Finding]:
    """``-log_prob * advantage`` where the advantage goes back to the critic's forward."""
    for call in script.index.by_tail.get("backward", ()):
        loss = backward_loss(script, call) if is_backward(script, call) else None
        for product in _products(script, loss) if loss is not None else ():
            sides = [product.left, product.right]
            weights = [s for s in sides if isinstance(s, ast.Name) and _ADVANTAGE.fullmatch(s.id.lower())]
            policy = [s for s in sides if "log_p" in ast.dump(s).lower() or "logp" in ast.dump(s).lower()]
            makers = graph_sources(script, weights[0]) if weights and policy and weights[0] not in policy else []
            if makers:
                yield finding(
                    script,
                    product,
                    WARNING,
                    f"{source(script, weights[0])} carries {source(script, makers[0])}'s graph into the policy loss",
                    f"{source(script, weights[0])}.detach()",
                )
                return


def _products(script: Script, loss: ast.AST) -> Iterator[ast.BinOp]:
    """The products within a loss, names followed in the same function."""
    stack: list[ast.AST] = [loss]
    seen: set[ast.AST] = set()
    while stack and len(seen) < 200:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult):
            yield item
        if isinstance(item, ast.Name):
            stack += values_of(script, item)
        stack += list(ast.iter_child_nodes(item))


def _regression(script: Script, call: ast.Call) -> bool:
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.nn.functional."):
        return short in ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")
    return kind(script, call.func) == "criterion" and not is_loss_function(short)


def _is_bootstrap(script: Script, value: ast.AST, name: str) -> bool:
    found = last_before(script, dotted(value), value) if isinstance(value, ast.Name) else None
    made = found.value if found is not None and found.value is not None and found.how == "assign" else value
    words_in = {words.tail(dotted(n)).lower() for n in ast.walk(made) if isinstance(n, (ast.Name, ast.Attribute))}
    discounted = any(w in words_in for w in ("gamma", "discount", "discount_factor"))
    return discounted and isinstance(made, (ast.BinOp, ast.Call))


def _trained_here(script: Script, call: ast.AST) -> bool:
    scope: Scope | None = script.index.scope(call)
    return scope is not None and any(is_backward(script, c) for c in scope.calls)

"""Where gradients are switched off: no_grad, inference_mode, set_grad_enabled, hooks of frameworks."""

from __future__ import annotations

import ast
import re

from torch_doctor.facts.code_index import FUNCTIONS, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import _sites_of, is_lightning
from torch_doctor.lint.flow import (
    called,
    calls_in,
    origins,
    place,
)

GRAD_OFF = {"no_grad", "inference_mode", "set_grad_enabled", "_set_grad_enabled"}


_GRAD_OFF_NAME = re.compile(
    r".*(?:no_?grad|inference_?mode|grad_?(?:enabled|ctx|context|mode)|eval_?mode|without_grad).*"
)


#: methods of LightningModule that run with autograd off
GRAD_FREE_HOOKS = {"validation_step", "test_step", "predict_step", "validation_epoch_end", "test_epoch_end"}


def mentions_grad_off(script: Script, node: ast.AST, depth: int = 2) -> bool:
    """Whether an expression is, or may be, a context or decorator that turns autograd off."""
    for item in ast.walk(node):
        if isinstance(item, (ast.Name, ast.Attribute)):
            short = item.id if isinstance(item, ast.Name) else item.attr
            if short in GRAD_OFF or _GRAD_OFF_NAME.fullmatch(short.lower()):
                return True
            if isinstance(item, ast.Name) and depth:
                resolved = script.index.imports.get(short, "").rsplit(".", 1)[-1]
                if resolved in GRAD_OFF:
                    return True
                for origin in origins(script, item)[:4]:
                    if (
                        origin.node is not item
                        and not isinstance(origin.node, ast.arg)
                        and mentions_grad_off(origin.script, origin.node, depth - 1)
                    ):
                        return True
        if isinstance(item, ast.Call) and depth:
            target = called(script, item)
            if target is not None and any(
                c.func.attr in GRAD_OFF for c in calls_in(*_pair(target)) if isinstance(c.func, ast.Attribute)
            ):
                return True
    return False


def _pair(target: tuple[Script, Scope]) -> tuple[Script, ast.AST]:
    return target[0], target[1].node


def grad_off(script: Script, node: ast.AST, depth: int = 3) -> bool:
    """Whether autograd is, or may be, off where a node runs."""
    memo = script.memo.setdefault("grad_off", {})
    key = (node, depth)
    if key not in memo:
        memo[key] = False
        memo[key] = _grad_off(script, node, depth)
    found: bool = memo[key]
    return found


def _grad_off(script: Script, node: ast.AST, depth: int) -> bool:
    for item in script.index.ancestors(node):
        if isinstance(item, (ast.With, ast.AsyncWith)):
            if any(mentions_grad_off(script, i.context_expr) for i in item.items):
                return True
        elif isinstance(item, FUNCTIONS) and any(
            mentions_grad_off(script, d) for d in getattr(item, "decorator_list", ())
        ):
            return True
    scope = script.index.scope(node)
    if _switched_off(script, node, scope):
        return True
    if scope.kind not in ("function", "lambda"):
        return False
    if scope.name in GRAD_FREE_HOOKS and is_lightning(script, scope):
        return True
    if any(
        mentions_grad_off(script, d) for d in getattr(scope.owner.node if scope.owner else None, "decorator_list", ())
    ):
        return True
    sites = _sites_of(script, scope) if depth else []
    return bool(sites) and all(grad_off(script, site, depth - 1) for site in sites)


def _switched_off(script: Script, node: ast.AST, scope: Scope) -> bool:
    """By a statement before it: torch.set_grad_enabled(False), stack.enter_context(torch.no_grad())."""
    at: Scope | None = scope
    while at is not None:
        state = False
        for call in at.calls:
            if place(call) >= place(node) and at is scope:
                break
            short = dotted(call.func).rsplit(".", 1)[-1]
            if short in ("set_grad_enabled", "_set_grad_enabled") and not _is_with_item(script, call):
                state = not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value is True)
            elif (
                (short in ("enter_context", "push") and call.args and mentions_grad_off(script, call.args[0]))
                or (short == "__enter__" and mentions_grad_off(script, call.func))
                or short == "use_grad"
                or short == "disable_grad"
            ):
                state = True
        if state:
            return True
        at = at.parent if at.kind in ("function", "lambda") else None
    return False


def _is_with_item(script: Script, call: ast.Call) -> bool:
    return isinstance(script.index.parent.get(call), ast.withitem)

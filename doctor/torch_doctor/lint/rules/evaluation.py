"""Evaluation: autograd left on, eval() never undone."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from torch_doctor.facts.code_index import FUNCTIONS, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.batches import draws
from torch_doctor.lint.events import (
    frozen,
    is_backward,
    is_forward,
    is_lightning,
    is_module_scope,
    is_step,
    uses,
    wants_gradient,
)
from torch_doctor.lint.flow import (
    Loop,
    call_sites,
    calls_in,
    in_body,
    inside,
    loops_around,
    place,
    reached,
    receiver,
)
from torch_doctor.lint.found import NOTE, WARNING, finding, source
from torch_doctor.lint.grad_mode import GRAD_FREE_HOOKS, grad_off
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD103", "evaluation-with-gradients", tags={"memory"})
def evaluation_with_gradients(script: Script) -> Iterator[Finding]:
    """A model is evaluated with autograd on.

    What it checks:
        A model called in a loop after eval(), or in a function that is named for evaluation, outside no_grad(),
        inference_mode() and set_grad_enabled(False), here and where the function is called from. Attacks, saliency
        and anything else that uses the gradient are not meant.
    Why it matters:
        Every forward keeps its activations for a backward that never comes: about twice the memory, slower, and out
        of memory where outputs are collected.
    Example:
        Bad::

            def validate(model, loader):
                model.eval()
                hits = 0
                for x, y in loader:
                    hits += (model(x).argmax(1) == y).sum().item()
                return hits

        Good::

            import torch
            @torch.no_grad()
            def validate(model, loader):
                model.eval()
                hits = 0
                for x, y in loader:
                    hits += (model(x).argmax(1) == y).sum().item()
                return hits
    Fix:
        with torch.inference_mode(): around the loop, or @torch.no_grad() on the function.
    References:
        https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    """
    named = [f for f in script.index.functions if words.says(words.EVALUATION, f.name)]
    if (not script.index.by_tail.get("eval") and not named) or script.index.by_tail.get("disable_grad"):
        return
    seen: set[ast.AST] = set()
    for call in sorted(script.index.calls, key=place):
        if not is_forward(script, call):
            continue
        scope = script.index.scope(call)
        loops = loops_around(script, call)
        block: ast.AST = loops[0] if loops else _comprehension(script, call) or scope.node
        if block in seen or (scope.kind == "module" and block is scope.node):
            continue
        evaluates = _evaluates(script, call, scope, block)
        if not evaluates or is_lightning(script, scope) or _is_forward_method(scope) or grad_off(script, call):
            continue
        if evaluates != "phase" and (wants_gradient(script, block) or _for_gradient(script, scope)):
            continue
        if frozen(script, dotted(call.func)) or _is_unit_test(script, scope) or _is_fallback(script, call):
            continue
        if loops and _made_in_loop(script, call, loops[0]):
            continue
        seen.add(block)
        weak = block is scope.node
        yield finding(
            script,
            call,
            NOTE if weak and evaluates == "eval" else WARNING,
            f"{source(script, call.func)} is evaluated with autograd on: every forward keeps its activations",
            "Put with torch.inference_mode(): around it, or @torch.no_grad() on the function",
        )


def _is_fallback(script: Script, call: ast.Call) -> bool:
    """In the handler of a try that ran the same under no_grad(): it needs the gradient."""
    around = list(script.index.ancestors(call))
    for handler, parent in itertools.pairwise(around):
        if isinstance(handler, ast.ExceptHandler) and isinstance(parent, ast.Try):
            return any(grad_off(script, c) for s in parent.body for c in calls_in(script, s) if is_forward(script, c))
    return False


def _made_in_loop(script: Script, call: ast.Call, loop: ast.AST) -> bool:
    """A model that is made anew in each round is tried out, not evaluated over data."""
    name = dotted(call.func)
    bound = script.index.scope(call).bindings.get(name, ())
    return any(b.how == "assign" and in_body(b.node, loop) for b in bound)


def _is_unit_test(script: Script, scope: Scope) -> bool:
    """A test of a module compares outputs of a few inputs: the graph costs nothing there."""
    *folders, name = script.path.replace("\\", "/").split("/")
    if not name.startswith(("test_", "conftest")):
        return False
    return bool({"tests", "test"} & set(folders)) or any(s.name.startswith("test") for s in _around(scope))


def _around(scope: Scope) -> Iterator[Scope]:
    at: Scope | None = scope
    while at is not None:
        yield at
        at = at.parent


def _comprehension(script: Script, call: ast.Call) -> ast.AST | None:
    for item in script.index.ancestors(call):
        if isinstance(item, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return item
        if isinstance(item, ast.stmt):
            return None
    return None


def _is_forward_method(scope: Scope) -> bool:
    return scope.name in ("forward", "__call__", "training_step", "__init__") or scope.name in GRAD_FREE_HOOKS


def _for_gradient(script: Script, scope: Scope) -> bool:
    names = [scope.name]
    at: Scope | None = scope
    while at is not None:
        names.append(at.name)
        at = at.parent
    return any(words.WANTS_GRADIENT.search(n.lower()) for n in names) or (
        scope.kind == "function" and wants_gradient_directly(script, scope)
    )


def wants_gradient_directly(script: Script, scope: Scope) -> bool:
    """Whether a function itself asks for the gradient of an input."""
    return any(script.index.qual(c) == "torch.autograd.grad" for c in scope.calls)


def _evaluates(script: Script, call: ast.Call, scope: Scope, block: ast.AST, depth: int = 2) -> str:
    """ "eval" after .eval(), "phase" for the other half of a training loop, "name" by the function's name, or ""."""
    if _in_unguarded_phase(script, call):
        return "phase"
    if _after_eval(script, call, scope):
        named = words.says(words.EVALUATION, scope.name) if scope.kind == "function" else False
        return "name" if named and not scope.name.startswith("test_") else "eval"
    if scope.kind != "function":
        return ""
    if (
        words.says(words.EVALUATION, scope.name)
        and isinstance(block, (ast.For, ast.AsyncFor, ast.While))
        and (
            not any(is_backward(w, c) or is_step(w, c) for w, c in reached(script, scope.node, 2))
            and _over_loader(script, block)
        )
    ):
        return "name"
    if _only_ever_evaluates(script, call, scope):
        return "eval"
    # a method of a module runs its layers as forward() does: what evaluates it is its caller
    sites = call_sites(script, scope) if depth and not is_module_scope(script, scope) else []
    if (
        sites
        and not any(is_backward(script, c) for c in scope.calls)
        and all(_after_eval(script, s, script.index.scope(s)) for s in sites)
    ):
        return "eval"
    return ""


def _in_unguarded_phase(script: Script, call: ast.Call) -> bool:
    """One loop for training and validation: the mode and backward() depend on the phase, the forward does not."""
    around = list(script.index.ancestors(call))
    loops = loops_around(script, call)
    scope = script.index.scope(call)
    sites = call_sites(script, scope)
    if any(grad_off(script, site) for site in sites):
        return False
    # the phase is the outer loop's, or the function's: def epoch(model, loader, optimizer=None), where its callers
    # are known to leave autograd on
    outer: list[ast.AST] = [scope.node] if len(loops) == 1 and sites else [*loops[1:2]]
    for loop in outer:
        for test, trains in _phases(script, loop, call):
            own = ast.dump(test)
            same = [p for p in around if isinstance(p, (ast.If, ast.IfExp)) and ast.dump(p.test) == own]
            backward = [c for c in calls_in(script, loops[0]) if is_backward(script, c)]
            if trains and not same and backward and all(_under(script, c, own) for c in backward):
                return True
    return False


def _phases(script: Script, loop: ast.AST, call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """(test, True) of ``model.train() if test else model.eval()`` before a call in a loop."""
    for mode in calls_in(script, loop):
        if not isinstance(mode.func, ast.Attribute) or mode.func.attr != "eval" or place(mode) >= place(call):
            continue
        for item in script.index.ancestors(mode):
            if item is loop:
                break
            if isinstance(item, (ast.If, ast.IfExp)):
                other = item.body if isinstance(item.body, list) else [item.body]
                yield item.test, any(_sets_train(script, n) for n in other)


def _sets_train(script: Script, node: ast.AST) -> bool:
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr == "train" and inside(c, node)
        for c in script.index.by_tail.get("train", ())
    )


def _under(script: Script, node: ast.AST, test: str) -> bool:
    return any(isinstance(p, ast.If) and ast.dump(p.test) == test for p in script.index.ancestors(node))


def _over_loader(script: Script, loop: Loop) -> bool:
    if draws(script, loop) or isinstance(loop, ast.While):
        return bool(draws(script, loop))
    node: ast.expr = loop.iter
    while isinstance(node, ast.Call) and node.args and node.func.__class__ is not ast.Attribute:
        node = node.args[0]
    return kind(script, node) == "loader" or words.says(words.LOADED, dotted(node))


def _after_eval(script: Script, call: ast.AST, scope: Scope) -> bool:
    """Whether .eval() was the last mode that a model was put in, before a call, in this function."""
    state = False
    for item in scope.calls:
        if place(item) >= place(call):
            break
        if isinstance(item.func, ast.Attribute) and item.func.attr in ("eval", "train") and _is_model(script, item):
            statement = script.index.statement(item)
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.IfExp):
                state = False
            elif item.func.attr == "train":
                state = bool(item.args) and isinstance(item.args[0], ast.Constant) and item.args[0].value is False
            else:
                state = not _other_branch(script, item, call)
    return state


def _only_ever_evaluates(script: Script, call: ast.Call, scope: Scope) -> bool:
    """A model of the module that is put in eval mode there, in a file that never trains."""
    name = dotted(call.func)
    if (
        not name
        or name in scope.bindings
        or script.index.by_tail.get("backward")
        or script.index.by_tail.get("train")
    ):
        return False
    return any(
        script.index.scope(c) is script.index.module and dotted(receiver(c) or c) == name and not c.args
        for c in script.index.by_tail.get("eval", ())
    )


def _other_branch(script: Script, mode: ast.AST, call: ast.AST) -> bool:
    """Whether eval() is behind a condition that need not hold for the call."""
    for item in script.index.ancestors(mode):
        if isinstance(item, FUNCTIONS):
            return False
        if isinstance(item, ast.If) and not inside(call, item):
            return True
        if isinstance(item, ast.If) and inside(call, item):
            in_else = any(inside(mode, s) for s in item.orelse)
            return in_else != any(inside(call, s) for s in item.orelse)
    return False


def _is_model(script: Script, call: ast.Call) -> bool:
    value = receiver(call)
    most = 1 if dotted(call.func).endswith(".train") else 0
    return (
        value is not None and not call.keywords and kind(script, value) in ("module", "") and len(call.args) <= most
    )


@check("GRD104", "eval-mode-never-undone")
def eval_mode_never_undone(script: Script) -> Iterator[Finding]:
    """model.eval() runs within the epoch loop and train() only before it.

    What it checks:
        A loop that trains (backward and step) and calls eval(), directly or in a helper, and never calls train() on a
        model again.
    Why it matters:
        From the second epoch on, dropout is off and batch norm uses its running statistics while training. The run
        looks fine and the result is worse.
    Example:
        Bad::

            import torch
            def fit(model, loader, val, opt, loss_fn):
                model.train()
                for epoch in range(9):
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                    model.eval()
                    with torch.no_grad():
                        for x, y in val:
                            print(model(x))

        Good::

            import torch
            def fit(model, loader, val, opt, loss_fn):
                for epoch in range(9):
                    model.train()
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                    model.eval()
                    with torch.no_grad():
                        for x, y in val:
                            print(model(x))
    Fix:
        Call model.train() at the top of every epoch.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train
    """
    if (
        _is_unit_test(script, script.index.module)
        or not script.index.by_tail.get("eval")
        or uses(script, "lightning", "pytorch_lightning", "fastai", "ignite")
    ):
        return
    done: set[ast.AST] = set()
    for function in [script.index.module, *script.index.functions]:
        for loop in function.loops:
            if any(inside(loop, d) for d in done):
                continue
            seen = _eval_in(script, loop)
            if seen is not None:
                done.add(loop)
                yield finding(
                    script,
                    seen,
                    WARNING,
                    f"{source(script, seen)} is never undone: from the next round on the model trains in eval mode",
                    "Call model.train() at the top of every epoch",
                )


def _eval_in(script: Script, loop: ast.AST) -> ast.AST | None:
    calls = [(w, c) for w, c in reached(script, loop, 3) if not isinstance(c.func, ast.Name) or True]
    if not any((w is script and is_backward(w, c)) or is_backward(w, c) for w, c in calls) or not any(
        is_step(w, c) for w, c in calls
    ):
        return None
    modes = [(w, c) for w, c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in ("eval", "train")]
    modes = [(w, c) for w, c in modes if kind(w, c.func.value) in ("module", "")]  # type: ignore[attr-defined]
    trains = [c for _, c in modes if c.func.attr == "train"]  # type: ignore[attr-defined]
    evals = [(w, c) for w, c in modes if c.func.attr == "eval" and kind(w, c.func.value) == "module"]  # type: ignore[attr-defined]
    if trains or not evals:
        return None
    where, call = evals[0]
    if where is not script or not _trains_same(script, call, calls) or _leaves(script, call, loop):
        return None
    return call


def _trains_same(script: Script, call: ast.Call, calls: list[tuple[Script, ast.Call]]) -> bool:
    """Whether the model put in eval mode is the one that is trained: its name is called outside no_grad, too."""
    value = receiver(call)
    if value is None or frozen(script, dotted(value)) or words.says(words.TEACHER, dotted(value)):
        return False
    if words.says(words.TARGET_NET, dotted(value)):
        return False
    name = dotted(value)
    if script.index.scope(call).function(name) is not None:
        return False
    last = words.tail(name)
    for where, item in calls:
        if is_forward(where, item) and words.tail(dotted(item.func)) == last and not grad_off(where, item):
            # ... and the call comes before eval(), or in another round
            return True
    return False


def _leaves(script: Script, call: ast.Call, loop: ast.AST) -> bool:
    """Whether the loop ends after eval(): break or return in the same block."""
    statement = script.index.statement(call)
    parent = script.index.parent.get(statement) if statement is not None else None
    for name in ("body", "orelse"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            rest = block[block.index(statement) :]
            if any(isinstance(s, (ast.Break, ast.Return, ast.Raise)) for s in rest):
                return inside(call, loop)
    if not inside(call, loop):
        return False
    # the model is made anew in each round (folds, seeds)
    value = receiver(call)
    scope = script.index.scope(call)
    return value is not None and any(
        in_body(b.node, loop) for b in scope.bindings.get(dotted(value), ()) if b.how == "assign"
    )

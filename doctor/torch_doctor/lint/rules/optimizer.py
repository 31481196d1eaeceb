"""Optimizers: gradients that are never cleared, cleared too early, never stepped, steps in the wrong order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import (
    backward_calls,
    engine_backward,
    is_backward,
    is_lightning,
    is_step,
    is_zero,
    repeated_in,
    step_target,
    uses,
    zeroes,
)
from torch_doctor.lint.flow import (
    Loop,
    bindings,
    called,
    calls_in,
    in_body,
    inside,
    loops_around,
    origins,
    place,
    reached,
    receiver,
    spelled,
)
from torch_doctor.lint.found import ERROR, WARNING, before, finding, fix, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding, Fix
from torch_doctor.registry import check


@check("OPT101", "gradients-never-cleared", tags={"fixable"})
def gradients_never_cleared(script: Script) -> Iterator[Finding]:
    """A training loop runs backward() and step() and never clears the gradients.

    What it checks:
        Each loop that repeats backward() and an optimizer's step(), also through helpers, closures and methods, for
        zero_grad() on an optimizer or a model, p.grad = None or p.grad.zero_(). Helpers that cannot be read are given
        the benefit of the doubt where they are handed the optimizer.
    Why it matters:
        Gradients of all steps so far add up: the effective step grows and points nowhere.
    Example:
        Bad::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()

        Good::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
    Fix:
        opt.zero_grad() before backward(). --fix --unsafe-fixes does it where one optimizer is stepped.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    """
    seen: set[ast.AST] = set()
    for call in backward_calls(script):
        if uses(script, "deepspeed") or engine_backward(script, call):
            continue
        loop = _training_loop(script, call)
        if loop is None or loop in seen:
            continue
        scope = script.index.scope(call)
        own = scope.node
        if scope.kind != "module" and not inside(loop, own) and zeroes(script, own):
            continue
        if not zeroes(script, loop) and not _may_clear(script, loop, call) and not _made_within(script, loop):
            seen.add(loop)
            yield finding(
                script,
                call,
                ERROR,
                "nothing clears the gradients between one backward() and the next",
                "Call zero_grad() on the optimizer in the loop, before backward()",
                fix=_clear_before(script, call),
            )
            continue
        for other in _uncleared(script, loop):
            if loop not in seen:
                seen.add(loop)
                yield other


def _clear_before(script: Script, call: ast.Call) -> Fix | None:
    """zero_grad() of the one optimizer that is stepped beside a backward(), as a statement before it."""
    statement = script.index.statement(call)
    block = block_of(script, call)
    stepped = [t for s in block for c in calls_in(script, s) if (t := step_target(script, c)) is not None]
    names = {dotted(t) for t in stepped}
    if not isinstance(statement, ast.Expr) or len(names) != 1 or "(" in "".join(names) or "[]" in "".join(names):
        return None
    return fix(
        "clear the gradients before backward()", [before(script, statement, f"{names.pop()}.zero_grad()")], safe=False
    )


def _training_loop(script: Script, call: ast.Call) -> ast.AST | None:
    """The innermost loop that repeats both this backward and a step; a LightningModule's training_step counts."""
    scope = script.index.scope(call)
    if is_lightning(script, scope) and scope.name == "training_step":
        return scope.node if any(is_step(script, c) for c in scope.calls) else None
    if uses(script, "ignite") and _is_process_function(script, scope):
        return scope.node if any(is_step(script, c) for c in scope.calls) else None
    for loop in repeated_in(script, call):
        if _updates_by_hand(script, loop) or any(
            is_step(where, c) and not _closed_elsewhere(c, loop, where, script) for where, c in reached(script, loop)
        ):
            return loop
    return None


def _is_process_function(script: Script, scope: Scope) -> bool:
    """A function that is handed to ignite's Engine, which calls it for each batch."""
    return any(
        isinstance(a, ast.Name) and a.id == scope.name for c in script.index.by_tail.get("Engine", ()) for a in c.args
    )


def _updates_by_hand(script: Script, loop: ast.AST) -> bool:
    """``w -= lr * w.grad`` or ``p.data.add_(p.grad, alpha=-lr)`` in a loop: a step without an optimizer."""
    for attribute in script.index.attributes.get("grad", ()):
        if not isinstance(attribute.ctx, ast.Load) or not inside(attribute, loop):
            continue
        for parent in script.index.ancestors(attribute):
            if isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Sub):
                return True
            if isinstance(parent, ast.Call) and dotted(parent.func).endswith((".add_", ".sub_", ".addcmul_")):
                return True
            if isinstance(parent, ast.stmt):
                break
    return False


def _closed_elsewhere(call: ast.Call, loop: Loop, where: Script, script: Script) -> bool:
    # a step in the loop's else, or in what it iterates over, is not repeated
    return where is script and inside(call, loop) and not in_body(call, loop)


_HARMLESS = (
    "torch.",
    "math.",
    "numpy.",
    "np.",
    "print",
    "len",
    "range",
    "enumerate",
    "zip",
    "tqdm",
    "logging.",
    "wandb.",
    "?",
)


def _may_clear(script: Script, loop: ast.AST, backward: ast.Call) -> bool:
    """Whether a call that cannot be read is handed the optimizer, or is a method of an unknown base class."""
    for where, call in reached(script, loop):
        name = where.index.qual(call)
        if called(where, call) is not None or name.startswith(_HARMLESS):
            continue
        if (
            (
                isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == "self"
            )
            and where.index.scope(call).owner is not None
            and not _known_attribute(where, call)
        ):
            return True
        short = name.rsplit(".", 1)[-1]
        if kind(where, call.func) in ("scheduler", "loader", "module", "criterion") and short != "step":
            continue
        if short in ("backward", "clip_grad_norm_", "clip_grad_value_", "append", "unscale_", "scale", "prepare"):
            continue
        arguments = [*call.args, *(k.value for k in call.keywords)]
        if short == "step" and kind(where, receiver(call) or call) in ("scaler", "scheduler", "optimizer"):
            continue
        if any(kind(where, a) == "optimizer" for a in arguments) and not _is_scheduler_maker(where, call):
            return True
        if kind(where, receiver(call) or call) == "optimizer" and short not in (
            "step",
            "state_dict",
            "add_param_group",
        ):
            return True
    return _enters_accumulate(script, loop)


def _made_within(script: Script, loop: ast.AST) -> bool:
    """Whether the optimizer is made anew in each round: what it steps has no old gradient."""
    for where, call in reached(script, loop, 2):
        target = step_target(where, call)
        for origin in origins(where, target) if target is not None else ():
            made = isinstance(origin.node, ast.Call) and origin.script.index.qual(origin.node).startswith(
                "torch.optim."
            )
            if made and origin.script is script and in_body(origin.node, loop):
                return True
    return False


def _known_attribute(script: Script, call: ast.Call) -> bool:
    """self.model(x): an attribute that some method assigns, or whose name says what it is."""
    if words.tail(dotted(call.func)) in _OWN_METHODS or kind(script, call.func) in ("module", "criterion"):
        return True
    return bool(bindings(script, dotted(call.func), script.index.scope(call)))


#: methods of LightningModule and nn.Module that clear no gradients
_OWN_METHODS = {"log", "log_dict", "print", "manual_backward", "optimizers", "lr_schedulers", "train", "eval"}


def _is_scheduler_maker(script: Script, call: ast.Call) -> bool:
    return kind(script, call) == "scheduler"


def _enters_accumulate(script: Script, loop: ast.AST) -> bool:
    return any(
        "optimizer" in dotted(i.context_expr).lower()
        for w in [*script.index.statements[ast.With]]
        for i in getattr(w, "items", ())
        if inside(w, loop)
    )


def _uncleared(script: Script, loop: ast.AST) -> Iterator[Finding]:
    """Two optimizers are stepped and only one of them is cleared."""
    calls = [c for w, c in reached(script, loop) if w is script]
    stepped = {spelled(t): c for c in calls if (t := step_target(script, c)) is not None and dotted(t)}
    cleared: set[str] = set()
    for call in calls:
        if is_zero(script, call):
            value = receiver(call)
            name = spelled(value) if value is not None else ""
            if value is None or kind(script, value) != "optimizer" or "[]" in name:
                return
            cleared.add(name)
    if not cleared or len({script.index.scope(c) for c in calls if is_zero(script, c) or is_step(script, c)}) > 1:
        return
    if any("[]" in name or "()" in name for name in stepped):
        return
    for name, call in sorted(stepped.items()):
        if name not in cleared and len(stepped) > 1 and _names_agree(stepped, cleared):
            backward = [c for c in calls if is_backward(script, c) and place(c) < place(call)]
            yield finding(
                script,
                backward[-1] if backward else call,
                WARNING,
                f"{name} is stepped in this loop and its gradients are never cleared",
                f"{name}.zero_grad() before its backward()",
            )


def _names_agree(stepped: dict[str, ast.Call], cleared: set[str]) -> bool:
    return cleared < set(stepped)


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

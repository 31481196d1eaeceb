"""Optimizers whose gradients are never cleared."""

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
    origins,
    place,
    reached,
    receiver,
    spelled,
)
from torch_doctor.lint.found import ERROR, WARNING, before, finding, fix
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.rules.optimizer_steps import block_of
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

"""What comes before what: the optimizer and the model's parameters, clipping, LBFGS and its closure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import is_backward, is_step
from torch_doctor.lint.flow import calls_in, loops_around, origins, place, receiver
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.rules.optimizer_steps import block_of
from torch_doctor.model import Finding, Severity
from torch_doctor.registry import check

#: optimizers that make their state when they are made, on the device of that moment (torch.optim, 2.9)
EAGER = frozenset({"Adagrad"})
#: wrappers that replace the parameters
REPLACING = frozenset({"FullyShardedDataParallel", "FSDP"})


@check("OPT109", "optimizer-before-parameters")
def optimizer_before_parameters(script: Script) -> Iterator[Finding]:
    """An optimizer is made before the model is moved, or before some of its parameters are replaced.

    What it checks:
        After opt = Optim(model.parameters()) in the same function: model.fc = a new layer, model = another model,
        FSDP (a warning); .cuda() or .to() with an optimizer that makes its state at once (a warning) or lazily (a
        note).
    Why it matters:
        New parameters are unknown to the optimizer and never trained; state on the other device fails at the first
        step.
    Example:
        Bad::

            import torch
            from torch import nn
            def build(model):
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                model.fc = nn.Linear(512, 10)
                return model, opt

        Good::

            import torch
            from torch import nn
            def build(model):
                model.fc = nn.Linear(512, 10)
                opt = torch.optim.SGD(model.parameters(), lr=0.1)
                return model, opt
    Fix:
        Make the optimizer last.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#constructing-it
    """
    for call in script.index.calls:
        if not script.index.qual(call).startswith("torch.optim.") or kind(script, call) != "optimizer":
            continue
        scope = script.index.scope(call)
        for name in _models(call):
            change = _change_after(script, scope, name, call)
            if change is None:
                continue
            node, severity, what = change
            yield finding(
                script,
                node,
                severity,
                f"the optimizer of line {call.lineno} was made before: {what}",
                "Make the optimizer after this",
            )


def _models(call: ast.Call) -> set[str]:
    """The names whose parameters() the optimizer is made of."""
    first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
    found = set()
    for item in ast.walk(first) if first is not None else ():
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "parameters":
            found.add(dotted(item.func.value))
    return {n for n in found if n and "[" not in n and "(" not in n}


def _change_after(script: Script, scope: Scope, name: str, made: ast.Call) -> tuple[ast.AST, Severity, str] | None:
    again = [
        c for c in scope.calls if place(c) > place(made) and name in _models(c) and kind(script, c) == "optimizer"
    ]
    stop = min((place(c) for c in again), default=(1 << 30, 0))
    for target, items in scope.bindings.items():
        for item in items:
            if not place(made) < place(item.node) or item.how != "assign" or not isinstance(item.value, ast.Call):
                continue
            if _apart(script, made, item.node) or place(item.node) < stop < (1 << 30, 0) or place(item.node) > stop:
                continue  # another optimizer is made after it
            if (
                target.startswith(name + ".")
                and kind(script, item.value) == "module"
                and not _wraps(item.value, target)
            ):
                return item.node, WARNING, f"the new parameters of {target} are unknown to it"
            if target == name and _is_new_model(script, item.value, name):
                return item.node, WARNING, f"the parameters of the new {name} are unknown to it"
    return _moved_after(script, scope, name, made, stop)


def _apart(script: Script, made: ast.AST, node: ast.AST) -> bool:
    """In another branch or another loop: whether one follows the other is not known."""
    inner = {p for p in script.index.ancestors(made) if isinstance(p, (ast.If, ast.For, ast.While, ast.Try))}
    outer = {p for p in script.index.ancestors(node) if isinstance(p, (ast.If, ast.For, ast.While, ast.Try))}
    return inner != outer


def _wraps(value: ast.Call, target: str) -> bool:
    return any(dotted(a) == target for a in value.args)


def _is_new_model(script: Script, value: ast.Call, name: str) -> bool:
    short = script.index.qual(value).rsplit(".", 1)[-1]
    if short in REPLACING:
        return True
    mentions = any(
        dotted(n) == name
        for a in [*value.args, value.func]
        for n in ast.walk(a)
        if isinstance(n, (ast.Name, ast.Attribute))
    )
    return not mentions and kind(script, value) == "module" and bool(loops_around(script, value) == [])


def _moved_after(
    script: Script, scope: Scope, name: str, made: ast.Call, stop: tuple[int, int]
) -> tuple[ast.AST, Severity, str] | None:
    eager = script.index.qual(made).rsplit(".", 1)[-1] in EAGER
    for call in scope.calls:
        if not place(made) < place(call) < stop or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr in ("cuda", "to") and dotted(call.func.value) == name and not _apart(script, made, call):
            what = "its state is on the old device" if eager else "it works, as its state is made at the first step"
            return call, WARNING if eager else NOTE, what
    return None


@check("OPT110", "lbfgs-without-closure")
def lbfgs_without_closure(script: Script) -> Iterator[Finding]:
    """LBFGS.step() is called without a closure.

    What it checks:
        step() without an argument on an LBFGS optimizer.
    Why it matters:
        LBFGS evaluates the loss several times in a step: without the closure it raises a TypeError.
    Example:
        Bad::

            import torch
            def fit(params, loss):
                opt = torch.optim.LBFGS(params)
                opt.step()

        Good::

            import torch
            def fit(params, closure):
                opt = torch.optim.LBFGS(params)
                opt.step(closure)
    Fix:
        A closure that clears the gradients, computes the loss, calls backward() and returns the loss.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#optimizer-step-closure
    """
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or call.args or call.keywords:
            continue
        made = [o.script.index.qual(o.node) if isinstance(o.node, ast.Call) else "" for o in origins(script, value)]
        if made and set(made) == {"torch.optim.LBFGS"}:
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call)} of LBFGS needs a closure: TypeError",
                "opt.step(closure)",
            )


@check("OPT111", "clip-at-wrong-place")
def clip_at_wrong_place(script: Script) -> Iterator[Finding]:
    """Gradients are clipped after the step, or before backward().

    What it checks:
        clip_grad_norm_ or clip_grad_value_ in a block with backward() and step(), not between them.
    Why it matters:
        After the step, or before there are gradients, it clips nothing that counts: gradients explode as before.
    Example:
        Bad::

            from torch import nn
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        Good::

            from torch import nn
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    opt.step()
    Fix:
        Between backward() and step().
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    """
    for short in ("clip_grad_norm_", "clip_grad_value_"):
        for call in script.index.by_tail.get(short, ()):
            block = block_of(script, call)
            statement = script.index.statement(call)
            if statement is None or statement not in block or not loops_around(script, call):
                continue
            at = block.index(statement)
            before = _happenings(script, block[:at])
            after = _happenings(script, block[at + 1 :])
            if before[-2:] == ["backward", "step"] and not after:
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"{source(script, call.func)} runs after the step: nothing is clipped",
                    "Move it before step()",
                )
            elif not before and after[:2] == ["backward", "step"] and "zero" not in after:
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"{source(script, call.func)} runs before backward(): nothing is clipped",
                    "Move it after backward()",
                )


def _happenings(script: Script, block: list[ast.stmt]) -> list[str]:
    found = []
    for statement in block:
        for call in calls_in(script, statement):
            if is_backward(script, call):
                found.append("backward")
            elif is_step(script, call):
                found.append("step")
    return found

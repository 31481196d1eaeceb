"""Learning-rate schedulers: stepped before the optimizer, without their metric, or never."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.script import Script
from torch_doctor.lint.events import is_step, uses
from torch_doctor.lint.flow import (
    loops_around,
    origins,
    place,
    reached,
    receiver,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("OPT106", "scheduler-stepped-first")
def scheduler_stepped_first(script: Script) -> Iterator[Finding]:
    """scheduler.step() runs before optimizer.step().

    What it checks:
        A scheduler that is stepped in a loop before the optimizer's step in the same round.
    Why it matters:
        The first value of the schedule is skipped, and PyTorch warns "Detected call of lr_scheduler.step() before
        optimizer.step()".
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    sched.step()
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for epoch in range(90):
                    for x, y in loader:
                        opt.zero_grad()
                        loss_fn(model(x), y).backward()
                        opt.step()
                    sched.step()
    Fix:
        Step the scheduler after the optimizer.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    if uses(script, "lightning", "pytorch_lightning"):
        return
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or kind(script, value) != "scheduler" or call.args or call.keywords:
            continue
        loop = next(iter(loops_around(script, call)), None)
        statement = script.index.statement(call)
        if loop is None or not isinstance(statement, ast.Expr) or statement not in loop.body:
            continue
        at = loop.body.index(statement)
        before = [s for s in loop.body[:at] if _trains(script, s)]
        after = [s for s in loop.body[at + 1 :] if _trains(script, s)]
        if after and not before:
            yield finding(
                script,
                call,
                WARNING,
                f"{source(script, call)} comes before the optimizer's step: the first learning rate is skipped",
                "Call it after the optimizer's step",
            )


def _trains(script: Script, statement: ast.stmt) -> bool:
    return any(is_step(w, c) for w, c in reached(script, statement, 3))


@check("OPT107", "plateau-without-metric")
def plateau_without_metric(script: Script) -> Iterator[Finding]:
    """ReduceLROnPlateau.step() is called without the metric.

    What it checks:
        step() without an argument on a ReduceLROnPlateau.
    Why it matters:
        It raises a TypeError at the end of the first epoch.
    Example:
        Bad::

            import torch
            def train(opt, epochs):
                sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
                for epoch in range(epochs):
                    sched.step()

        Good::

            import torch
            def train(opt, epochs, validate):
                sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
                for epoch in range(epochs):
                    sched.step(validate())
    Fix:
        scheduler.step(validation_loss).
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html
    """
    for call in script.index.by_tail.get("step", ()):
        value = receiver(call)
        if value is None or call.args or call.keywords:
            continue
        made = [
            o.script.index.qual(o.node).rsplit(".", 1)[-1]
            for o in origins(script, value)
            if isinstance(o.node, ast.Call)
        ]
        if made and set(made) == {"ReduceLROnPlateau"}:
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call)} needs the metric: ReduceLROnPlateau raises TypeError without it",
                "scheduler.step(validation_loss)",
            )


@check("OPT108", "scheduler-never-stepped")
def scheduler_never_stepped(script: Script) -> Iterator[Finding]:
    """A scheduler is made and never stepped.

    What it checks:
        A scheduler held by a local name that is used nowhere in a function that trains.
    Why it matters:
        The learning rate stays at its first value.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.StepLR(opt, step_size=30)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.999)
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
                    sched.step()
    Fix:
        scheduler.step() at the end of each epoch, or remove it.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    for assign in script.index.statements[ast.Assign]:
        value, targets = getattr(assign, "value", None), getattr(assign, "targets", [])
        if not isinstance(value, ast.Call) or len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        if not script.index.qual(value).startswith("torch.optim.lr_scheduler."):
            continue
        scope, name = script.index.scope(assign), targets[0].id
        if any(
            n is not targets[0] for s in scope.walk() for n in s.names.get(name, ()) if isinstance(n.ctx, ast.Load)
        ):
            continue
        if any(is_step(script, c) and place(c) > place(assign) for c in scope.calls):
            yield finding(
                script, value, WARNING, f"{name} is made and never stepped", f"{name}.step() at the end of each epoch"
            )

"""Statements that do nothing: a method that is named and not called, a context that is made and not entered."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.found import ERROR, WARNING, finding, fix, insert, source
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: method -> the kinds of thing that have it; "" is a loss, which has no kind
METHODS = {
    "zero_grad": {"optimizer", "module"},
    "step": {"optimizer", "scheduler"},
    "backward": {"", "tensor", "criterion"},
    "train": {"module"},
    "eval": {"module"},
    "update": {"scaler"},
}
#: contexts of torch that only do something while they are entered
CONTEXTS = named(
    "torch.no_grad torch.inference_mode torch.enable_grad torch.autograd.no_grad torch.autograd.inference_mode "
    "torch.autograd.enable_grad torch.autocast torch.amp.autocast torch.cuda.amp.autocast torch.cpu.amp.autocast"
)


@check("OPT112", "method-not-called", tags={"fixable"})
def method_not_called(script: Script) -> Iterator[Finding]:
    """A method of training is named and not called: the parentheses are missing.

    What it checks:
        Statements that are only optimizer.zero_grad, optimizer.step, scheduler.step, loss.backward, model.train,
        model.eval or scaler.update.
    Why it matters:
        Python looks the method up and does nothing: gradients pile up, nothing is learned, or dropout stays on, and
        no message says so.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
                model.eval

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss_fn(model(x), y).backward()
                    opt.step()
                model.eval()
    Fix:
        Add the parentheses. --fix does it, but for a scheduler, which may want a metric.
    References:
        https://docs.pytorch.org/docs/stable/optim.html#taking-an-optimization-step
    """
    for statement in script.index.statements[ast.Expr]:
        value = getattr(statement, "value", None)
        if not isinstance(value, ast.Attribute) or value.attr not in METHODS or not dotted(value.value):
            continue
        what = kind(script, value.value)
        if what not in METHODS[value.attr]:
            continue
        mend = fix("call it", [insert(script, value, "()", after=True)]) if what != "scheduler" else None
        yield finding(
            script,
            value,
            ERROR,
            f"{source(script, value)} is named and not called: nothing happens",
            f"{source(script, value)}()",
            fix=mend,
        )


@check("GRD117", "context-without-with")
def context_without_with(script: Script) -> Iterator[Finding]:
    """torch.no_grad() or autocast() stands as a statement of its own: it is made and never entered.

    What it checks:
        A statement that is only torch.no_grad(), inference_mode(), enable_grad() or autocast(...).
        torch.set_grad_enabled() works without with and is not meant.
    Why it matters:
        Nothing is switched: an evaluation keeps the graph of every batch, or runs in full precision.
    Example:
        Bad::

            import torch
            def scale(x):
                torch.no_grad()
                return x * 2

        Good::

            import torch
            def scale(x):
                with torch.no_grad():
                    return x * 2
    Fix:
        with torch.no_grad(): around what it is for, or @torch.no_grad() on the function.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
    """
    for statement in script.index.statements[ast.Expr]:
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and script.index.qual(value) in CONTEXTS:
            yield finding(
                script,
                value,
                WARNING,
                f"{source(script, value)} alone has no effect: it is a context and is never entered",
                f"with {source(script, value)}:",
            )

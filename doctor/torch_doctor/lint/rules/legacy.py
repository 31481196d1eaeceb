"""What PyTorch left behind: volatile, Variable, functions renamed with an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import backward_loss, is_backward, is_forward
from torch_doctor.lint.flow import calls_in, has_star, keyword, last_before
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, fix, replace, source
from torch_doctor.lint.graph import is_loss_function
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD109", "volatile-has-no-effect", tags={"deprecated"})
def volatile_has_no_effect(script: Script) -> Iterator[Finding]:
    """volatile=True is given, which does nothing since PyTorch 0.4.

    What it checks:
        volatile= of Variable and of tensors, and x.volatile = True.
    Why it matters:
        The evaluation that was meant to run without a graph keeps all activations.
    Example:
        Bad::

            from torch.autograd import Variable
            def look(x):
                return Variable(x, volatile=True)

        Good::

            import torch
            def look(model, x):
                with torch.no_grad():
                    return model(x)
    Fix:
        with torch.no_grad(): around the forward.
    References:
        https://pytorch.org/blog/pytorch-0_4_0-migration-guide/
    """
    if "volatile" not in script.text:
        return
    for call in script.index.calls:
        value = keyword(call, "volatile")
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield finding(
                script,
                call,
                WARNING,
                "volatile= has had no effect since PyTorch 0.4: autograd stays on",
                "with torch.no_grad(): around the forward",
            )
    for attribute in script.index.attributes.get("volatile", ()):
        if isinstance(attribute.ctx, ast.Store):
            yield finding(
                script,
                attribute,
                WARNING,
                "volatile has had no effect since PyTorch 0.4",
                "with torch.no_grad(): around the forward",
            )


@check("GRD110", "variable-wrapper", tags={"deprecated", "fixable"})
def variable_wrapper(script: Script) -> Iterator[Finding]:
    """Variable(x) wraps a tensor, which does nothing since PyTorch 0.4.

    What it checks:
        torch.autograd.Variable with one argument. Advice: a note.
    Why it matters:
        Tensors are variables: it only makes the code look older than it is.
    Example:
        Bad::

            from torch.autograd import Variable
            def step(model, x):
                return model(Variable(x))

        Good::

            def step(model, x):
                return model(x)
    Fix:
        Use the tensor. --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/autograd.html#variable-deprecated
    """
    for call in script.index.by_tail.get("Variable", ()):
        if (
            script.index.qual(call) != "torch.autograd.Variable"
            or len(call.args) != 1
            or call.keywords
            or has_star(call)
        ):
            continue
        inner = call.args[0]
        simple = isinstance(inner, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        mend = fix("use the tensor", [replace(script, call, script.segment(inner))]) if simple else None
        yield finding(
            script, call, NOTE, "Variable() has done nothing since PyTorch 0.4", source(script, inner), fix=mend
        )


#: deprecated name -> its replacement: an underscore for what works in place (torch.nn.utils, torch.nn.init)
RENAMED = {
    "torch.nn.utils.clip_grad_norm": "clip_grad_norm_",
    **{
        f"torch.nn.init.{n}": f"{n}_"
        for n in [
            "uniform",
            "normal",
            "constant",
            "eye",
            "dirac",
            "xavier_uniform",
            "xavier_normal",
            "kaiming_uniform",
            "kaiming_normal",
            "orthogonal",
            "sparse",
        ]
    },
}


@check("GRD111", "renamed-function", tags={"deprecated", "fixable"})
def renamed_function(script: Script) -> Iterator[Finding]:
    """A function is called by a name that is deprecated in favour of one with an underscore.

    What it checks:
        torch.nn.utils.clip_grad_norm and the functions of torch.nn.init without their underscore.
    Why it matters:
        They warn at every call and will go.
    Example:
        Bad::

            from torch import nn
            def start(layer):
                nn.init.xavier_uniform(layer.weight)

        Good::

            from torch import nn
            def start(layer):
                nn.init.xavier_uniform_(layer.weight)
    Fix:
        Add the underscore. --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/nn.init.html
    """
    for old, new in RENAMED.items():
        short = old.rsplit(".", 1)[-1]
        for call in script.index.by_tail.get(short, ()):
            if script.index.qual(call) != old:
                continue
            mend = None
            if isinstance(call.func, ast.Attribute):
                written = script.segment(call.func)
                if written.endswith(short):
                    mend = fix(f"use {new}", [replace(script, call.func, written + "_")])
            yield finding(
                script,
                call,
                WARNING,
                f"{dotted(call.func)} is deprecated in favour of {new}",
                f"Call {new}",
                fix=mend,
            )


@check("GRD115", "requires-grad-misspelt")
def requires_grad_misspelt(script: Script) -> Iterator[Finding]:
    """A parameter's require_grad is set, which is no attribute of a tensor.

    What it checks:
        x.require_grad = ..., and require_grad= of a tensor's maker.
    Why it matters:
        Python makes a new attribute and nothing is frozen: the layers that were meant to stay are trained.
    Example:
        Bad::

            import torch
            def freeze(model):
                for p in model.parameters():
                    p.require_grad = False

        Good::

            import torch
            def freeze(model):
                for p in model.parameters():
                    p.requires_grad = False
    Fix:
        requires_grad. --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad.html
    """
    for attribute in script.index.attributes.get("require_grad", ()):
        if isinstance(attribute.ctx, ast.Store) and not dotted(attribute).startswith("self."):
            written = script.segment(attribute)
            better = written.removesuffix("require_grad") + "requires_grad"
            mend = fix("use requires_grad", [replace(script, attribute, better)])
            yield finding(
                script,
                attribute,
                ERROR,
                f"{source(script, attribute)} is a new attribute: nothing is frozen",
                "requires_grad",
                fix=mend if written.endswith("require_grad") else None,
            )


@check("GRD116", "backward-under-no-grad")
def backward_under_no_grad(script: Script) -> Iterator[Finding]:
    """A loss is computed with autograd off, and backward() runs on it.

    What it checks:
        backward() on a loss whose model call or criterion stands within torch.no_grad() or inference_mode(), by a
        with block or the function's decorator.
    Why it matters:
        "element 0 of tensors does not require grad and does not have a grad_fn".
    Example:
        Bad::

            import torch
            def step(model, x, y, opt, loss_fn):
                opt.zero_grad()
                with torch.no_grad():
                    loss = loss_fn(model(x), y)
                loss.backward()
                opt.step()

        Good::

            import torch
            def step(model, x, y, opt, loss_fn):
                opt.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                opt.step()
    Fix:
        Compute the loss outside no_grad().
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html
    """
    for call in script.index.by_tail.get("backward", ()):
        loss = backward_loss(script, call) if is_backward(script, call) else None
        if loss is None or script.index.by_tail.get("enable_grad"):
            continue
        made: ast.AST = loss
        if isinstance(loss, ast.Name):
            found = last_before(script, loss.id, loss)
            if (
                found is None
                or found.how != "assign"
                or found.value is None
                or found.scope is not script.index.scope(call)
            ):
                continue
            made = found.value
        if _no_grad_around(script, made) and _makes_loss(script, made):
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, loss)} was computed with autograd off: it has no gradient",
                "Compute it outside no_grad()",
            )


def _makes_loss(script: Script, node: ast.AST) -> bool:
    return any(
        is_forward(script, c)
        or kind(script, c.func) == "criterion"
        or is_loss_function(dotted(c.func).rsplit(".", 1)[-1])
        for c in calls_in(script, node)
    )


def _no_grad_around(script: Script, node: ast.AST) -> bool:
    """For certain: the context or decorator is written out, and not one that may be off."""
    names = ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad")
    for item in script.index.ancestors(node):
        if isinstance(item, (ast.With, ast.AsyncWith)) and any(
            isinstance(i.context_expr, ast.Call) and _off(script, i.context_expr, names) for i in item.items
        ):
            return True
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(_off(script, d, names) for d in item.decorator_list)
    return False


def _off(script: Script, node: ast.AST, names: tuple[str, ...]) -> bool:
    return script.index.qual(node) in names and not (isinstance(node, ast.Call) and node.args)

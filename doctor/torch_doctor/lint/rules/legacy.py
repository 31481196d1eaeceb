"""What PyTorch left behind: volatile, Variable, functions renamed with an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import has_star, keyword
from torch_doctor.lint.found import NOTE, WARNING, finding, fix, replace, source
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

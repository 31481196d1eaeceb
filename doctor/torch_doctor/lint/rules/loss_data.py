"""Scalar losses that are read by .data or by an index."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.flow import (
    last_before,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, fix, replace, source
from torch_doctor.lint.rules.retention import is_scalar_loss, makes_scalar
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD102", "loss-read-by-data", tags={"fixable"})
def loss_read_by_data(script: Script) -> Iterator[Finding]:
    """A scalar loss is read by .data or by an index.

    What it checks:
        loss.data[0], loss[0] and loss.data of a loss that backward() runs on, or that a loss function made.
    Why it matters:
        A loss has no dimension since PyTorch 0.4: an index raises "invalid index of a 0-dim tensor". .data hides
        changes from autograd.
    Example:
        Bad::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
                    print(loss.data[0])

        Good::

            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
                    print(loss.item())
    Fix:
        loss.item(). --fix does it.
    References:
        https://pytorch.org/blog/pytorch-0_4_0-migration-guide/
    """
    seen: set[ast.AST] = set()
    for attribute in script.index.attributes.get("data", ()):
        if not isinstance(attribute.ctx, ast.Load) or not _is_loss_value(script, _before_move(attribute.value)):
            continue
        outer, indexed = _chain(script, attribute)
        if outer in seen:
            continue
        seen.add(outer)
        yield _data_finding(script, attribute.value, outer, indexed)
    if not script.index.by_tail.get("backward"):
        return
    for loss in _loss_names(script):
        parent = script.index.parent.get(loss)
        if (
            (
                isinstance(parent, ast.Subscript)
                and parent.value is loss
                and _is_zero(parent.slice)
                and is_scalar_loss(script, loss)
            )
            and isinstance(parent.ctx, ast.Load)
            and _made_as_tensor(script, loss)
        ):
            yield _data_finding(script, loss, parent, True)


def _loss_names(script: Script) -> Iterator[ast.Name]:
    scopes = [script.index.module, *script.index.functions]
    for scope in scopes:
        for name, nodes in scope.names.items():
            if words.says(words.LOSS, name):
                yield from nodes


def _made_as_tensor(script: Script, node: ast.Name) -> bool:
    """A loss that is no tuple: made by a loss function itself."""
    found = last_before(script, node.id, node)
    return (
        found is not None and found.how == "assign" and found.value is not None and makes_scalar(script, found.value)
    )


def _is_zero(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)


def _before_move(node: ast.AST) -> ast.AST:
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("cpu", "detach", "cuda")
    ):
        node = node.func.value
    return node


def _chain(script: Script, node: ast.AST) -> tuple[ast.AST, bool]:
    """``.data.cpu().numpy()[0]``: the whole expression, and whether it is indexed."""
    while True:
        parent = script.index.parent.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node and _is_zero(parent.slice):
            return parent, True
        if isinstance(parent, ast.Attribute) and parent.attr in ("cpu", "numpy", "item", "detach", "float", "tolist"):
            call = script.index.parent.get(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                node = call
                continue
        return node, False


def _is_loss_value(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return isinstance(node, ast.Call) and makes_scalar(script, node)
    return is_scalar_loss(script, node)


def _data_finding(script: Script, loss: ast.expr, outer: ast.AST, indexed: bool) -> Finding:
    name = source(script, loss)
    base = _before_move(loss)
    mend = fix(f"use {script.segment(base)}.item()", [replace(script, outer, f"{script.segment(base)}.item()")])
    if indexed:
        message = f"{source(script, outer)} indexes a loss of no dimension: IndexError"
        return finding(script, outer, ERROR, message, f"{source(script, base)}.item()", fix=mend)
    message = f"{name}.data reads a loss behind autograd's back"
    parent = script.index.parent.get(outer)
    keeps_tensor = isinstance(parent, ast.Attribute)
    read_on = not isinstance(outer, ast.Attribute) or keeps_tensor
    return finding(
        script,
        outer,
        NOTE if read_on else WARNING,
        message,
        f"{source(script, base)}.item()",
        fix=None if keeps_tensor else mend,
    )

"""Tensors that a module holds without knowing of them: they stay on the CPU when it moves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import bindings, keyword, last_before, origins, place
from torch_doctor.lint.found import WARNING, finding, is_test_file, source
from torch_doctor.lint.kinds import is_module_class
from torch_doctor.lint.rules.device import has_default_device, uses_gpu
from torch_doctor.lint.rules.forward import is_cpu_maker
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("DEV106", "loss-weight-on-cpu")
def loss_weight_on_cpu(script: Script) -> Iterator[Finding]:
    """A loss is given a weight tensor on the CPU, in a script that trains on the GPU.

    What it checks:
        weight= and pos_weight= of a loss of torch.nn, made on the CPU and never moved, of a criterion that is not
        moved either, where the file moves its model to a GPU.
    Why it matters:
        "Expected all tensors to be on the same device" at the first loss.
    Example:
        Bad::

            import torch
            from torch import nn
            net = nn.Linear(2, 2).to("cuda")
            loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))

        Good::

            import torch
            from torch import nn
            net = nn.Linear(2, 2).to("cuda")
            loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0], device="cuda"))
    Fix:
        loss_fn = loss_fn.to(device), or make the weight on the device.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    if has_default_device(script) or not uses_gpu(script) or is_test_file(script.path):
        return
    for call in script.index.calls:
        name = script.index.qual(call)
        if not name.startswith("torch.nn.") or not name.endswith("Loss") or name.count(".") != 2:
            continue
        for value in (keyword(call, "weight"), keyword(call, "pos_weight"), *call.args[:1]):
            made = [o.node for o in origins(script, value)] if value is not None else []
            if (
                len(made) == 1
                and isinstance(made[0], ast.Call)
                and is_cpu_maker(script, made[0])
                and value is not None
                and not _moved(script, value)
                and not _kept_and_moved(script, call)
            ):
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"the weight of {name.rsplit('.', 1)[-1]} is on the CPU and the model on the GPU",
                    "Move the loss with .to(device), or make the weight there",
                )


def _moved(script: Script, value: ast.expr) -> bool:
    name = dotted(value)
    return any(
        isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name and bool(name)
        for short in ("to", "cuda")
        for c in script.index.by_tail.get(short, ())
    )


def _kept_and_moved(script: Script, call: ast.Call) -> bool:
    """Whether the loss itself is moved: in the same expression, by its name, or with the module that holds it."""
    parent = script.index.parent.get(call)
    if isinstance(parent, ast.Attribute) or not isinstance(parent, ast.Assign):
        return True
    name = dotted(parent.targets[0])
    if name.startswith("self.") and script.index.scope(call).owner is not None:
        owner = script.index.scope(call).owner
        if owner is not None and is_module_class(script, owner):
            return True
    return any(
        isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name
        for short in ("to", "cuda")
        for c in script.index.by_tail.get(short, ())
    )


@check("DEV107", "tensor-is-no-buffer")
def tensor_is_no_buffer(script: Script) -> Iterator[Finding]:
    """A module keeps a tensor as a plain attribute and computes with it in forward().

    What it checks:
        self.x = torch.zeros(...) and the like in __init__ of an nn.Module, used with other tensors in forward() and
        never moved, where the file moves a module to a GPU.
    Why it matters:
        .to(device) moves parameters and buffers only: "Expected all tensors to be on the same device". A checkpoint
        does not hold it either.
    Example:
        Bad::

            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = torch.ones(2)
                def forward(self, x):
                    return x * self.scale
            net = Net().to("cuda")

        Good::

            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("scale", torch.ones(2))
                def forward(self, x):
                    return x * self.scale
            net = Net().to("cuda")
    Fix:
        self.register_buffer("x", tensor); persistent=False where a checkpoint shall not hold it.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer
    """
    if has_default_device(script) or not uses_gpu(script) or is_test_file(script.path):
        return
    for owner in script.index.classes.values():
        start, forward = owner.function("__init__"), owner.function("forward")
        if start is None or forward is None or not is_module_class(script, owner) or _moves_itself(owner):
            continue
        for name, bound in start.bindings.items():
            if not name.startswith("self.") or name.count(".") != 1 or len(bindings(script, name, start)) != 1:
                continue
            value = _made_by(script, bound[0].value)
            if (
                isinstance(value, ast.Call)
                and is_cpu_maker(script, value)
                and _is_computed_with(script, forward, name)
            ):
                yield finding(
                    script,
                    bound[0].node,
                    WARNING,
                    f"{name} is no buffer: it stays on the CPU when the module moves",
                    f'self.register_buffer("{name[5:]}", {source(script, bound[0].value or value)})',
                )


#: methods that leave a tensor where it is
_STAYING = named(
    "unsqueeze squeeze view reshape float double half long int bool t transpose permute contiguous expand repeat "
    "clone flatten exp log sqrt cumsum cumprod triu tril detach unsqueeze_"
)


_NORMALISING = named("torch.nn.functional.normalize torch.nn.functional.softmax torch.nn.functional.one_hot")


def _made_by(script: Script, value: ast.expr | None) -> ast.expr | None:
    """The call that made a value, through local names and methods that leave it where it is."""
    for _ in range(6):
        if isinstance(value, ast.Call) and script.index.qual(value) in _NORMALISING and value.args:
            value = value.args[0]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _STAYING:
            torch = script.index.qual(value).startswith("torch.")
            value = value.func.value if not torch else value.args[0] if value.args else None
        elif isinstance(value, ast.Name):
            found = last_before(script, value.id, value)
            if found is None or found.how != "assign" or found.scope is not script.index.scope(value):
                return None
            if place(found.node) >= place(value) or _moved(script, value):
                return None
            value = found.value
        else:
            break
    return value


def _moves_itself(owner: Scope) -> bool:
    return any(c.name in ("_apply", "to", "cuda") for c in owner.children)


def _is_computed_with(script: Script, forward: Scope, name: str) -> bool:
    """Whether forward() uses it in arithmetic or a torch function, and moves it nowhere."""
    computes = False
    for node in ast.walk(forward.node):
        if not isinstance(node, ast.Attribute) or dotted(node) != name:
            continue
        while isinstance(parent := script.index.parent.get(node), ast.Subscript) and parent.value is node:
            node = parent
        if isinstance(parent, (ast.List, ast.Tuple)):
            node, parent = parent, script.index.parent.get(parent)
        if isinstance(parent, ast.BinOp) or (
            isinstance(parent, ast.Call) and node in parent.args and script.index.qual(parent).startswith("torch.")
        ):
            computes = True
        else:
            return False
    return computes

"""Two tensors that were made on different devices and meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.batches import draws
from torch_doctor.lint.flow import constant, in_body, keyword, loops_around, place, receiver
from torch_doctor.lint.found import ERROR, finding, is_test_file, source
from torch_doctor.lint.rules.device import has_default_device
from torch_doctor.lint.rules.forward import MAKERS, MEETING, is_cpu_maker
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: methods whose result is as large as their tensor, and on its device
SAME = named(
    "view reshape flatten squeeze unsqueeze permute transpose contiguous clone detach float half double bfloat16 "
    "long int bool t abs exp log sqrt relu sigmoid tanh softmax log_softmax clamp expand repeat requires_grad_ "
    "normal_ uniform_ zero_ fill_ T mT chunk neg triu tril cumsum sort"
)
#: functions of torch that want all their tensors on one device
JOINING = named(
    "add sub mul div matmul mm bmm mv dot einsum cat stack concat hstack vstack where maximum minimum eq ne lt gt le "
    "ge dist cdist outer kron cross addmm baddbmm logaddexp lerp isclose allclose bitwise_and bitwise_or"
)


@check("DEV108", "tensors-on-two-devices")
def tensors_on_two_devices(script: Script) -> Iterator[Finding]:
    """A tensor on the GPU is computed with one that was made on the CPU.

    What it checks:
        Arithmetic, comparison, torch.cat, matmul, loss functions and the like over two values of the same function,
        of which one was made on or moved to "cuda" and the other one was made on the CPU and never moved. A CPU
        tensor of no dimension, and one that is an index, may meet a tensor on any device.
    Why it matters:
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    Example:
        Bad::

            import torch
            a = torch.randn(8, 8, device="cuda")
            b = torch.ones(8, 8)
            print(a + b)

        Good::

            import torch
            a = torch.randn(8, 8, device="cuda")
            b = torch.ones(8, 8, device=a.device)
            print(a + b)
    Fix:
        Make the tensor with device=, or move it: b = b.to(a.device).
    References:
        https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    if "cuda" not in script.text or has_default_device(script) or is_test_file(script.path):
        return
    for node, parts in _meetings(script):
        sides = {side: p for p in parts if (side := device_of(script, p))}
        if len(sides) == 2 and not _is_tried(script, node):
            cpu, gpu = sides["cpu"], sides["cuda"]
            yield finding(
                script,
                node,
                ERROR,
                f"{source(script, gpu)} is on the GPU and {source(script, cpu)} was made on the CPU",
                f"Make it with device={source(script, gpu)}.device, or move it there",
            )


def _meetings(script: Script) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """(where, the operands) of everything that wants its tensors on one device."""
    seen: set[ast.AST] = set()
    for scope in script.index.module.walk():
        for names in scope.names.values():
            for name in names:
                # an operand that can be followed has a name, so that only what names stand in is looked at
                parent = script.index.parent.get(name)
                while isinstance(parent, (ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Tuple)):
                    if isinstance(parent, ast.Call) and parent not in seen:
                        seen.add(parent)
                        yield parent, _operands(script, parent)
                    parent = script.index.parent.get(parent)
                if isinstance(parent, (ast.BinOp, ast.Compare, ast.AugAssign)) and parent not in seen:
                    seen.add(parent)
                    yield parent, _sides(parent)


def _sides(node: ast.BinOp | ast.Compare | ast.AugAssign) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    plain = all(isinstance(o, (ast.Eq, ast.NotEq, ast.Lt, ast.Gt, ast.LtE, ast.GtE)) for o in node.ops)
    return [node.left, *node.comparators] if plain else []


def _operands(script: Script, call: ast.Call) -> list[ast.expr]:
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    loss = name.startswith("torch.nn.functional.") and (short.endswith("loss") or "entropy" in short)
    if loss or short == "linear" or (name.startswith("torch.") and name.count(".") == 1 and short in JOINING):
        first = call.args[0] if call.args else None
        return list(first.elts) if isinstance(first, (ast.List, ast.Tuple)) else list(call.args)
    value = receiver(call)
    if value is not None and short in MEETING and not name.startswith("torch."):
        return [value, *call.args]
    return []


def device_of(script: Script, node: ast.AST, depth: int = 6) -> str:
    """cuda or cpu: where a tensor with dimensions is for certain; "" where that cannot be said."""
    if depth == 0:
        return ""
    if isinstance(node, ast.Name):
        value = _value_of(script, node)
        return device_of(script, value, depth - 1) if value is not None else ""
    if isinstance(node, ast.BinOp):
        found = {device_of(script, side, depth - 1) for side in (node.left, node.right)}
        numbers = any(isinstance(side, ast.Constant) for side in (node.left, node.right))
        return max(found) if len(found) == 1 or numbers else ""
    if isinstance(node, ast.UnaryOp):
        return device_of(script, node.operand, depth - 1)
    if isinstance(node, ast.Call):
        return _device_of_call(script, node, depth)
    return ""


def _device_of_call(script: Script, call: ast.Call, depth: int) -> str:
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.") and "(" not in name:
        if name.count(".") == 1 and short in MAKERS:
            return "cpu" if is_cpu_maker(script, call) else _named_device(script, keyword(call, "device"))
        if name.count(".") == 1 and short in ("relu", "exp", "log", "abs", "sigmoid", "tanh", "sqrt") and call.args:
            return device_of(script, call.args[0], depth - 1)
        return ""
    value = receiver(call)
    if value is None:
        return ""
    if short == "cuda":
        return "cuda" if device_of(script, value, depth - 1) else ""
    if short == "cpu":
        return "cpu" if device_of(script, value, depth - 1) else ""
    if short == "to" and device_of(script, value, depth - 1):
        return _named_device(script, call.args[0] if call.args else keyword(call, "device"))
    return device_of(script, value, depth - 1) if short in SAME else ""


def _named_device(script: Script, node: ast.expr | None) -> str:
    """The device that a constant names: "cuda:1", torch.device("cuda"), a name for one of them."""
    value = constant(script, node)
    if value is None and isinstance(node, ast.Call) and script.index.qual(node) == "torch.device" and node.args:
        value = constant(script, node.args[0])
    if value is None and isinstance(node, ast.Name):
        made = _value_of(script, node)
        return _named_device(script, made) if isinstance(made, ast.Call) else ""
    text = value if isinstance(value, str) else ""
    return "cuda" if text.startswith("cuda") else "cpu" if text == "cpu" else ""


def _value_of(script: Script, node: ast.Name) -> ast.expr | None:
    """What a name holds at its use: its last value before, where no branch and no loop lies between."""
    scope = script.index.scope(node)
    bound = [b for b in scope.bindings.get(node.id, ()) if b.how != "augment"]  # x += y leaves x where it is
    if not bound and _named_once(script, node):
        bound = script.index.module.bindings.get(node.id, [])
        return bound[0].value
    before = [b for b in bound if place(b.node) < place(node) and node not in ast.walk(b.node)]
    if not before or any(b.how != "assign" for b in bound):
        return None
    last = max(before, key=lambda b: place(b.node))
    around = set(script.index.ancestors(node))
    if script.index.parent.get(last.node) not in around or not isinstance(last.node, ast.Assign):
        return None
    for loop in loops_around(script, node):
        if any(in_body(b.node, loop) for b in bound if b is not last) or node.id in draws(script, loop):
            return None
    return last.value


def _named_once(script: Script, node: ast.Name) -> bool:
    """A constant of the module: bound once, and nowhere between."""
    bound = script.index.module.bindings.get(node.id, ())
    inner = [s for s in script.index.module.walk() if s is not script.index.module and node.id in s.bindings]
    return len(bound) == 1 and bound[0].how == "assign" and not inner


def _is_tried(script: Script, node: ast.AST) -> bool:
    """Within try or pytest.raises: the failure is what is wanted."""
    for item in script.index.ancestors(node):
        if isinstance(item, ast.Try):
            return True
        if isinstance(item, ast.With) and any("raises" in dotted(i.context_expr).lower() for i in item.items):
            return True
    return False

"""Which functions a file compiles, and which of their expressions are values or shapes of tensors."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    called,
    class_of,
    constant,
    keyword,
    last_before,
    method,
    origins,
    parameters,
)
from torch_doctor.lint.kinds import is_module_class
from torch_doctor.lint.words import named

#: attributes and methods that Dynamo knows at trace time: a branch on them guards and recompiles
STATIC = named(
    "shape size dim ndim dtype device is_cuda requires_grad numel nelement stride is_contiguous training "
    "is_sparse layout itemsize names is_floating_point is_complex element_size"
)


#: reads of a value: a graph break (seen with torch 2.9 to 2.13; int() and float() as item())
READS = frozenset({"item", "tolist"})


#: reductions to a truth value: evidence that a branch is on a value
VALUES = named(
    "sum mean max min any all norm item std var prod abs count_nonzero argmax isnan isinf amax amin "
    "median allclose equal"
)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A function that torch.compile traces."""

    script: Script
    scope: Scope
    fullgraph: bool
    tensors: frozenset[str]


def compiled(script: Script) -> list[Compiled]:
    """Every compiled function of the file: decorated, torch.compile(f), torch.compile(Net()), net.compile()."""
    if "compiled" in script.memo:
        known: list[Compiled] = script.memo["compiled"]
        return known
    found: dict[Scope, Compiled] = {}
    if "compile" in script.text:
        for function in script.index.functions:
            for decorator in getattr(function.node, "decorator_list", ()):
                full = _decorates(script, decorator)
                if full is not None:
                    _add(script, function, full, found)
        for call in script.index.by_tail.get("compile", ()):
            if script.index.qual(call) == "torch.compile" and call.args:
                full = constant(script, keyword(call, "fullgraph")) is True
                _add_target(script, call.args[0], full, found)
            elif (
                isinstance(call.func, ast.Attribute)
                and not call.args
                and not script.index.qual(call).startswith(("torch.", "re."))
            ):
                _add_target(script, call.func.value, constant(script, keyword(call, "fullgraph")) is True, found)
    script.memo["compiled"] = list(found.values())
    return list(found.values())


def _decorates(script: Script, node: ast.AST) -> bool | None:
    if isinstance(node, ast.Call):
        if script.index.qual(node) == "torch.compile":
            return constant(script, keyword(node, "fullgraph")) is True
        if (
            dotted(node.func).rsplit(".", 1)[-1] == "partial"
            and node.args
            and script.index.qual(node.args[0]) == "torch.compile"
        ):
            return constant(script, keyword(node, "fullgraph")) is True
        return None
    return False if script.index.qual(node) == "torch.compile" else None


def _add_target(script: Script, node: ast.AST, full: bool, found: dict[Scope, Compiled]) -> None:
    if isinstance(node, ast.Lambda):
        _add(script, script.index.scope_at[node], full, found)
        return
    if isinstance(node, ast.Name):
        at: Scope | None = script.index.scope(node)
        while at is not None:
            own = at.function(node.id)
            if own is not None:
                _add(script, own, full, found)
                return
            at = at.parent
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        target = method(script, script.index.scope(node).owner, node.attr)
        if target is not None:
            _add(script, target[1], full, found)
            return
    for origin in origins(script, node):
        made = origin.node
        while (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and made.func.attr in ("cuda", "to", "eval", "train")
        ):
            made = made.func.value
        if isinstance(made, ast.Call):
            owner = class_of(origin.script, made)
            if owner is not None and owner[0] is script and is_module_class(*owner):
                forward = method(owner[0], owner[1], "forward")
                if forward is not None:
                    _add(script, forward[1], full, found)


def _add(script: Script, scope: Scope, full: bool, found: dict[Scope, Compiled]) -> None:
    arguments = getattr(scope.node, "args", None)
    names: set[str] = set()
    if isinstance(arguments, ast.arguments):
        defaults = [*arguments.posonlyargs, *arguments.args][
            len([*arguments.posonlyargs, *arguments.args]) - len(arguments.defaults) :
        ]
        plain = {a.arg for a in defaults}
        for item in [*arguments.posonlyargs, *arguments.args]:
            text = dotted(item.annotation) if item.annotation is not None else ""
            if item.arg in ("self", "cls") or item.arg in plain or text not in ("", "torch.Tensor", "Tensor"):
                continue
            if not names or text or _computes_with(script, scope, item.arg):
                names.add(item.arg)
    earlier = found.get(scope)
    found[scope] = Compiled(script, scope, full or bool(earlier and earlier.fullgraph), frozenset(names))
    for call in scope.calls:
        target = called(script, call)
        if target is not None and target[0] is script and target[1] not in found and len(found) < 50:
            _add_helper(script, target[1], call, full, found, frozenset(names))


def _computes_with(script: Script, scope: Scope, name: str) -> bool:
    """Whether a function treats a parameter as a tensor: methods and attributes of one, torch functions, layers."""
    for use in scope.names.get(name, ()):
        parent = script.index.parent.get(use)
        if isinstance(parent, ast.Attribute) and (
            parent.attr in STATIC or parent.attr in VALUES or parent.attr in READS
        ):
            return True
        if isinstance(parent, ast.Call) and use in parent.args:
            called_name = script.index.qual(parent)
            if called_name.startswith("torch.") or (called_name.startswith("self.") and called_name.count(".") == 1):
                return True
    return False


def _add_helper(
    script: Script, scope: Scope, call: ast.Call, full: bool, found: dict[Scope, Compiled], outer: frozenset[str]
) -> None:
    """A helper that the compiled function calls: its parameters that are given tensors."""
    if any(dotted(d).endswith(("disable", "disable()")) for d in getattr(scope.node, "decorator_list", ())):
        return  # torch._dynamo.disable, torch.compiler.disable: it runs outside the graph, as it was meant to
    names = [p for p in parameters(scope) if p not in ("self", "cls")]
    given = {n for n, a in zip(names, call.args, strict=False) if is_value(script, a, outer, 3)}
    if given:
        found[scope] = Compiled(script, scope, full, frozenset(given))


def is_value(script: Script, node: ast.AST, tensors: frozenset[str], depth: int = 4) -> bool:
    """Whether an expression depends on what a tensor holds, and not only on its shape or kind."""
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        if node.id in tensors:
            return True
        item = last_before(script, node.id, node)
        if item is None or item.how != "assign" or item.value is None or item.scope is not script.index.scope(node):
            return False
        return is_value(script, item.value, tensors, depth - 1)
    if isinstance(node, ast.Attribute):
        return node.attr not in STATIC and is_value(script, node.value, tensors, depth)
    if isinstance(node, ast.Subscript):
        return is_value(script, node.value, tensors, depth)
    if isinstance(node, ast.Call):
        return _call_value(script, node, tensors, depth)
    if isinstance(node, ast.BinOp):
        return is_value(script, node.left, tensors, depth) or is_value(script, node.right, tensors, depth)
    if isinstance(node, ast.UnaryOp):
        return is_value(script, node.operand, tensors, depth)
    if isinstance(node, ast.BoolOp):
        return any(is_value(script, v, tensors, depth) for v in node.values)
    if isinstance(node, ast.Compare):
        if all(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
            return False
        if any(
            isinstance(c, ast.Constant) and (c.value is None or isinstance(c.value, str)) for c in node.comparators
        ):
            return False
        return any(is_value(script, p, tensors, depth) for p in [node.left, *node.comparators])
    return False


def _call_value(script: Script, node: ast.Call, tensors: frozenset[str], depth: int) -> bool:
    short = dotted(node.func).rsplit(".", 1)[-1]
    if short in ("isinstance", "len", "hasattr", "getattr", "type", "callable", "id"):
        return False
    name = script.index.qual(node)
    if name in (
        "torch.is_tensor",
        "torch.is_grad_enabled",
        "torch.is_autocast_enabled",
        "torch.is_floating_point",
        "torch.numel",
    ):
        return False
    if isinstance(node.func, ast.Attribute) and (not name.startswith("torch.") or "(" in name):
        if short in STATIC:
            return False
        if dotted(node.func).startswith("self.") and dotted(node.func).count(".") == 1:
            # a layer or helper of the module: a tensor goes in, a tensor comes out
            return any(is_value(script, a, tensors, depth) for a in node.args)
        return is_value(script, node.func.value, tensors, depth)
    if name.startswith("torch.") or short in ("bool", "int", "float", "abs", "max", "min", "any", "all", "sum"):
        return any(is_value(script, a, tensors, depth) for a in node.args)
    return False


def is_shape(script: Script, node: ast.AST, tensors: frozenset[str]) -> bool:
    """Whether a test depends on the shape of a tensor."""
    for item in ast.walk(node):
        if (
            isinstance(item, ast.Attribute)
            and item.attr in ("shape", "size", "numel")
            and is_value(script, item.value, tensors)
        ):
            return True
        if (
            isinstance(item, ast.Call)
            and dotted(item.func) == "len"
            and item.args
            and is_value(script, item.args[0], tensors)
        ):
            return True
        if isinstance(item, ast.Name):
            found = last_before(script, item.id, item)
            if found is not None and found.value is not None and found.how in ("assign", "unpack"):
                for inner in ast.walk(found.value):
                    if (
                        isinstance(inner, ast.Attribute)
                        and inner.attr in ("shape", "size")
                        and is_value(script, inner.value, tensors)
                    ):
                        return True
    return False

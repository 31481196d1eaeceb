"""nn.Module: layers and tensors that it does not know of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Binding, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import bindings, lineage
from torch_doctor.lint.found import ERROR, finding, source
from torch_doctor.lint.kinds import is_module_class, kind
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("GRD112", "layers-in-plain-container")
def layers_in_plain_container(script: Script) -> Iterator[Finding]:
    """A module keeps layers in a plain list or dict.

    What it checks:
        self.x = [nn.Linear(...), ...], a comprehension or a dict of layers, and self.x.append(layer) on a plain
        list, in an nn.Module; not where the layers are registered by another attribute, add_module or ModuleList.
    Why it matters:
        parameters() does not find them: the optimizer never trains them, .to() does not move them, a checkpoint lacks
        them.
    Example:
        Bad::

            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = [nn.Linear(2, 2) for _ in range(3)]

        Good::

            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    Fix:
        nn.ModuleList, nn.ModuleDict or nn.Sequential.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html
    """
    for owner in script.index.classes.values():
        if not is_module_class(script, owner) or _registers(owner):
            continue
        for function in owner.children:
            if function.kind != "function":
                continue
            for name, items in list(function.bindings.items()):
                if not name.startswith("self.") or name.count(".") > 1:
                    continue
                if name.endswith("[]"):
                    yield from _set_items(script, owner, name.removesuffix("[]"), items)
                    continue
                for item in items:
                    if (
                        item.how == "assign"
                        and item.value is not None
                        and _holds_layers(script, item.value, 3)
                        and not _registered_later(script, owner, name)
                    ):
                        yield _plain(script, item.node, name, item.value)
            yield from _appended(script, owner, function)


def _plain(script: Script, node: ast.AST, name: str, value: ast.AST) -> Finding:
    better = "nn.ModuleDict" if isinstance(value, (ast.Dict, ast.DictComp)) else "nn.ModuleList"
    return finding(
        script,
        node,
        ERROR,
        f"{name} holds layers in a plain {'dict' if 'Dict' in better else 'list'}: parameters() does not find them",
        f"{better}(...)",
    )


def _registers(owner: Scope) -> bool:
    for function in owner.walk():
        for call in function.calls:
            if dotted(call.func) in (
                "self.add_module",
                "self.register_module",
                "setattr",
                "self.__setattr__",
                "self.register_parameter",
            ):
                return True
    return False


def _holds_layers(script: Script, value: ast.AST, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(value, (ast.List, ast.Tuple)):
        return bool(value.elts) and all(_is_new_layer(script, e) for e in value.elts)
    if isinstance(value, ast.ListComp):
        return _is_new_layer(script, value.elt)
    if isinstance(value, ast.Dict):
        return bool(value.values) and all(_is_new_layer(script, v) for v in value.values)
    if isinstance(value, ast.DictComp):
        return _is_new_layer(script, value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult)):
        return _holds_layers(script, value.left, depth - 1)
    if isinstance(value, ast.Call) and dotted(value.func) in ("list", "tuple") and value.args:
        inner = value.args[0]
        return (isinstance(inner, ast.GeneratorExp) and _is_new_layer(script, inner.elt)) or _holds_layers(
            script, inner, depth - 1
        )
    if isinstance(value, ast.Name):
        return _local_list(script, value, depth)
    return False


def _is_new_layer(script: Script, node: ast.AST) -> bool:
    """A layer with parameters that is made right here: nothing else holds it."""
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qual(node)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.nn.") and name.count(".") == 2:
        if short in ("Parameter",):
            return True
        return kind(script, node) == "module" and short not in _WITHOUT_PARAMETERS
    owner = script.index.classes.get(dotted(node.func))
    return owner is not None and is_module_class(script, owner) and _has_parameters(script, owner)


def _has_parameters(script: Script, owner: Scope) -> bool:
    """Whether a class of the file makes a layer with parameters, or one."""
    for item in lineage(script, owner):
        for scope in item.walk():
            for call in scope.calls:
                name = script.index.qual(call)
                short = name.rsplit(".", 1)[-1]
                if (
                    name.startswith("torch.nn.")
                    and name.count(".") == 2
                    and short[:1].isupper()
                    and short not in _WITHOUT_PARAMETERS
                    and not short.endswith("Loss")
                ):
                    return True
    return False


_WITHOUT_PARAMETERS = named(
    "ReLU ReLU6 LeakyReLU GELU SiLU ELU SELU Sigmoid Tanh Softmax LogSoftmax Softplus Hardtanh Hardswish "
    "Mish Identity Flatten Dropout Dropout1d Dropout2d Dropout3d MaxPool1d MaxPool2d MaxPool3d AvgPool1d "
    "AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d Upsample ZeroPad2d "
    "ReflectionPad2d PixelShuffle Unflatten CosineSimilarity DataParallel"
)


def _local_list(script: Script, node: ast.Name, depth: int) -> bool:
    """``layers = []; layers.append(nn.Linear()); self.layers = layers``, or a comprehension under a name."""
    scope = script.index.scope(node)
    for item in scope.bindings.get(node.id, ()):
        if item.how != "assign" or item.value is None:
            return False
        if isinstance(item.value, (ast.ListComp, ast.DictComp)) and _holds_layers(script, item.value, depth - 1):
            return not _used_in_container(script, scope, node.id)
        if isinstance(item.value, ast.List):
            added = [c for c in scope.calls if dotted(c.func) == f"{node.id}.append" and c.args]
            if added and all(_is_new_layer(script, c.args[0]) for c in added):
                return not _used_in_container(script, scope, node.id)
            return _holds_layers(script, item.value, depth - 1) and not _used_in_container(script, scope, node.id)
    return False


def _used_in_container(script: Script, scope: Scope, name: str) -> bool:
    for call in scope.calls:
        short = dotted(call.func).rsplit(".", 1)[-1]
        if short in ("ModuleList", "Sequential", "ModuleDict", "ParameterList", "OrderedDict") and any(
            isinstance(n, ast.Name) and n.id == name for a in call.args for n in ast.walk(a)
        ):
            return True
    return False


def _registered_later(script: Script, owner: Scope, name: str) -> bool:
    for function in owner.walk():
        for call in function.calls:
            short = dotted(call.func).rsplit(".", 1)[-1]
            if short in ("ModuleList", "Sequential", "ModuleDict", "ParameterList", "ParameterDict"):
                for argument in call.args:
                    if any(dotted(n) == name for n in ast.walk(argument) if isinstance(n, ast.Attribute)):
                        return True
    return False


def _appended(script: Script, owner: Scope, function: Scope) -> Iterator[Finding]:
    for call in function.calls:
        name = dotted(call.func)
        if not name.startswith("self.") or not name.endswith(".append") or not call.args or name.count(".") != 2:
            continue
        holder = name.removesuffix(".append")
        if not _is_new_layer(script, call.args[0]) or _registered_later(script, owner, holder):
            continue
        found = [b.value for b in bindings(script, holder, function) if b.how == "assign"]
        if found and all(isinstance(v, ast.List) and not v.elts for v in found):
            yield _plain(script, call, holder, ast.List([], ast.Load()))
            return


def _set_items(script: Script, owner: Scope, holder: str, items: list[Binding]) -> Iterator[Finding]:
    """``self.heads[name] = nn.Linear()`` on a plain dict."""
    new = [b for b in items if b.how == "assign" and b.value is not None and _is_new_layer(script, b.value)]
    found = [b.value for b in bindings(script, holder, items[0].scope) if b.how == "assign"]
    empty = found and all(
        (isinstance(v, ast.Dict) and not v.keys) or (isinstance(v, ast.Call) and dotted(v.func) in _DICTS)
        for v in found
    )
    if new and empty and not _registered_later(script, owner, holder):
        yield _plain(script, new[0].node, holder, ast.Dict([], []))


_DICTS = named("dict OrderedDict collections.OrderedDict defaultdict collections.defaultdict")


@check("GRD113", "parameter-is-no-leaf")
def parameter_is_no_leaf(script: Script) -> Iterator[Finding]:
    """The result of .cuda() or .to() on an nn.Parameter is kept, and it is no parameter.

    What it checks:
        self.x = nn.Parameter(...).cuda(), .to(...), or another operation on it, in an nn.Module.
    Why it matters:
        The result is an ordinary tensor: parameters() does not find it and it is never trained.
    Example:
        Bad::

            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = nn.Parameter(torch.zeros(3)).cuda()

        Good::

            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = nn.Parameter(torch.zeros(3, device="cuda"))
    Fix:
        Make the tensor on the device and wrap that: nn.Parameter(torch.zeros(3, device=device)).
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html
    """
    for call in script.index.by_tail.get("Parameter", ()):
        if script.index.qual(call) != "torch.nn.Parameter":
            continue
        attribute = script.index.parent.get(call)
        outer = script.index.parent.get(attribute) if isinstance(attribute, ast.Attribute) else None
        if not isinstance(outer, ast.Call) or not isinstance(attribute, ast.Attribute) or outer.func is not attribute:
            continue
        if attribute.attr not in ("cuda", "to", "half", "float", "double", "type"):
            continue
        statement = script.index.statement(call)
        if (
            isinstance(statement, ast.Assign)
            and statement.value is outer
            and dotted(statement.targets[0]).startswith("self.")
        ):
            yield finding(
                script,
                outer,
                ERROR,
                f"{source(script, outer)} is an ordinary tensor, no parameter: it is never trained",
                "nn.Parameter(torch....to(device))",
            )


@check("GRD114", "super-init-missing")
def super_init_missing(script: Script) -> Iterator[Finding]:
    """A module's __init__ assigns layers before, or without, super().__init__().

    What it checks:
        Classes whose direct base is nn.Module, with an __init__ that makes layers and never calls the base's.
    Why it matters:
        "cannot assign module before Module.__init__() call".
    Example:
        Bad::

            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    self.out = nn.Linear(2, 2)

        Good::

            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.out = nn.Linear(2, 2)
    Fix:
        super().__init__() as the first line of __init__.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html
    """
    for owner in script.index.classes.values():
        names = [script.index.resolve(dotted(b)) for b in getattr(owner.node, "bases", [])]
        start = owner.function("__init__")
        if names != ["torch.nn.Module"] or start is None:
            continue
        if any(dotted(c.func).rsplit(".", 1)[-1] in ("__init__", "_init", "super") for c in start.calls):
            continue
        first = next(
            (
                b
                for n, items in start.bindings.items()
                if n.startswith("self.")
                for b in items
                if isinstance(b.value, ast.Call)
                and script.index.qual(b.value).startswith("torch.nn.")
                and kind(script, b.value) == "module"
            ),
            None,
        )
        if first is not None:
            yield finding(
                script,
                first.node,
                ERROR,
                f"{owner.name} assigns a layer without super().__init__(): AttributeError",
                "super().__init__() as the first line of __init__",
            )

"""Losses that expect another activation than the model ends with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    called,
    class_of,
    has_star,
    last_before,
    method,
    origins,
)
from torch_doctor.lint.found import NOTE, WARNING, finding
from torch_doctor.lint.kinds import MODULE_MAKERS, is_module_class, kind
from torch_doctor.model import Finding
from torch_doctor.registry import check

SOFTMAX = {"softmax", "Softmax", "Softmax2d"}


LOG_SOFTMAX = {"log_softmax", "LogSoftmax"}


SIGMOID = {"sigmoid", "Sigmoid"}


#: loss -> (activations that break it, what it wants)
EXPECTS = {
    "CrossEntropyLoss": (SOFTMAX | SIGMOID, "logits: it applies log_softmax itself"),
    "cross_entropy": (SOFTMAX | SIGMOID, "logits: it applies log_softmax itself"),
    "BCEWithLogitsLoss": (SIGMOID | SOFTMAX, "logits: it applies the sigmoid itself"),
    "binary_cross_entropy_with_logits": (SIGMOID | SOFTMAX, "logits: it applies the sigmoid itself"),
    "NLLLoss": (SOFTMAX | SIGMOID, "log-probabilities: log_softmax"),
    "nll_loss": (SOFTMAX | SIGMOID, "log-probabilities: log_softmax"),
    "BCELoss": (LOG_SOFTMAX | {"linear"}, "probabilities: a sigmoid"),
    "binary_cross_entropy": (LOG_SOFTMAX | {"linear"}, "probabilities: a sigmoid"),
    "KLDivLoss": (SOFTMAX, "log-probabilities as its input: log_softmax"),
    "kl_div": (SOFTMAX, "log-probabilities as its input: log_softmax"),
}


#: those that also fail on what a bare nn.Linear gives
_WANT_LOG = {"NLLLoss", "nll_loss"}


def _elsewhere(script: Script, call: ast.Call, node: ast.AST | None) -> str:
    """Where the activation stands, if that is this file and not beside the loss."""
    line = getattr(node, "lineno", None)
    if node is None or line is None or line == call.lineno or script.cells or node not in script.index.parent:
        return ""
    return f" of line {line}"


@check("LOS102", "activation-does-not-fit-loss")
def activation_does_not_fit_loss(script: Script) -> Iterator[Finding]:
    """A loss is given the output of an activation that it applies itself, or lacks one that it needs.

    What it checks:
        softmax before CrossEntropyLoss, sigmoid before BCEWithLogitsLoss, softmax before NLLLoss or KLDivLoss, logits
        into BCELoss or NLLLoss: in the same function, in nn.Sequential, and at the end of forward() of the model that
        feeds it.
    Why it matters:
        Nothing fails. The gradient is squashed, the model learns slowly or not at all; BCELoss with logits raises.
    Example:
        Bad::

            import torch
            import torch.nn.functional as F
            def step(model, x, y):
                return F.cross_entropy(torch.softmax(model(x), 1), y)

        Good::

            import torch.nn.functional as F
            def step(model, x, y):
                return F.cross_entropy(model(x), y)
    Fix:
        Hand the loss what it wants; apply softmax or sigmoid for predictions only.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    for call in script.index.calls:
        if not call.args:
            continue
        for loss in loss_names(script, call):
            bad, wants = EXPECTS[loss]
            activation, node = last_activation(script, call.args[0], 6)
            if activation in bad or (activation == "linear" and loss in _WANT_LOG):
                shown = (
                    "logits go" if activation == "linear" else f"{activation}{_elsewhere(script, call, node)} goes"
                )
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"{shown} into {loss}, which wants {wants}",
                    _remedy(loss, activation),
                    evidence={"activation_line": getattr(node, "lineno", None)},
                )
                break
            if loss in ("CrossEntropyLoss", "cross_entropy") and activation in LOG_SOFTMAX:
                yield finding(
                    script,
                    call,
                    NOTE,
                    f"{activation} goes into {loss}, which applies it again",
                    "Use nll_loss, or drop it",
                )
                break


def _remedy(loss: str, activation: str) -> str:
    if activation == "linear":
        return "Use BCEWithLogitsLoss" if "B" in loss[:1] or "binary" in loss else "Use CrossEntropyLoss"
    if loss in ("NLLLoss", "nll_loss", "KLDivLoss", "kl_div"):
        return "Use log_softmax"
    if loss in ("BCELoss", "binary_cross_entropy"):
        return "Use sigmoid, or NLLLoss"
    if activation in SIGMOID and "ross" in loss and "B" not in loss[:1] and not loss.startswith("binary"):
        return "Drop the sigmoid, or use BCEWithLogitsLoss where the labels are independent"
    return f"Drop the {activation.lower()} before the loss; keep it for predictions"


def loss_names(script: Script, call: ast.Call) -> list[str]:
    """Which losses of EXPECTS a call computes: the function itself, or what the criterion was made from."""
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.nn.functional."):
        return [short] if short in EXPECTS else []
    if isinstance(call.func, ast.Call):
        inner = script.index.qual(call.func)
        return [s] if inner.startswith("torch.nn.") and (s := inner.rsplit(".", 1)[-1]) in EXPECTS else []
    if not isinstance(call.func, (ast.Name, ast.Attribute)) or kind(script, call.func) != "criterion":
        return []
    found = set()
    for origin in origins(script, call.func):
        node = _unwrapped(origin.node)
        if not isinstance(node, ast.Call):
            return []
        made = origin.script.index.qual(node)
        found.add(made.rsplit(".", 1)[-1] if made.startswith("torch.nn.") else "?")
    return sorted(found) if found and found <= set(EXPECTS) else []


_THROUGH = {
    "squeeze",
    "view",
    "reshape",
    "flatten",
    "float",
    "unsqueeze",
    "to",
    "cuda",
    "contiguous",
    "permute",
    "transpose",
    "clamp",
}


def last_activation(script: Script, node: ast.AST, depth: int) -> tuple[str, ast.AST]:
    """The last activation that a value went through: its name, ``linear`` for a bare layer, "" where unknown."""
    if depth <= 0:
        return "", node
    if isinstance(node, ast.Name):
        item = last_before(script, node.id, node)
        if item is None or item.how != "assign" or item.value is None:
            return "", node
        mixed = [b for b in item.scope.bindings.get(node.id, ()) if b.how not in ("assign", "parameter")]
        return ("", node) if mixed else last_activation(script, item.value, depth - 1)
    if isinstance(node, ast.Attribute):
        return "", node
    if isinstance(node, ast.Subscript):
        return last_activation(script, node.value, depth - 1)
    if not isinstance(node, ast.Call):
        return "", node
    return _of_call(script, node, depth)


def _of_call(script: Script, node: ast.Call, depth: int) -> tuple[str, ast.AST]:
    name = script.index.qual(node)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.") and "(" not in name:
        if short in SOFTMAX | LOG_SOFTMAX | SIGMOID:
            return short, node
        if name in ("torch.log",) and node.args:
            inner, where = last_activation(script, node.args[0], depth - 1)
            return ("log_softmax", node) if inner in SOFTMAX else ("", where)
        if short in _THROUGH and node.args:
            return last_activation(script, node.args[0], depth - 1)
        return ("linear", node) if name == "torch.nn.functional.linear" else ("", node)
    if isinstance(node.func, ast.Call):  # nn.Softmax(dim=1)(x)
        inner = script.index.qual(node.func)
        return _of_layer(script, node.func, inner, depth)
    if isinstance(node.func, ast.Attribute):
        if short in ("softmax", "log_softmax", "sigmoid", "sigmoid_") and not dotted(node.func.value).startswith(
            "self"
        ):
            return short.rstrip("_"), node
        if short == "log" and not node.args:
            inner, where = last_activation(script, node.func.value, depth - 1)
            return ("log_softmax", node) if inner in SOFTMAX else ("", where)
        if short in _THROUGH and not name.startswith("self."):
            return last_activation(script, node.func.value, depth - 1)
    return _of_module(script, node, depth)


def _of_layer(script: Script, made: ast.AST, name: str, depth: int) -> tuple[str, ast.AST]:
    short = name.rsplit(".", 1)[-1]
    if not name.startswith("torch.nn."):
        return "", made
    if short in SOFTMAX | LOG_SOFTMAX | SIGMOID:
        return short, made
    if short in ("Linear", "LazyLinear", "Conv1d", "Conv2d"):
        return "linear", made
    if short in ("Flatten", "Identity", "Unflatten"):
        return "", made
    if short == "Sequential" and isinstance(made, ast.Call) and made.args and not has_star(made):
        last = made.args[-1]
        if isinstance(last, ast.Call) and dotted(last.func).endswith("OrderedDict") and last.args:
            pairs = last.args[0].elts if isinstance(last.args[0], (ast.List, ast.Tuple)) else []
            last = pairs[-1].elts[-1] if pairs and isinstance(pairs[-1], ast.Tuple) and pairs[-1].elts else last
        if isinstance(last, ast.Call):
            return _of_layer(script, last, script.index.qual(last), depth - 1)
    return "", made


def _of_module(script: Script, node: ast.Call, depth: int) -> tuple[str, ast.AST]:
    """A call of a module or helper of this file or one beside it: what its forward or return ends with."""
    target = called(script, node)
    if target is not None:
        return _of_returns(target[0], target[1], depth)
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
        return "", node
    found = set()
    where: ast.AST = node
    for origin in origins(script, node.func):
        made = _unwrapped(origin.node)
        if isinstance(made, ast.Name) and made.id == dotted(node.func):
            continue  # model = model.to(device)
        alone = _only_model(script) if isinstance(made, ast.arg) and kind(script, node.func) == "module" else None
        if alone is None and not isinstance(made, ast.Call):
            return "", node
        owner = class_of(origin.script, made) if isinstance(made, ast.Call) else (script, alone)
        if owner is not None and owner[1] is not None:
            forward = method(owner[0], owner[1], "forward")
            result, where = _of_returns(forward[0], forward[1], depth) if forward is not None else ("", node)
        else:
            result, where = _of_layer(origin.script, made, origin.script.index.qual(made), depth)
        found.add(result)
    return (found.pop(), where) if len(found) == 1 else ("", node)


def _only_model(script: Script) -> Scope | None:
    """The one network that a file defines and no other class of it uses: what a function of it is given to train."""
    modules = [c for c in script.index.classes.values() if is_module_class(script, c) and c.function("forward")]
    inner = {dotted(c.func) for m in modules for s in m.walk() for c in s.calls}
    outer = [m for m in modules if m.name not in inner and not m.name.endswith("Loss")]
    made_elsewhere = any(script.index.qual(c).startswith(MODULE_MAKERS) for c in script.index.calls)
    return outer[0] if len(outer) == 1 and not made_elsewhere else None


def _unwrapped(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "to",
            "cuda",
            "train",
            "eval",
            "half",
            "float",
        ):
            node = node.func.value
        elif node.args and dotted(node.func).rsplit(".", 1)[-1] in (
            "DataParallel",
            "DistributedDataParallel",
            "DDP",
            "compile",
        ):
            node = node.args[0]
        else:
            break
    return node


def _of_returns(script: Script, scope: object, depth: int) -> tuple[str, ast.AST]:
    found = set()
    where: ast.AST = script.tree
    for item in getattr(scope, "returns", ()):
        if item.value is None:
            return "", item
        result, where = last_activation(script, item.value, depth - 1)
        found.add(result)
    return (found.pop(), where) if len(found) == 1 else ("", where)

"""Whether a value carries its autograd graph."""

from __future__ import annotations

import ast

from torch_doctor.facts.code_index import Binding, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import backward_loss, is_backward, is_forward
from torch_doctor.lint.flow import bindings, called, inside, last_before, place, receiver
from torch_doctor.lint.grad_mode import grad_off
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.words import named

#: methods and attributes after which no graph is left
CUTS = named(
    "item detach detach_ tolist numpy argmax argmin argsort long int bool byte short eq ne gt lt ge le "
    "size dim numel isnan isinf isfinite nonzero any all bincount histc ndimension nelement get_device "
    "is_cuda data shape device dtype grad is_leaf requires_grad grad_fn ndim names index round sign floor "
    "ceil backward step format multinomial bernoulli sample isclose allclose"
)
#: functions after which no graph is left
CUT_FUNCTIONS = named("float int len bool str repr round range isinstance print format id hash type")
_TORCH_CUTS = named("argmax argmin eq ne gt lt ge le isnan round sign no_grad tensor argsort bincount is_tensor")
#: the second value of these is a tensor of indices
PAIRS = named("max min topk sort median kthvalue mode cummax cummin")
KEEPING = named(
    "mean sum cpu cuda to float half double view reshape squeeze unsqueeze flatten clone contiguous abs "
    "sqrt pow exp log softmax log_softmax sigmoid permute transpose t max min norm mul add sub div prod "
    "var std gather expand repeat clamp requires_grad_ type item_ last_hidden_state square neg mean_ loss "
    "logits masked_fill select chunk split unbind topk"
)


def carries(script: Script, node: ast.AST, depth: int = 8) -> bool | None:
    """True, False, or None where it cannot be known."""
    if depth <= 0:
        return None
    if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda)):
        return False
    if isinstance(node, ast.Name):
        return _name(script, node, depth)
    if isinstance(node, ast.Attribute):
        return _attribute(script, node, depth)
    if isinstance(node, ast.Call):
        return _call(script, node, depth)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return _any(script, node.elts, depth)
    if isinstance(node, ast.Dict):
        return _any(script, node.values, depth)
    if isinstance(node, ast.BinOp):
        return _any(script, [node.left, node.right], depth)
    if isinstance(node, ast.UnaryOp):
        return False if isinstance(node.op, ast.Not) else carries(script, node.operand, depth - 1)
    if isinstance(node, ast.Subscript):
        return carries(script, node.value, depth - 1)
    if isinstance(node, ast.IfExp):
        return _any(script, [node.body, node.orelse], depth)
    if isinstance(node, ast.NamedExpr):
        return carries(script, node.value, depth - 1)
    return None


def _any(script: Script, nodes: list[ast.expr], depth: int) -> bool | None:
    found = [carries(script, n, depth - 1) for n in nodes if n is not None]
    if True in found:
        return True
    return None if None in found else False


def _name(script: Script, node: ast.Name, depth: int) -> bool | None:
    item = last_before(script, node.id, node)
    if item is None or item.how in ("parameter", "import", "def", "global"):
        if has_backward(script, node):
            return True
        return None
    found = _bound(script, item, depth)
    if found is None and has_backward(script, node):
        return True
    return found


def _bound(script: Script, item: Binding, depth: int) -> bool | None:
    if item.value is None or depth <= 0:
        return None
    if item.how == "loop":
        return None
    if item.how == "unpack" and isinstance(item.value, ast.Call):
        short = dotted(item.value.func).rsplit(".", 1)[-1]
        if item.position == 1 and short in PAIRS:
            return False
        if is_forward(script, item.value):
            return carries(script, item.value, depth - 1)
        return None if short not in PAIRS else carries(script, item.value, depth - 1)
    if item.how == "augment":
        own = carries(script, item.value, depth - 1)
        previous = last_before(script, item.name, item.node, item.scope)
        if own or previous is None or previous is item or depth <= 1:
            return own
        before = _bound(script, previous, depth - 1)
        return own if before is False else before
    if item.how == "with":
        return None
    return carries(script, item.value, depth - 1)


def _attribute(script: Script, node: ast.Attribute, depth: int) -> bool | None:
    if node.attr in CUTS:
        return False
    name = dotted(node)
    if name.startswith("self."):
        if has_backward(script, node):
            return True
        scope = script.index.scope(node)
        item = last_before(script, name, node)
        return _bound(script, item, depth) if item is not None and item.scope is scope else None
    found = carries(script, node.value, depth - 1)
    return found if node.attr in KEEPING or node.attr.endswith(("loss", "logits")) or found is not True else None


def _call(script: Script, node: ast.Call, depth: int) -> bool | None:
    function = node.func
    if isinstance(function, ast.Name) and function.id in CUT_FUNCTIONS:
        return False
    if is_forward(script, node) or kind(script, function) == "criterion":
        return None if grad_off(script, node) else True
    name = script.index.qual(node)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.") and "(" not in name:
        if short in _TORCH_CUTS or short.endswith("_like"):
            return False
        if name.startswith("torch.nn.functional.") or name.count(".") == 1:
            if name.startswith("torch.nn.functional.") and is_loss_function(short):
                return None if grad_off(script, node) else _loss_of(script, node, depth)
            return _any(script, list(node.args), depth) if node.args else False
        return None
    if isinstance(function, ast.Attribute):
        if short in CUTS:
            return False
        target = called(script, node)
        if target is not None:
            return _returned(target, node, script, depth)
        value = receiver(node)
        found = carries(script, value, depth - 1) if value is not None else None
        return found if short in KEEPING or found is not True else None
    target = called(script, node)
    return _returned(target, node, script, depth) if target is not None else None


def is_loss_function(short: str) -> bool:
    """Whether a name of torch.nn.functional is a loss."""
    return (
        short.endswith("_loss")
        or short in ("cross_entropy", "binary_cross_entropy", "kl_div")
        or short.startswith("binary_cross_entropy")
    )


def _loss_of(script: Script, node: ast.Call, depth: int) -> bool | None:
    """A functional loss has a graph where its input may have one: not where both are known to have none."""
    return not (node.args and carries(script, node.args[0], depth - 1) is False)


def _returned(target: tuple[Script, Scope], call: ast.Call, script: Script, depth: int) -> bool | None:
    where, scope = target
    if grad_off(script, call) or depth <= 2:
        return None
    values = [r.value for r in scope.returns if r.value is not None]
    found = [carries(where, v, depth - 2) for v in values]
    if True in found:
        return True
    return False if found and all(f is False for f in found) else None


def has_backward(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Whether backward() runs on what a name holds here, in the same function, after the same binding."""
    name = dotted(node)
    scope = script.index.scope(node)
    for call in script.index.by_tail.get("backward", ()):
        if script.index.scope(call) is not scope or not is_backward(script, call):
            continue
        loss = backward_loss(script, call)
        if loss is not None and dotted(loss) == name:
            between = [b for b in bindings(script, name, scope) if b.how == "assign" and b.scope is scope]
            low, high = sorted([place(call), place(node)])
            if not any(low < place(b.node) < high and not inside(node, b.node) for b in between):
                return True
    return False


def mentions(script: Script, node: ast.AST, name: str) -> bool:
    """Whether a dotted name stands within an expression."""
    return any(dotted(n) == name for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute)))


def loss_like(script: Script, node: ast.AST) -> bool:
    """Whether an expression is a loss by how it is made or named."""
    return words.says(words.LOSS, dotted(node)) if isinstance(node, (ast.Name, ast.Attribute)) else False

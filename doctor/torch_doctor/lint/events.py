"""What training code does: backward, optimizer steps, clearing gradients, calling networks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.flow import (
    Loop,
    bases,
    bindings,
    call_sites,
    called,
    inside,
    keyword,
    lineage,
    loops_around,
    method,
    origins,
    place,
    reached,
    receiver,
    spelled,
)
from torch_doctor.lint.kinds import by_name, elements, is_module_class, kind
from torch_doctor.lint.words import named

ZERO = re.compile(r".*(?:zero_?grad|clear_?grad|reset_?grad|zero_the_grad).*")
LOOP_OWNERS = ("lightning", "pytorch_lightning", "accelerate", "lightning_fabric", "deepspeed", "fastai", "ignite")


def uses(script: Script, *packages: str) -> bool:
    """Whether the file imports one of these packages."""
    memo = script.memo.get("packages")
    if memo is None:
        memo = set()
        for node in script.index.import_nodes:
            if isinstance(node, ast.Import):
                memo.update(a.name for a in node.names)
            elif node.module and not node.level:
                memo.add(node.module)
                memo.update(f"{node.module}.{a.name}" for a in node.names)
        script.memo["packages"] = memo
    return any(m == p or m.startswith(p + ".") for m in memo for p in packages)


def is_lightning(script: Script, scope: Scope) -> bool:
    """Whether a scope is in a LightningModule."""
    owner = scope.owner
    return owner is not None and any(b.endswith("LightningModule") for b in _base_names(script, owner))


def _base_names(script: Script, owner: Scope) -> list[str]:
    return [b for o in lineage(script, owner) for b in bases(o)]


def is_backward(script: Script, call: ast.Call) -> bool:
    """``loss.backward()``, ``accelerator.backward(loss)``, ``torch.autograd.backward(loss)``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in ("backward", "manual_backward") and dotted(call.func.value) != "super()"


def backward_calls(script: Script) -> list[ast.Call]:
    """Every backward() and manual_backward() of the file, in its order."""
    found = [*script.index.by_tail.get("backward", ()), *script.index.by_tail.get("manual_backward", ())]
    return sorted((c for c in found if is_backward(script, c)), key=place)


def backward_loss(script: Script, call: ast.Call) -> ast.expr | None:
    """The loss that a backward call starts from; ``scaler.scale(loss)`` is opened."""
    value = receiver(call)
    if call.args and value is not None and (script.index.qual(call) == "torch.autograd.backward" or _owns(value)):
        value = call.args[0]
    while isinstance(value, ast.Call) and value.args and isinstance(value.func, ast.Attribute):
        if value.func.attr != "scale":
            break
        value = value.args[0]
    return value


def _owns(node: ast.AST) -> bool:
    name = dotted(node)
    return words.tail(name) in ("accelerator", "fabric", "self", "strategy") or "engine" in name or "model" in name


def engine_backward(script: Script, call: ast.Call) -> bool:
    """``engine.backward(loss)`` of DeepSpeed and the like: the engine clears gradients itself."""
    value = receiver(call)
    if not call.args or value is None:
        return False
    name = words.tail(dotted(value)).lower()
    return not any(word in name for word in ("accelerator", "fabric", "self", "autograd", "loss", "scaler"))


def step_target(script: Script, call: ast.Call) -> ast.expr | None:
    """The optimizer that ``opt.step()`` or ``scaler.step(opt)`` steps; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return None
    value = call.func.value
    what = kind(script, value)
    if what == "scaler" and call.args:
        return call.args[0]
    if what == "optimizer":
        return value
    return None


def is_step(script: Script, call: ast.Call) -> bool:
    """Whether a call steps an optimizer."""
    return step_target(script, call) is not None


def is_zero(script: Script, call: ast.Call) -> bool:
    """Whether a call clears gradients, by its name."""
    if isinstance(call.func, ast.Attribute):
        if ZERO.fullmatch(call.func.attr.lower()):
            return True
        # p.grad.zero_(), p.grad.data.zero_(), p.grad.fill_(0)
        return call.func.attr in ("zero_", "fill_", "detach_", "mul_", "copy_") and ".grad" in dotted(call.func)
    return isinstance(call.func, ast.Name) and ZERO.fullmatch(call.func.id.lower()) is not None


def clears_by_hand(script: Script, node: ast.AST) -> bool:
    """``p.grad = None`` within a node, or in a helper that it calls."""
    nodes = [node]
    for where, call in reached(script, node):
        target = called(where, call)
        if target is not None and target[0] is script:
            nodes.append(target[1].node)
    return any(
        isinstance(a.ctx, ast.Store) and any(inside(a, n) for n in nodes)
        for a in script.index.attributes.get("grad", ())
    )


def zeroes(script: Script, node: ast.AST) -> bool:
    """Whether running a node clears gradients, directly or in a helper."""
    return any(is_zero(where, call) for where, call in reached(script, node)) or clears_by_hand(script, node)


def repeated_in(script: Script, call: ast.Call, depth: int = 3) -> Iterator[Loop]:
    """The loops that repeat a call, innermost first: those around it, then those around its function's callers."""
    found = loops_around(script, call)
    yield from found
    if depth == 0:
        return
    scope = script.index.scope(call)
    for site in _sites_of(script, scope):
        yield from repeated_in(script, site, depth - 1)


def _sites_of(script: Script, scope: Scope) -> list[ast.Call]:
    at: Scope | None = scope
    while at is not None and at.kind in ("lambda", "function"):
        found = call_sites(script, at)
        if found:
            return found
        if at.parent is not None and at.parent.kind in ("function", "lambda"):
            # a closure that is handed on (LBFGS, ignite): it runs where its function is
            passed = [c for c in at.parent.calls if any(isinstance(a, ast.Name) and a.id == at.name for a in c.args)]
            if passed:
                return passed
        at = None
    return []


def wants_gradient(script: Script, node: ast.AST) -> bool:
    """Whether running a node uses gradients: backward, autograd.grad, requires_grad on an input, attacks."""
    for where, call in reached(script, node):
        if is_backward(where, call):
            return True
        name = where.index.qual(call)
        short = name.rsplit(".", 1)[-1]
        if short in ("grad", "jacobian", "hessian", "vjp", "jvp", "vhp", "jacrev", "jacfwd", "retain_grad", "vmap"):
            return True
        if (
            short in ("requires_grad_", "Variable")
            and not _is_false(call.args[0] if call.args else keyword(call, "requires_grad"))
            and (short == "requires_grad_" or keyword(call, "requires_grad") is not None)
        ):
            return True
        if keyword(call, "requires_grad") is not None and not _is_false(keyword(call, "requires_grad")):
            return True
        if words.WANTS_GRADIENT.search(short.lower()):
            return True
    scope = script.index.scope_at.get(node) or script.index.scope(node)
    return any(
        isinstance(a.ctx, ast.Store) and inside(a, scope.node)
        for a in script.index.attributes.get("requires_grad", ())
    ) or any(inside(a, scope.node) for a in script.index.attributes.get("grad", ()) if scope.kind != "module")


def _is_false(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


#: methods of nn.Module: calling one is no forward
MODULE_METHODS = named(
    "modules children parameters buffers named_modules named_children named_parameters named_buffers "
    "state_dict eval train load_state_dict register_module register_modules add_module get_submodule "
    "zero_grad apply compile"
)


def is_forward(script: Script, call: ast.Call) -> bool:
    """Whether a call runs a module's forward."""
    memo = script.memo.setdefault("is_forward", {})
    if call not in memo:
        memo[call] = False
        memo[call] = _is_forward(script, call)
    found: bool = memo[call]
    return found


def _is_forward(script: Script, call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in MODULE_METHODS:
        return False
    if isinstance(function, ast.Attribute) and function.attr in ("forward", "module"):
        return kind(script, function.value) == "module"
    if isinstance(function, ast.Name):
        if function.id in script.index.imports and function.id not in script.index.scope(call).bindings:
            return False
        target = called(script, call)
        if target is not None or function.id in script.index.classes:
            return False
        return kind(script, function) == "module" or _is_network_called(script, function)
    if isinstance(function, ast.Attribute):
        if not dotted(function) or script.index.qual(call).startswith("torch."):
            return False
        return not _is_method(script, function) and (
            kind(script, function) == "module" or _is_network_called(script, function)
        )
    # Net()(x), nn.Linear(1, 1)(x), nets["D"](x)
    return isinstance(function, (ast.Call, ast.Subscript)) and kind(script, function) == "module"


#: what a network called target goes with
_COUNTERPARTS = named("online online_net predictor student policy actor critic q q_net")


def _is_network_called(script: Script, function: ast.Name | ast.Attribute) -> bool:
    """target(x), self.q1_target(x): a target or teacher network by its name, since it is called."""
    name = dotted(function)
    if not words.says(words.TARGET_NET, name) and "teacher" not in words.tail(name).lower():
        return False
    scope = script.index.scope(function)
    if words.tail(name) == "target" and not any(words.tail(dotted(c.func)) in _COUNTERPARTS for c in scope.calls):
        return False
    bound = bindings(script, name, scope)
    given = all(b.how == "parameter" for b in bound) or (
        # self.q1_target = q1_target: what the class was given
        name.startswith("self.") and all(o.how == "parameter" for o in origins(script, function))
    )
    return given and kind(script, function) == ""


def _is_method(script: Script, function: ast.Attribute) -> bool:
    """self.model(...) is a method where the class defines one of that name, not a module."""
    base = function.value
    if isinstance(base, ast.Name) and base.id in ("self", "cls"):
        owner = script.index.scope(function).owner
        return owner is not None and method(script, owner, function.attr) is not None
    # obj.encoder(x): a module only where obj is one or holds one; anything else is not known
    return not (
        bindings(script, dotted(function), script.index.scope(function))
        or by_name(dotted(base)) == "module"
        or dotted(base).startswith("self")
    )


def frozen(script: Script, name: str) -> bool:
    """Whether the file turns off requires_grad for a module: ``teacher.requires_grad_(False)``, a loop over it."""
    short = words.tail(name)
    for call in script.index.by_tail.get("requires_grad_", ()):
        if call.args and _is_false(call.args[0]) and (short in dotted(call.func) or _loops_over(script, call, short)):
            return True
    for attribute in script.index.attributes.get("requires_grad", ()):
        if isinstance(attribute.ctx, ast.Store) and (
            short in dotted(attribute) or _loops_over(script, attribute, short)
        ):
            return True
    for short_name in (
        "freeze",
        "set_requires_grad",
        "requires_grad",
        "toggle_grad",
        "freeze_model",
        "freeze_params",
    ):
        for call in script.index.by_tail.get(short_name, ()):
            if any(short in dotted(a) for a in [*call.args, call.func]) or any(
                short in dotted(e) for a in call.args if isinstance(a, (ast.List, ast.Tuple)) for e in a.elts
            ):
                return True
    return False


def _loops_over(script: Script, node: ast.AST, short: str) -> bool:
    for item in script.index.ancestors(node):
        if isinstance(item, (ast.For, ast.AsyncFor)) and any(
            words.tail(dotted(n)) == short for n in ast.walk(item.iter) if isinstance(n, (ast.Name, ast.Attribute))
        ):
            return True
    return False


def modules_of(script: Script, optimizer: ast.AST) -> set[str]:
    """The names of the modules whose parameters an optimizer was built over."""
    found: set[str] = set()
    made = (
        elements(script, optimizer.value, key=optimizer.slice)
        if isinstance(optimizer, ast.Subscript)
        else origins(script, optimizer)
    )
    for origin in made:
        if isinstance(origin.node, ast.Call):
            for argument in [*origin.node.args, *(k.value for k in origin.node.keywords)]:
                for item in ast.walk(argument):
                    if (
                        isinstance(item, ast.Call)
                        and isinstance(item.func, ast.Attribute)
                        and item.func.attr in ("parameters", "named_parameters")
                    ):
                        found.add(spelled(item.func.value))
    # nets[k] of a comprehension over k may be any of them
    return {name for name in found if not name.endswith("[]")}


def is_module_scope(script: Script, scope: Scope) -> bool:
    """Whether a scope is a method of an nn.Module of this file."""
    owner = scope.owner
    return owner is not None and is_module_class(script, owner)

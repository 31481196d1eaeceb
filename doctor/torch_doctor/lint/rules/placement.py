"""Where batches and modules meet: a module on the GPU and what it is given, on the CPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.batches import draws, loader_of, opened
from torch_doctor.lint.events import is_forward, uses
from torch_doctor.lint.flow import (
    Loop,
    argument_for,
    call_sites,
    called,
    calls_in,
    class_of,
    in_body,
    inside,
    keyword,
    last_before,
    loops_around,
    origins,
    parameters,
    place,
    receiver,
)
from torch_doctor.lint.found import ERROR, finding, source
from torch_doctor.lint.kinds import FLUENT, WRAPPERS, kind
from torch_doctor.lint.rules.device import has_default_device, on_gpu
from torch_doctor.lint.rules.forward import is_cpu_maker
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("DEV104", "batch-not-moved")
def batch_not_moved(script: Script) -> Iterator[Finding]:
    """The model is on the GPU and the batches stay on the CPU.

    What it checks:
        A loop over a loader that hands its items to a module that this file moved to a GPU, with nothing in between
        that could move them. Files whose framework places batches are not meant.
    Why it matters:
        "Expected all tensors to be on the same device", or "Input type (torch.FloatTensor) and weight type
        (torch.cuda.FloatTensor) should be the same".
    Example:
        Bad::

            import torch
            from torch import nn
            def run(loader):
                model = nn.Linear(2, 2).to("cuda")
                for x, y in loader:
                    print(model(x))

        Good::

            import torch
            from torch import nn
            def run(loader):
                model = nn.Linear(2, 2).to("cuda")
                for x, y in loader:
                    x = x.to("cuda", non_blocking=True)
                    print(model(x))
    Fix:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True) at the top of the loop.
    References:
        https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    if has_default_device(script) or uses(
        script,
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "deepspeed",
        "fastai",
        "ignite",
        "torch_xla",
        "transformers",
    ):
        return
    yield from _made_on_cpu(script)
    yield from _model_left_behind(script)
    seen: set[ast.AST] = set()
    for call in script.index.calls:
        loop = next((item for item in loops_around(script, call) if _draws_plainly(script, item)), None)
        if loop is None or loop in seen or not call.args or not is_forward(script, call):
            continue
        if not _moved(script, call.func, loop) or _moves_its_input(script, call):
            continue
        drawn = draws(script, loop)
        names = [dotted(a) for a in call.args if isinstance(a, ast.Name)]
        stuck = [n for n in names if n in drawn and not _may_move(script, n, loop, call)]
        if stuck:
            seen.add(loop)
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call.func)} is on the GPU and {stuck[0]} was never moved there",
                f"{stuck[0]} = {stuck[0]}.to(device, non_blocking=True) at the top of the loop",
            )
        else:
            yield from _unmoved_target(script, loop, seen)


def _moves_its_input(script: Script, call: ast.Call) -> bool:
    """Whether the module's own forward() moves what it is given."""
    for origin in origins(script, call.func):
        made = origin.node
        while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in FLUENT:
            made = made.func.value
        owner = class_of(origin.script, made) if isinstance(made, ast.Call) else None
        forward = owner[1].function("forward") if owner is not None else None
        if forward is None:
            continue
        given = set(parameters(forward))
        for move in forward.calls:
            moves = isinstance(move.func, ast.Attribute) and move.func.attr in ("to", "cuda")
            if moves and dotted(receiver(move) or move) in given:
                return True
    return False


def _made_on_cpu(script: Script) -> Iterator[Finding]:
    """A tensor that is made on the CPU here and handed to a module on the GPU."""
    for call in script.index.calls:
        if not call.args or script.index.scope(call).name == "forward" or not is_forward(script, call):
            continue
        for argument in call.args:
            maker = _maker(script, argument)
            if maker is None or not is_cpu_maker(script, maker) or not _moved(script, call.func, call):
                continue
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call.func)} is on the GPU and {source(script, argument)} was made on the CPU",
                f"{source(script, maker)[:-1]}, device=device)",
            )
            break


def _maker(script: Script, node: ast.AST) -> ast.Call | None:
    """The call that made a tensor, where it is the only thing that happened to it."""
    if isinstance(node, ast.Call):
        return node
    if not isinstance(node, ast.Name):
        return None
    found = last_before(script, node.id, node)
    scope = script.index.scope(node)
    if found is None or found.how != "assign" or not isinstance(found.value, ast.Call) or found.scope is not scope:
        return None
    for use in scope.names.get(node.id, ()):
        parent = script.index.parent.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "data", "set_"):
            return None
    return found.value


def _model_left_behind(script: Script) -> Iterator[Finding]:
    """The batches go to the GPU and the model, made here, never does."""
    if script.index.by_tail.get("DataParallel") or script.index.by_tail.get("DistributedDataParallel"):
        return
    seen: set[str] = set()
    for call in sorted(script.index.calls, key=place):
        name = dotted(call.func)
        if not call.args or not isinstance(call.func, ast.Name) or name in seen or not is_forward(script, call):
            continue
        if not any(_goes_to_gpu(script, a, call) for a in call.args):
            continue
        scope = script.index.scope(call)
        bound = [b for b in scope.bindings.get(name, ()) if b.how == "assign"]
        if len(bound) != 1 or len(scope.bindings[name]) != 1 or not isinstance(bound[0].value, ast.Call):
            continue
        made = bound[0].value
        if (
            kind(script, made) != "module"
            or (made.args and _mentions_device(made))
            or (made.keywords and _mentions_device(made))
        ):
            continue
        if _is_plain_module(script, made) and all(_only_runs(script, n, call) for n in scope.names.get(name, ())):
            seen.add(name)
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call.args[0])} is on the GPU and {name} was never moved there",
                f"{name}.to(device) before the loop",
            )


def _mentions_device(call: ast.Call) -> bool:
    return any(
        words.says(words.DEVICE, dotted(n)) for n in ast.walk(call) if isinstance(n, (ast.Name, ast.Attribute))
    )


def _is_plain_module(script: Script, made: ast.Call) -> bool:
    name = script.index.qual(made)
    return (name.startswith("torch.nn.") and "(" not in name) or class_of(script, made) is not None


def _only_runs(script: Script, name: ast.Name, call: ast.Call) -> bool:
    """Whether a use of the model's name moves it nowhere: a call of it, parameters(), train(), eval()."""
    parent = script.index.parent.get(name)
    if isinstance(name.ctx, ast.Store):
        return True
    if isinstance(parent, ast.Call):
        return parent.func is name
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "parameters",
        "train",
        "eval",
        "state_dict",
        "zero_grad",
    )


def _goes_to_gpu(script: Script, node: ast.AST, call: ast.Call) -> bool:
    """Whether an argument is moved to "cuda" for certain, in the call or by its only binding in the loop."""
    if isinstance(node, ast.Name):
        found = last_before(script, node.id, node)
        # only what comes before is followed: x, y = x, y leads to itself
        if found is None or found.value is None or found.how != "assign" or place(found.node) >= place(node):
            return False
        if inside(node, found.node):
            return False
        return _goes_to_gpu(script, found.value, call)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return True
    first = node.args[0] if node.func.attr == "to" and node.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith("cuda")


def _unmoved_target(script: Script, loop: Loop, seen: set[ast.AST]) -> Iterator[Finding]:
    """The input is moved and the target of the loss is not."""
    for call in calls_in(script, loop):
        name = script.index.qual(call)
        functional = name.startswith("torch.nn.functional.") and (name.endswith(("loss", "cross_entropy", "logits")))
        if (not functional and kind(script, call.func) != "criterion") or len(call.args) < 2:
            continue
        target = call.args[1]
        if (
            isinstance(target, ast.Name)
            and target.id in draws(script, loop)
            and not _may_move(script, target.id, loop, call)
            and loop not in seen
        ):
            seen.add(loop)
            yield finding(
                script,
                call,
                ERROR,
                f"the model is on the GPU and {target.id} was never moved there",
                f"{target.id} = {target.id}.to(device, non_blocking=True) at the top of the loop",
            )


def _draws_plainly(script: Script, loop: Loop) -> bool:
    """Whether a loop draws batches from a loader whose collate_fn cannot move anything, or from a parameter."""
    if not draws(script, loop):
        return False
    drawn = [loop.iter] if isinstance(loop, ast.For) else []
    inner = [loader_of(script, getattr(n, "value", None)) for nodes in draws(script, loop).values() for n in nodes]
    loaders = [n for n in inner if n is not None] or [opened(n) for n in drawn]
    return bool(loaders) and all(_plain_loader(o.node) for n in loaders for o in origins(script, n))


def _plain_loader(node: ast.AST) -> bool:
    return not isinstance(node, ast.Call) or keyword(node, "collate_fn") is None


def _moved(script: Script, function: ast.AST, loop: ast.AST, depth: int = 4) -> bool:
    """Whether the module was moved to a GPU before, here or where this function is called from."""
    name = dotted(function)
    scope = script.index.scope(function)
    last = _last_move(script, name, scope, loop)
    if last is not None:
        return on_gpu(script, last)
    for origin in origins(script, function, scope):
        node = origin.node
        if isinstance(node, ast.Call) and origin.script.index.qual(node) in WRAPPERS and node.args and depth:
            bare = node.args[0]
            if isinstance(bare, (ast.Name, ast.Attribute, ast.Call)) and _moved(script, bare, node, depth - 1):
                return True
        while isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and on_gpu(origin.script, node):
                return kind(origin.script, node.func.value) == "module"
            inner = receiver(node)
            if inner is None:
                break
            node = inner
    return depth > 0 and _moved_by_caller(script, name, scope, depth)


def _last_move(script: Script, name: str, scope: Scope, before: ast.AST) -> ast.Call | None:
    """The last statement that moves what a name holds, before a node of the same function; of an attribute, any."""
    found = [
        move
        for short in ("cuda", "to", "cpu")
        for move in script.index.by_tail.get(short, ())
        if dotted(receiver(move) or move) == name and (short != "to" or on_gpu(script, move) or _to_cpu(move))
    ]
    here = [m for m in found if script.index.scope(m) is scope and place(m) < place(before)]
    if here:
        return max(here, key=place)
    return next((m for m in found if on_gpu(script, m)), None) if name.startswith("self.") else None


def _to_cpu(move: ast.Call) -> bool:
    return bool(move.args) and isinstance(move.args[0], ast.Constant) and move.args[0].value == "cpu"


def _moved_by_caller(script: Script, name: str, scope: Scope, depth: int) -> bool:
    # a function that calls itself passes its model on: only the calls from outside say where it is
    sites = [s for s in call_sites(script, scope) if script.index.scope(s) is not scope]
    if not sites or not any(b.how == "parameter" for b in scope.bindings.get(name, ())):
        return False
    for site in sites:
        argument = argument_for(scope, site, name)
        if not isinstance(argument, (ast.Name, ast.Attribute)) or not _moved(script, argument, site, depth - 1):
            return False
    return True


def _may_move(script: Script, name: str, loop: Loop, before: ast.Call) -> bool:
    """Whether anything in the loop may move what ``name`` holds: a binding, a method, a helper."""
    scope = script.index.scope(loop)
    drawn = draws(script, loop)
    for item in scope.bindings.get(name, ()):
        if in_body(item.node, loop) and item.node not in drawn.get(name, ()):
            return True
    for use in scope.names.get(name, ()):
        if not in_body(use, loop) or place(use) >= place(before):
            continue
        parent = script.index.parent.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda", "pin_memory", "data", "set_"):
            return True
        if (
            isinstance(parent, ast.Call)
            and use in parent.args
            and called(script, parent) is None
            and not script.index.qual(parent).startswith("torch.")
            and not is_forward(script, parent)
            and dotted(parent.func) not in ("len", "print", "range", "isinstance", "type")
        ):
            return True
    # a part of a batch is where the batch was
    wholes = {dotted(value) for n in drawn.get(name, ()) if (value := _whole(n)) is not None} - {name}
    return any(w in drawn and _may_move(script, w, loop, before) for w in wholes)


def _whole(node: ast.AST) -> ast.expr | None:
    """What ``x, y = batch`` or ``x = batch[0]`` takes its part from."""
    value = getattr(node, "value", None) if isinstance(node, ast.Assign) else None
    return value.value if isinstance(value, ast.Subscript) else value if isinstance(value, ast.Name) else None

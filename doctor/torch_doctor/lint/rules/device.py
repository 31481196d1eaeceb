"""Where tensors and modules live: results of .to() and .cuda(), tensors made in forward, unmoved batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import is_forward, is_step, uses
from torch_doctor.lint.flow import (
    called,
    calls_in,
    class_of,
    constant,
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
from torch_doctor.lint.found import ERROR, NOTE, finding, fix, insert, replace, source
from torch_doctor.lint.kinds import FLUENT, TENSOR_MAKERS, WRAPPERS, kind
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check

MOVES = named("cuda to cpu half float double bfloat16 long int bool type type_as pin_memory xpu mps npu")
#: methods of a tensor that change nothing where their result is dropped
PURE = MOVES | named(
    "detach clone contiguous squeeze unsqueeze permute transpose reshape view flatten expand masked_fill "
    "clamp abs exp log sqrt softmax sigmoid"
)
#: attributes that a tensor has; any other says that the value is something else
TENSOR_ATTRIBUTES = PURE | named(
    "size shape dim ndim dtype device requires_grad requires_grad_ grad item numpy tolist mean sum max "
    "min argmax t T backward data numel nelement is_cuda split chunk repeat gather scatter scatter_ "
    "index_select new_zeros new_ones add sub mul div matmul mm bmm eq ne gt lt ge le any all norm std var "
    "pow topk sort new fill_ zero_ copy_ add_ mul_ div_ sub_ retain_grad unbind cumsum prod __len__ "
    "is_contiguous expand_as view_as short byte"
)


@check("DEV101", "move-result-dropped", tags={"fixable"})
def move_result_dropped(script: Script) -> Iterator[Finding]:
    """The result of .to(), .cuda() or another tensor method is thrown away.

    What it checks:
        A statement that only calls such a method on a tensor. nn.Module.to() works in place and is not meant; neither
        is anything whose kind cannot be known.
    Why it matters:
        A tensor method returns a new tensor. The old one stays on the CPU, and the model fails with "Expected all
        tensors to be on the same device" or trains on the CPU.
    Example:
        Bad::

            import torch
            x = torch.zeros(2)
            x.to("cuda")

        Good::

            import torch
            x = torch.zeros(2)
            x = x.to("cuda")
    Fix:
        Assign the result: x = x.to(device). --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html
    """
    for value, alone in _dropped(script):
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        target = value.func.value
        if value.func.attr not in PURE or not _no_tensor_argument(value) or not is_tensor(script, target):
            continue
        if value.func.attr not in MOVES and not alone:
            continue
        mend = None
        if alone and dotted(target) and isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            mend = fix(
                f"assign it to {source(script, target)}",
                [insert(script, value, script.segment(target) + " = ")],
            )
        yield finding(
            script,
            value,
            ERROR,
            f"{source(script, value)} returns a new tensor and the result is dropped",
            f"{source(script, target)} = {source(script, value)}",
            fix=mend,
        )
    yield from _rebound_items(script)


def _dropped(script: Script) -> Iterator[tuple[ast.expr, bool]]:
    """(expression whose value nothing takes, whether it stands for itself and not for each item of something)."""
    for statement in script.index.statements[ast.Expr]:
        value = getattr(statement, "value", None)
        if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            yield value.elt, False
        elif isinstance(value, ast.Tuple):
            yield from ((e, False) for e in value.elts)
        elif isinstance(value, ast.expr):
            yield value, True


def _no_tensor_argument(call: ast.Call) -> bool:
    return keyword(call, "out") is None


def _rebound_items(script: Script) -> Iterator[Finding]:
    """``for t in batch: t = t.cuda()``: only the loop's own name changes."""
    for assign in script.index.statements[ast.Assign]:
        value = getattr(assign, "value", None)
        targets = getattr(assign, "targets", [])
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and len(targets) == 1):
            continue
        name = targets[0].id if isinstance(targets[0], ast.Name) else ""
        if value.func.attr not in ("cuda", "to") or not name or dotted(value.func.value) != name:
            continue
        loop = next(iter(loops_around(script, assign)), None)
        if not isinstance(loop, ast.For) or len(loop.body) != 1 or name not in _targets(loop):
            continue
        scope = script.index.scope(assign)
        if any(place(n) > place(assign) and not inside(n, assign) for n in scope.names[name]):
            continue
        if _is_batch(script, loop.iter) or isinstance(loop.iter, (ast.Tuple, ast.List)):
            yield finding(
                script,
                assign,
                ERROR,
                f"{name} is only the loop's name: what it iterates over keeps the tensors where they were",
                f"{source(script, loop.iter)} = [t.to(device) for t in {source(script, loop.iter)}]",
            )


def _targets(loop: ast.For) -> set[str]:
    return {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}


def _is_batch(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values"):
        return _is_batch(script, node.func.value)
    name = dotted(node)
    return words.says(words.BATCH, name) and not words.says(words.LOADED, name)


def is_tensor(script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Whether an expression is a tensor for certain: made by torch, an item of a loader, moved or computed with."""
    if depth <= 0:
        return False
    if kind(script, node) == "tensor":
        return True
    if isinstance(node, ast.Subscript):
        return _is_batch_item(script, node.value)
    if isinstance(node, ast.BinOp):
        return is_tensor(script, node.left, depth - 1) or is_tensor(script, node.right, depth - 1)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in PURE and not is_forward(script, node):
            return is_tensor(script, node.func.value, depth - 1)
        if not node.args and not node.keywords:
            return False  # self.read_model() makes a model
        return is_forward(script, node) and not isinstance(script.index.parent.get(node), ast.Attribute)
    if not isinstance(node, ast.Name):
        return False
    found = last_before(script, node.id, node)
    if found is None or not _used_as_tensor(script, node.id, found.scope):
        return False
    if found.how == "loop" and found.value is not None:
        return _item_of_loader(script, found.value, found.position, found.node)
    if found.how == "unpack" and found.value is not None:
        return _is_batch_item(script, found.value)
    if found.how == "parameter":
        return _tensor_parameter(script, node.id, found.scope)
    if found.value is not None and isinstance(found.value, ast.Subscript):
        return _is_batch_item(script, found.value.value)
    if found.how == "assign" and isinstance(found.value, ast.Call):
        return is_tensor(script, found.value, depth - 1)
    return False


def _tensor_parameter(script: Script, name: str, scope: Scope) -> bool:
    arguments = getattr(scope.node, "args", None)
    for argument in [*arguments.args, *arguments.kwonlyargs] if isinstance(arguments, ast.arguments) else []:
        if argument.arg == name and argument.annotation is not None:
            return script.index.resolve(dotted(argument.annotation)) in ("torch.Tensor", "Tensor")
    if not words.says(words.BATCH, name) or words.tail(name) in ("data", "batch", "sample", "samples"):
        return False
    # handed to a model by position, or into a loss: it is what the model computes with
    for call in scope.calls:
        if any(dotted(a) == name for a in call.args):
            if is_forward(script, call) or kind(script, call.func) == "criterion":
                return True
            if script.index.qual(call).startswith("torch.nn.functional."):
                return True
    return False


def _is_batch_item(script: Script, node: ast.AST) -> bool:
    name = dotted(node)
    if not isinstance(node, ast.Name):
        return False
    found = last_before(script, name, node)
    if found is None:
        return False
    if found.how == "parameter" and name in ("batch", "inputs", "sample") and not uses(script, *BATCHES_OF_GRAPHS):
        parent = script.index.parent.get(node)
        return isinstance(parent, ast.Subscript) and _key_of(script, parent.slice, name)
    if found.value is None or found.how != "loop":
        return False
    return _item_of_loader(script, found.value, found.position, found.node)


#: packages whose batches hold objects that move in place
BATCHES_OF_GRAPHS = ("torch_geometric", "dgl")


def _key_of(script: Script, key: ast.AST, name: str) -> bool:
    """Whether a subscript is a key of a dict of tensors: a string, or the loop's own over it."""
    if isinstance(key, ast.Constant):
        return isinstance(key.value, str)
    found = last_before(script, key.id, key) if isinstance(key, ast.Name) else None
    return (
        found is not None
        and found.how == "loop"
        and dotted(found.value or found.node).split("(")[0]
        in (
            name,
            f"{name}.keys",
        )
    )


def _item_of_loader(script: Script, iterated: ast.expr, position: int, loop: ast.AST) -> bool:
    """Whether a loop's target is (part of) a batch; ``enumerate`` and progress bars are opened."""
    target = getattr(loop, "target", None)
    if isinstance(iterated, ast.Call):
        short = dotted(iterated.func).rsplit(".", 1)[-1]
        if short == "enumerate" and iterated.args:
            return not (isinstance(target, ast.Tuple) and position == 0 and not _nested(target, loop, position)) and (
                _item_of_loader(script, iterated.args[0], -1, loop)
            )
        if short in ("tqdm", "trange", "progress_bar", "track", "iter", "islice") and iterated.args:
            return _item_of_loader(script, iterated.args[0], position, loop)
        if short in ("items", "values") and isinstance(iterated.func, ast.Attribute):
            return (position != 0 and _is_batch_name(script, iterated.func.value)) or (
                short == "values" and _is_batch_name(script, iterated.func.value)
            )
    if isinstance(iterated, (ast.Tuple, ast.List)) and iterated.elts:
        return all(is_tensor(script, e) for e in iterated.elts)
    if dotted(iterated).endswith("loaders"):
        return False
    if kind(script, iterated) == "loader" or words.says(words.LOADED, dotted(iterated)):
        return True
    return _is_batch_name(script, iterated)


def _nested(target: ast.Tuple, loop: ast.AST, position: int) -> bool:
    return isinstance(target.elts[0], (ast.Tuple, ast.List)) if target.elts else False


def _is_batch_name(script: Script, node: ast.AST) -> bool:
    return _is_batch_item(script, node) and words.says(words.BATCH, dotted(node))


def _used_as_tensor(script: Script, name: str, scope: Scope) -> bool:
    """False where an attribute or a string key shows that it is a structure of its own."""
    for child in scope.names.get(name, ()):
        parent = script.index.parent.get(child)
        if isinstance(parent, ast.Attribute) and parent.attr not in TENSOR_ATTRIBUTES:
            return False
        if (
            isinstance(parent, ast.Subscript)
            and parent.value is child
            and isinstance(parent.slice, ast.Constant)
            and isinstance(parent.slice.value, str)
        ):
            return False
        if isinstance(parent, ast.keyword) and parent.arg is None:
            return False
    return True


def has_default_device(script: Script) -> bool:
    """Whether the file sets the device that new tensors are made on."""
    names = ("set_default_device", "set_default_tensor_type")
    if any(script.index.by_tail.get(n) for n in names):
        return True
    return any(
        "torch.device" in script.index.qual(i.context_expr)
        for w in script.index.statements[ast.With]
        for i in getattr(w, "items", ())
    )


def uses_gpu(script: Script) -> bool:
    """Whether anything in the file is moved to a device."""
    if script.index.by_tail.get("cuda"):
        return True
    return any(on_gpu(script, c) or _to_a_device(script, c) for c in script.index.by_tail.get("to", ()))


#: x.device is where something is already
_OF_TENSORS = named("x input inputs hidden_states tensor weight")


def _to_a_device(script: Script, call: ast.Call) -> bool:
    """``model.to(args.device)``: a module goes where the user says."""
    value = call.args[0] if call.args else keyword(call, "device")
    target = receiver(call)
    return (
        isinstance(value, (ast.Name, ast.Attribute))
        and words.says(words.DEVICE, dotted(value))
        and dotted(value).split(".")[0] not in _OF_TENSORS
        and target is not None
        and kind(script, target) == "module"
    )


def on_gpu(script: Script, call: ast.Call) -> bool:
    """Whether ``.to(...)`` or ``.cuda()`` moves to a GPU, as far as can be seen: a device name counts."""
    short = dotted(call.func).rsplit(".", 1)[-1]
    if short == "cuda":
        return True
    if short != "to":
        return False
    value = call.args[0] if call.args else keyword(call, "device")
    if value is None:
        return False
    for origin in origins(script, value):
        node = origin.node
        text = ""
        if isinstance(node, ast.Call) and origin.script.index.qual(node) == "torch.device" and node.args:
            node = node.args[0]
        for item in ast.walk(node):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                text += item.value
            elif isinstance(item, ast.Constant) and isinstance(item.value, int) and not isinstance(item.value, bool):
                text += "cuda"
        if "cuda" in text:
            return True
    return False


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
        loop = next(
            (item for item in loops_around(script, call) if isinstance(item, ast.For) and _over_loader(script, item)),
            None,
        )
        if loop is None or loop in seen or not call.args or not is_forward(script, call):
            continue
        if not _moved(script, call.func, loop) or _moves_its_input(script, call):
            continue
        names = [dotted(a) for a in call.args if isinstance(a, ast.Name)]
        bound = _targets(loop)
        stuck = [n for n in names if n in bound and not _may_move(script, n, loop, call)]
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
            yield from _unmoved_target(script, loop, bound, names, seen)


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
    from torch_doctor.lint.rules.forward import is_cpu_maker

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
        scope = script.index.scope(node)
        bound = [b for b in scope.bindings.get(node.id, ()) if b.how == "assign" and place(b.node) < place(call)]
        return bool(bound) and bound[-1].value is not None and _goes_to_gpu(script, bound[-1].value, call)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return True
    first = node.args[0] if node.func.attr == "to" and node.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith("cuda")


def _unmoved_target(
    script: Script, loop: ast.For, bound: set[str], inputs: list[str], seen: set[ast.AST]
) -> Iterator[Finding]:
    """The input is moved and the target of the loss is not."""
    for call in calls_in(script, loop):
        name = script.index.qual(call)
        functional = name.startswith("torch.nn.functional.") and (name.endswith(("loss", "cross_entropy", "logits")))
        if (not functional and kind(script, call.func) != "criterion") or len(call.args) < 2:
            continue
        target = call.args[1]
        if (
            isinstance(target, ast.Name)
            and target.id in bound
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


def _over_loader(script: Script, loop: ast.For) -> bool:
    node: ast.expr = loop.iter
    while (
        isinstance(node, ast.Call)
        and node.args
        and dotted(node.func).rsplit(".", 1)[-1] in ("enumerate", "tqdm", "iter")
    ):
        node = node.args[0]
    if dotted(node).endswith("()"):
        return False
    if kind(script, node) == "loader":
        return all(_plain_loader(o.node, o.script) for o in origins(script, node))
    return False


def _plain_loader(node: ast.AST, script: Script) -> bool:
    """A DataLoader whose collate_fn cannot move anything, or a parameter."""
    if isinstance(node, ast.Call):
        return keyword(node, "collate_fn") is None
    return True


def _moved(script: Script, function: ast.AST, loop: ast.AST, depth: int = 4) -> bool:
    """Whether the module was moved to a GPU before, here or where this function is called from."""
    name = dotted(function)
    scope = script.index.scope(function)
    for short in ("cuda", "to"):
        for move in script.index.by_tail.get(short, ()):
            owner = receiver(move)
            if owner is None or dotted(owner) != name or not on_gpu(script, move):
                continue
            same = script.index.scope(move) is scope and place(move) < place(loop)
            if same or name.startswith("self."):
                return True
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


def _moved_by_caller(script: Script, name: str, scope: Scope, depth: int) -> bool:
    from torch_doctor.lint.flow import argument_for, call_sites

    # a function that calls itself passes its model on: only the calls from outside say where it is
    sites = [s for s in call_sites(script, scope) if script.index.scope(s) is not scope]
    if not sites or not any(b.how == "parameter" for b in scope.bindings.get(name, ())):
        return False
    for site in sites:
        argument = argument_for(scope, site, name)
        if not isinstance(argument, (ast.Name, ast.Attribute)) or not _moved(script, argument, site, depth - 1):
            return False
    return True


def _may_move(script: Script, name: str, loop: ast.For, before: ast.Call) -> bool:
    """Whether anything in the loop may move what ``name`` holds: a binding, a method, a helper."""
    scope = script.index.scope(loop)
    for item in scope.bindings.get(name, ()):
        if in_body(item.node, loop):
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
    return False


__all__ = ["is_tensor", "on_gpu", "uses_gpu"]
_unused = (NOTE, TENSOR_MAKERS, constant, replace, is_step)

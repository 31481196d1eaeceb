"""Where tensors and modules live: results of .to() and .cuda(), tensors made in forward, unmoved batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.batches import counter, loader_of
from torch_doctor.lint.events import is_forward, uses
from torch_doctor.lint.flow import (
    inside,
    keyword,
    last_before,
    loops_around,
    origins,
    place,
    receiver,
)
from torch_doctor.lint.found import ERROR, finding, fix, insert, source
from torch_doctor.lint.kinds import kind
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
        if alone and value.func.attr not in ("cuda", "to") and _is_shown(script, value):
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


def _is_shown(script: Script, value: ast.AST) -> bool:
    """The last expression of a notebook's cell: its value is displayed."""
    line = getattr(value, "end_lineno", 0)
    statement = script.index.parent.get(value)
    nested = statement is None or script.index.parent.get(statement) is not script.tree
    if nested or not 0 < line <= len(script.cells):
        return False
    own = script.cells[line - 1].cell
    rest = [
        text.strip() for text, at in zip(script.lines[line:], script.cells[line:], strict=False) if at.cell == own
    ]
    return not any(text and not text.startswith("#") for text in rest)


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
        return _item_of_loader(script, found.value, found.position, found.node, node.id)
    if found.how == "unpack" and found.value is not None:
        if loader_of(script, found.value) is not None or _is_batch_item(script, found.value):
            return True
        return _is_given_batch(script, found.value) and _is_handed_on(script, node.id, found.scope)
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
    return _is_handed_on(script, name, scope)


def _is_given_batch(script: Script, node: ast.AST) -> bool:
    """A parameter called batch: ``x, y = batch``."""
    found = last_before(script, node.id, node) if isinstance(node, ast.Name) else None
    return found is not None and found.how == "parameter" and words.tail(found.name) in ("batch", "data", "sample")


def _is_handed_on(script: Script, name: str, scope: Scope) -> bool:
    """Whether a name goes to a model by position, or into a loss: it is what the model computes with."""
    for call in scope.calls:
        if any(dotted(a) == name for a in call.args):
            if is_forward(script, call) or kind(script, call.func) == "criterion":
                return True
            if script.index.qual(call).startswith("torch.nn.functional."):
                return True
    return False


def _is_batch_item(script: Script, node: ast.AST) -> bool:
    memo = script.memo.setdefault("batch_item", {})
    if node not in memo:
        memo[node] = False  # for x in x leads to itself
        memo[node] = _is_drawn(script, node)
    found: bool = memo[node]
    return found


def _is_drawn(script: Script, node: ast.AST) -> bool:
    name = dotted(node)
    if not isinstance(node, ast.Name):
        return False
    found = last_before(script, name, node)
    if found is None:
        return False
    if found.how == "parameter" and name in ("batch", "inputs", "sample") and not uses(script, *BATCHES_OF_GRAPHS):
        parent = script.index.parent.get(node)
        return isinstance(parent, ast.Subscript) and _key_of(script, parent.slice, name)
    if found.how == "assign" and loader_of(script, found.value) is not None:
        return True
    if found.value is None or found.how != "loop":
        return False
    return _item_of_loader(script, found.value, found.position, found.node, name)


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


def _item_of_loader(script: Script, iterated: ast.expr, position: int, loop: ast.AST, name: str) -> bool:
    """Whether a loop's target is (part of) a batch; ``enumerate`` and progress bars are opened."""
    if isinstance(iterated, ast.Call):
        short = dotted(iterated.func).rsplit(".", 1)[-1]
        if short == "enumerate" and iterated.args:
            return counter(loop) != name and _item_of_loader(script, iterated.args[0], -1, loop, name)
        if short in ("tqdm", "trange", "progress_bar", "track", "iter", "islice") and iterated.args:
            return _item_of_loader(script, iterated.args[0], position, loop, name)
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

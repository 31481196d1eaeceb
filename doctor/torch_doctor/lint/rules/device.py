"""Where tensors and modules live: results of .to() and .cuda(), tensors made in forward, unmoved batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import COMPREHENSIONS, Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import is_forward, is_module_scope, is_step, uses
from torch_doctor.lint.flow import (
    bindings,
    called,
    calls_in,
    constant,
    in_body,
    inside,
    keyword,
    last_before,
    loops_around,
    origins,
    place,
    receiver,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, fix, insert, replace, source
from torch_doctor.lint.kinds import TENSOR_MAKERS, kind
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
    for statement in script.index.statements[ast.Expr]:
        value = getattr(statement, "value", None)
        if isinstance(value, COMPREHENSIONS) and not isinstance(value, ast.DictComp):
            value = value.elt
            named = False
        else:
            named = True
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        target = value.func.value
        if value.func.attr not in PURE or not _no_tensor_argument(value) or not is_tensor(script, target):
            continue
        if value.func.attr not in MOVES and not named:
            continue
        mend = None
        if named and dotted(target) and isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
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


def is_tensor(script: Script, node: ast.AST) -> bool:
    """Whether an expression is a tensor for certain: made by torch, an item of a loader, moved or computed with."""
    if kind(script, node) == "tensor":
        return True
    if isinstance(node, ast.Subscript):
        return _is_batch_item(script, node.value)
    if isinstance(node, ast.BinOp):
        return is_tensor(script, node.left) or is_tensor(script, node.right)
    if isinstance(node, ast.Call):
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
    return False


def _tensor_parameter(script: Script, name: str, scope: Scope) -> bool:
    arguments = getattr(scope.node, "args", None)
    for argument in [*arguments.args, *arguments.kwonlyargs] if isinstance(arguments, ast.arguments) else []:
        if argument.arg == name and argument.annotation is not None:
            return script.index.resolve(dotted(argument.annotation)) in ("torch.Tensor", "Tensor")
    if not words.says(words.BATCH, name) or words.tail(name) in (
        "data",
        "batch",
        "sample",
        "samples",
        "inputs",
        "input",
    ):
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
    if found is None or found.value is None or found.how != "loop":
        return False
    return _item_of_loader(script, found.value, found.position, found.node)


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
    if words.tail(dotted(iterated)).endswith("loaders"):
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


MAKERS = named("zeros ones rand randn randint empty full arange linspace eye tensor logspace randperm as_tensor")


@check("DEV102", "tensor-made-on-cpu-in-forward")
def tensor_made_on_cpu_in_forward(script: Script) -> Iterator[Finding]:
    """forward() makes a tensor without device=, so it is on the CPU whatever the module is on.

    What it checks:
        torch.zeros, arange, randn and the like in forward() of an nn.Module, without device=, whose result meets
        other tensors and is never moved. A note where nothing in the file uses a GPU.
    Why it matters:
        After model.to("cuda") it fails with "Expected all tensors to be on the same device".
    Example:
        Bad::

            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    return x + torch.arange(x.size(1))
            net = Net().to("cuda")

        Good::

            import torch
            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    return x + torch.arange(x.size(1), device=x.device)
            net = Net().to("cuda")
    Fix:
        Pass device=x.device, use x.new_zeros() or zeros_like(), or make it once and register_buffer() it.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_buffer
    """
    if _default_device(script):
        return
    gpu = uses_gpu(script)
    for function in script.index.functions:
        if function.kind != "function" or function.name != "forward" or not is_module_scope(script, function):
            continue
        for call in calls_in(script, function.node):
            if is_cpu_maker(script, call) and meets_tensors(script, call, function):
                yield finding(
                    script,
                    call,
                    WARNING if gpu else NOTE,
                    f"{source(script, call)} is made on the CPU in forward()",
                    "Pass device=x.device of an input, or make it in __init__ and register_buffer() it",
                )


def is_cpu_maker(script: Script, call: ast.Call) -> bool:
    """Whether a call makes a tensor on the default device."""
    name = script.index.qual(call)
    if not name.startswith("torch.") or name.count(".") != 1 or name[6:] not in MAKERS:
        return False
    if (
        keyword(call, "device") is not None
        or keyword(call, "out") is not None
        or any(k.arg is None for k in call.keywords)
    ):
        return False
    if name in ("torch.tensor", "torch.as_tensor"):
        # a 0-dim CPU tensor may meet tensors on any device
        return bool(call.args) and isinstance(call.args[0], (ast.List, ast.ListComp, ast.Tuple))
    return not (name in ("torch.ones", "torch.zeros") and call.args and _is_empty_tuple(call.args[0]))


def _is_empty_tuple(node: ast.AST) -> bool:
    return isinstance(node, (ast.Tuple, ast.List)) and not node.elts


def meets_tensors(script: Script, call: ast.Call, function: Scope) -> bool:
    """Whether a tensor made here is computed with, and not moved on the way."""
    node: ast.AST = call
    for parent in script.index.ancestors(call):
        if isinstance(parent, ast.Call):
            short = dotted(parent.func).rsplit(".", 1)[-1]
            if node is not parent.func and short != "Variable":
                return _consumes(script, parent, short)
            if short in ("to", "cuda", "type_as", "tolist", "item", "numpy", "to_device", "cpu"):
                return False
        elif isinstance(parent, ast.BinOp):
            other = parent.right if parent.left is node else parent.left
            if not _is_number(script, other):
                return True
        elif isinstance(parent, ast.Subscript):
            if node is not parent.value:
                return False  # an index on the CPU may index a tensor on any device
        elif isinstance(parent, ast.Attribute):
            if parent.attr in ("shape", "device", "dtype"):
                return False
        elif isinstance(parent, ast.Assign):
            name = dotted(parent.targets[0])
            return bool(name) and len(parent.targets) == 1 and _name_meets_tensors(script, name, function, parent)
        elif isinstance(parent, (ast.Return, ast.For, ast.comprehension, ast.stmt)):
            return False
        node = parent
    return False


def _is_number(script: Script, node: ast.AST, depth: int = 3) -> bool:
    """Whether an operand is a plain number: constants, math, sizes and what is computed from them."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_number(script, node.left, depth) and _is_number(script, node.right, depth)
    if isinstance(node, ast.UnaryOp):
        return _is_number(script, node.operand, depth)
    if isinstance(node, ast.Subscript):
        return _is_number(script, node.value, depth)
    if isinstance(node, ast.Call):
        short = dotted(node.func).rsplit(".", 1)[-1]
        return short in (
            "size",
            "len",
            "numel",
            "dim",
            "int",
            "float",
            "item",
            "sqrt",
            "floor",
            "ceil",
            "max",
            "min",
            "log",
            "random",
        ) and (not script.index.qual(node).startswith("torch."))
    name = dotted(node)
    if name.startswith(("math.", "np.", "numpy.")) or name.endswith((".shape", ".ndim")):
        return True
    if isinstance(node, ast.Name) and depth:
        found = [o for o in origins(script, node) if o.node is not node]
        if found and all(not isinstance(o.node, ast.arg) and _is_number(o.script, o.node, depth - 1) for o in found):
            return True
    return words.tail(name).startswith(("num_", "n_", "max_", "min_")) or words.tail(name).endswith(
        ("_size", "_len", "_dim", "_scale", "_std")
    )


def _consumes(script: Script, parent: ast.Call, short: str) -> bool:
    name = script.index.qual(parent)
    if name.startswith("torch."):
        return short not in ("tensor", "as_tensor", "Generator", "device", "Size", "is_tensor")
    return is_forward(script, parent)


def _name_meets_tensors(script: Script, name: str, function: Scope, at: ast.AST) -> bool:
    uses_of = [n for s in function.walk() for n in s.names.get(name, ()) if isinstance(n.ctx, ast.Load)]
    if len([b for b in bindings(script, name, function) if b.how == "assign"]) > 1:
        return False
    meets = False
    for use in uses_of:
        if place(use) < place(at):
            continue
        node: ast.AST = use
        for parent in script.index.ancestors(use):
            if isinstance(parent, ast.Attribute):
                if parent.attr in ("to", "cuda", "type_as", "tolist", "item", "numpy", "device"):
                    return False
            elif isinstance(parent, ast.Call):
                if node is not parent.func:
                    short = dotted(parent.func).rsplit(".", 1)[-1]
                    if not _consumes(script, parent, short):
                        return False
                    meets = True
                    break
            elif isinstance(parent, ast.BinOp):
                if not _is_number(script, parent.right if parent.left is node else parent.left):
                    meets = True
                    break
            elif (isinstance(parent, ast.Subscript) and node is not parent.value) or (
                not isinstance(parent, (ast.Subscript, ast.UnaryOp)) and isinstance(parent, ast.stmt)
            ):
                break
            node = parent
    return meets


def _default_device(script: Script) -> bool:
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
    return any(on_gpu(script, c) for c in script.index.by_tail.get("to", ()))


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


LAYERS = named(
    "Linear LazyLinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d "
    "BatchNorm2d BatchNorm3d LayerNorm GroupNorm Embedding EmbeddingBag LSTM GRU RNN LSTMCell GRUCell "
    "MultiheadAttention PReLU TransformerEncoderLayer TransformerDecoderLayer Transformer Bilinear "
    "Parameter"
)
DROPOUTS = frozenset(["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"])


@check("DEV103", "layer-made-in-forward")
def layer_made_in_forward(script: Script) -> Iterator[Finding]:
    """forward() makes a layer anew at each call.

    What it checks:
        nn.Linear, nn.Conv2d and other layers with weights (and Dropout) made and used within forward(). A layer that
        is kept (self.x = ...) is lazy initialisation and not meant.
    Why it matters:
        Its weights are random at every step, no optimizer has them, no checkpoint holds them, and they are on the CPU
        whatever the model is on. A Dropout made so ignores eval().
    Example:
        Bad::

            from torch import nn
            class Net(nn.Module):
                def forward(self, x):
                    return nn.Linear(8, 2)(x)

        Good::

            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.out = nn.Linear(8, 2)
                def forward(self, x):
                    return self.out(x)
    Fix:
        Make it in __init__ and keep it as an attribute.
    References:
        https://docs.pytorch.org/docs/stable/notes/modules.html
    """
    for function in script.index.functions:
        if function.kind != "function" or function.name != "forward" or not is_module_scope(script, function):
            continue
        for call in calls_in(script, function.node):
            name = script.index.qual(call)
            short = name.rsplit(".", 1)[-1]
            if name != f"torch.nn.{short}" or short not in LAYERS | DROPOUTS or _is_kept(script, call):
                continue
            why = "ignores eval()" if short in DROPOUTS else "has new random weights at every call"
            yield finding(
                script,
                call,
                ERROR if short in LAYERS else WARNING,
                f"{source(script, call)} is made in forward() and {why}",
                "Make it in __init__ and keep it as an attribute",
            )


def _is_kept(script: Script, call: ast.Call) -> bool:
    statement = script.index.statement(call)
    if isinstance(statement, ast.Assign):
        if any(dotted(t).startswith("self.") for t in statement.targets):
            return True
        name = dotted(statement.targets[0])
        scope = script.index.scope(call)
        if statement.value is not call:
            return False
        holders = [script.index.parent.get(n) for n in scope.names.get(name, ())]
        return any(
            isinstance(h, ast.Assign) and any(dotted(t).startswith("self") for t in h.targets) for h in holders
        )
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        outer = dotted(statement.value.func)
        return outer.startswith("self.") and outer.rsplit(".", 1)[-1] in ("append", "add_module", "register_module")
    return isinstance(statement, ast.If)


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
    if _default_device(script) or uses(
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
    seen: set[ast.AST] = set()
    for call in script.index.calls:
        loop = next(
            (item for item in loops_around(script, call) if isinstance(item, ast.For) and _over_loader(script, item)),
            None,
        )
        if loop is None or loop in seen or not call.args or not is_forward(script, call):
            continue
        if not _moved(script, call.func, loop):
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


def _moved(script: Script, function: ast.AST, loop: ast.AST) -> bool:
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
        while isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and on_gpu(origin.script, node):
                return kind(origin.script, node.func.value) == "module"
            inner = receiver(node)
            if inner is None:
                break
            node = inner
    return _moved_by_caller(script, name, scope)


def _moved_by_caller(script: Script, name: str, scope: Scope) -> bool:
    from torch_doctor.lint.flow import argument_for, call_sites

    sites = call_sites(script, scope)
    if not sites or not any(b.how == "parameter" for b in scope.bindings.get(name, ())):
        return False
    for site in sites:
        argument = argument_for(scope, site, name)
        if not isinstance(argument, (ast.Name, ast.Attribute)) or not _moved(script, argument, site):
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

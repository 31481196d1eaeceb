"""What forward() makes anew: tensors on the CPU, layers, and dropout that ignores eval()."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import is_forward, is_module_scope
from torch_doctor.lint.flow import bindings, calls_in, keyword, origins, place
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, is_test_file, source
from torch_doctor.lint.rules.device import has_default_device, uses_gpu
from torch_doctor.lint.words import named
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: tensor methods that want their tensor argument on the same device
MEETING = named(
    "masked_fill masked_fill_ add add_ sub sub_ mul mul_ div div_ matmul mm bmm eq ne lt le gt ge gather scatter "
    "scatter_ where maximum minimum masked_select"
)
MAKERS = named("zeros ones rand randn randint empty full arange linspace eye tensor logspace randperm as_tensor")
#: classes that make a CPU tensor of what they are given; those of integers hold lengths, which belong on the CPU
CLASSES = named("FloatTensor DoubleTensor HalfTensor Tensor")


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
    if has_default_device(script):
        return
    gpu = uses_gpu(script) and not is_test_file(script.path)
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
    if not name.startswith("torch.") or name.count(".") != 1:
        return False
    if name[6:] in CLASSES:
        return bool(call.args) and not isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Starred))
    if name[6:] not in MAKERS:
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
                verdict = _consumes(script, parent, node)
                if verdict is not None:
                    return verdict
            elif short in ("to", "cuda", "type_as", "tolist", "item", "numpy", "to_device", "cpu"):
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


#: what is a probability, a rate or a width by its name
_SCALAR = re.compile(r"p|(?:.*_)?(?:\w?prob|rate|eps|epsilon|std|sigma|alpha|beta|temperature|dropout)")


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
    if _SCALAR.fullmatch(words.tail(name)):
        return True
    return words.tail(name).startswith(("num_", "n_", "max_", "min_")) or words.tail(name).endswith(
        ("_size", "_len", "_dim", "_scale", "_std")
    )


def _consumes(script: Script, parent: ast.Call, node: ast.AST) -> bool | None:
    """Whether a call computes with its argument and another tensor; None where it only passes it on."""
    name = script.index.qual(parent)
    if not name.startswith("torch."):
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in MEETING:
            return not any(
                isinstance(o.node, ast.Call) and is_cpu_maker(o.script, o.node)
                for o in origins(script, parent.func.value)
            )
        return is_forward(script, parent)
    if name.rsplit(".", 1)[-1] in ("tensor", "as_tensor", "Generator", "device", "Size", "is_tensor"):
        return False
    others: list[ast.expr] = []
    for argument in [
        *parent.args,
        *(k.value for k in parent.keywords if k.arg in ("other", "target", "mask", "tensors")),
    ]:
        parts = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument]
        others += parts
    held = set(ast.walk(node)) if not isinstance(node, (ast.List, ast.Tuple)) else _made_in(script, node)
    return True if any(o not in held and not _is_number(script, o) for o in others) else None


def _made_in(script: Script, node: ast.List | ast.Tuple) -> set[ast.AST]:
    """The elements of a list that are made on the CPU themselves."""
    return {e for e in node.elts if isinstance(e, ast.Call) and is_cpu_maker(script, e)}


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
                    verdict = _consumes(script, parent, node)
                    if verdict is False:
                        return False
                    if verdict:
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


@check("DEV105", "dropout-ignores-eval")
def dropout_ignores_eval(script: Script) -> Iterator[Finding]:
    """forward() calls F.dropout without training=, so it drops in evaluation, too.

    What it checks:
        torch.nn.functional.dropout and its relatives in forward() of an nn.Module without the training argument.
    Why it matters:
        Its default is training=True: model.eval() does not reach it, and every prediction is noisy.
    Example:
        Bad::

            from torch import nn
            import torch.nn.functional as F
            class Net(nn.Module):
                def forward(self, x):
                    return F.dropout(x, 0.5)

        Good::

            from torch import nn
            import torch.nn.functional as F
            class Net(nn.Module):
                def forward(self, x):
                    return F.dropout(x, 0.5, training=self.training)
    Fix:
        training=self.training, or an nn.Dropout made in __init__.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html
    """
    for short in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        for call in script.index.by_tail.get(short, ()):
            scope = script.index.scope(call)
            if script.index.qual(call) != f"torch.nn.functional.{short}" or scope.name != "forward":
                continue
            if (
                keyword(call, "training") is not None
                or len(call.args) > 2
                or any(k.arg is None for k in call.keywords)
            ):
                continue
            # Tacotron 2 drops in its prenet when it speaks, too: https://arxiv.org/abs/1712.05884, section 2.2
            prenet = "prenet" in script.segment(call).lower() or (
                scope.owner and "prenet" in scope.owner.name.lower()
            )
            if is_module_scope(script, scope) and not prenet and not _in_training_only(script, call):
                yield finding(
                    script,
                    call,
                    WARNING,
                    f"{source(script, call)} drops after eval(), too: training defaults to True",
                    "training=self.training",
                )


def _in_training_only(script: Script, call: ast.Call) -> bool:
    return any(
        isinstance(p, (ast.If, ast.IfExp)) and "training" in ast.dump(p.test) for p in script.index.ancestors(call)
    )

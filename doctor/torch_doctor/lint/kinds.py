"""What kind of thing an expression is: a module, an optimizer, a loader, a loss, ..."""

from __future__ import annotations

import ast
import functools

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.flow import Origin, bases, class_of, lineage, origins, receiver
from torch_doctor.lint.words import named

#: what wraps a module and forwards to it
WRAPPERS = {
    "torch.nn.DataParallel": "module.",
    "torch.nn.parallel.DataParallel": "module.",
    "torch.nn.parallel.DistributedDataParallel": "module.",
    "torch.compile": "_orig_mod.",
    "torch._dynamo.optimize": "_orig_mod.",
}
#: methods of a module that return the module
FLUENT = {
    "cuda",
    "to",
    "cpu",
    "half",
    "float",
    "double",
    "bfloat16",
    "train",
    "eval",
    "requires_grad_",
    "apply",
    "type",
}
MODULE_MAKERS = ("torchvision.models.", "timm.create_model", "torch.hub.load", "segmentation_models_pytorch.")
HUGGING_FACE = ("from_pretrained", "from_config")
SCHEDULER_MAKERS = {
    "get_linear_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_polynomial_decay_schedule_with_warmup",
    "get_constant_schedule_with_warmup",
    "get_scheduler",
}
_NOT_MODULES = {"Parameter", "ParameterList", "ParameterDict", "Buffer"}


def kind(script: Script, node: ast.AST, scope: Scope | None = None) -> str:
    """module, criterion, optimizer, scheduler, loader, dataset, scaler, tensor, other, or "" (not known)."""
    memo = script.memo.setdefault("kind", {})
    if node not in memo:
        memo[node] = ""  # a value that is made from itself has no other kind
        memo[node] = _kind(script, node, scope or script.index.scope(node))
    found: str = memo[node]
    return found


def _kind(script: Script, node: ast.AST, scope: Scope) -> str:
    found = {_of_origin(o) for o in origins(script, node, scope)} - {""}
    if len(found) == 1:
        return found.pop()
    if found:
        return "module" if "module" in found else ""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return ""
    return by_name(dotted(node)) or _by_use(script, node)


#: methods that, called without arguments, only a module has
_MODULE_USES = ("parameters", "named_parameters", "eval", "train")


def _by_use(script: Script, node: ast.AST) -> str:
    """module, for what eval(), train() or parameters() is called on in this file under the same name."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ""
    used = script.memo.get("used_as_modules")
    if used is None:
        used = script.memo["used_as_modules"] = set()
        for short in _MODULE_USES:
            for call in script.index.by_tail.get(short, ()):
                value = receiver(call)
                if value is not None and not call.args and not call.keywords:
                    name = dotted(value)
                    used.add((name, None if name.startswith("self.") else script.index.scope(call)))
    if not used:
        return ""
    name = dotted(node)
    return "module" if (name, None if name.startswith("self.") else script.index.scope(node)) in used else ""


@functools.lru_cache(maxsize=1 << 16)
def by_name(name: str) -> str:
    """What a name says, for want of better."""
    if not name or name.startswith("?"):
        return ""
    if words.says(words.SCALER, name):
        return "scaler"
    if words.says(words.SCHEDULER, name):
        return "scheduler"
    if words.says(words.OPTIMIZER, name) and not words.says(words.NOT_OPTIMIZER, name):
        return "optimizer"
    if words.says(words.LOADER, name):
        return "loader"
    if words.says(words.CRITERION, name):
        return "criterion"
    if words.says(words.MODULE, name):
        return "module"
    return ""


def _of_origin(origin: Origin) -> str:
    node = origin.node
    if origin.how == "parameter" and isinstance(node, ast.arg):
        return _of_parameter(origin, node)
    if origin.how == "loop":
        return _of_item(origin)
    if origin.how in ("unpack", "with"):
        return ""
    if isinstance(node, ast.Call):
        return _of_call(origin.script, node, origin.scope)
    if isinstance(node, ast.Constant):
        return "" if node.value is None else "other"
    if isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr, ast.Compare)):
        return "other"
    return ""


def _of_parameter(origin: Origin, node: ast.arg) -> str:
    if node.annotation is not None:
        text = origin.script.index.resolve(dotted(node.annotation))
        if text:
            found = of_class(text) or ("module" if text.endswith("Module") else "")
            if found:
                return found
            if text in ("int", "float", "str", "bool", "dict", "list"):
                return "other"
    return by_name(node.arg)


def _of_item(origin: Origin) -> str:
    node = origin.node
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        found = {kind(origin.script, e, origin.scope) for e in node.elts}
        return found.pop() if len(found) == 1 else ""
    return ""


@functools.lru_cache(maxsize=1 << 16)
def of_class(name: str) -> str:
    """The kind of an instance of a class, or of what a torch function returns, by its qualified name."""
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.optim.lr_scheduler.") or short in SCHEDULER_MAKERS:
        return "scheduler"
    if name.startswith("torch.optim.") and short[:1].isupper():
        return "optimizer"
    if name in WRAPPERS:
        return "module"
    if short in ("DataLoader", "StatefulDataLoader"):
        return "loader"
    if short == "GradScaler":
        return "scaler"
    if name in ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor"):
        return "tensor"
    if name.startswith(("torch.nn.utils.", "torch.nn.init.", "torch.nn.functional.")):
        return "tensor" if name.startswith("torch.nn.functional.") else ""
    if name.startswith("torch.nn.") and short[:1].isupper() and short not in _NOT_MODULES:
        return "criterion" if short.endswith("Loss") else "module"
    if name.startswith(MODULE_MAKERS):
        return "module"
    if name.startswith("torch.") and name.count(".") == 1 and short in TENSOR_MAKERS:
        return "tensor"
    return ""


TENSOR_MAKERS = named(
    "tensor zeros ones rand randn randint empty full arange linspace eye stack cat from_numpy as_tensor "
    "zeros_like ones_like rand_like randn_like full_like where softmax sigmoid log exp mean sum matmul "
    "einsum randperm normal"
)


def _of_call(script: Script, call: ast.Call, scope: Scope) -> str:
    name = script.index.qual(call)
    found = of_class(name)
    if found:
        return found
    owner = class_of(script, call)
    if owner is not None:
        return of_local_class(*owner)
    short = name.rsplit(".", 1)[-1]
    if short in FLUENT:
        inner = receiver(call)
        return kind(script, inner, scope) if inner is not None else ""
    if short in HUGGING_FACE and "Model" in name:
        return "module"
    if short == "deepcopy" and call.args:
        return kind(script, call.args[0], scope)
    if short[:1].isupper() and not name.startswith("?"):
        return _by_class_name(short)
    return ""


def _by_class_name(short: str) -> str:
    """An imported class whose file is not known: only what its name says plainly."""
    if short.endswith(("Dataset", "DataSet")):
        return "dataset"
    if short.endswith("Loss"):
        return "criterion"
    if short.endswith(("Net", "Model", "Network", "Transformer", "ResNet", "UNet", "Classifier")):
        return "module"
    return ""


def of_local_class(script: Script, owner: Scope) -> str:
    """The kind of an instance of a class that can be read."""
    if is_module_class(script, owner):
        return "criterion" if owner.name.endswith("Loss") else "module"
    if is_dataset_class(script, owner):
        return "dataset"
    for item in lineage(script, owner):
        for base in bases(item):
            if script.index.resolve(base).startswith("torch.optim."):
                return "optimizer"
    return "other"


def is_module_class(script: Script, owner: Scope) -> bool:
    """Whether a class is an nn.Module (or a LightningModule)."""
    for item in lineage(script, owner):
        for base in bases(item):
            name = script.index.resolve(base)
            if name.startswith("torch.nn.") and name.rsplit(".", 1)[-1][:1].isupper():
                return True
            if name.rsplit(".", 1)[-1] in ("Module", "LightningModule", "PreTrainedModel", "PyTorchModelHubMixin"):
                return True
    return False


def is_dataset_class(script: Script, owner: Scope) -> bool:
    """Whether a class is a map-style or iterable data set."""
    for item in lineage(script, owner):
        for base in bases(item):
            if base.split("[")[0].rsplit(".", 1)[-1].endswith(("Dataset", "DataSet", "ImageFolder", "DatasetFolder")):
                return True
    return False


def is_iterable_dataset(script: Script, owner: Scope) -> bool:
    """Whether a class is an IterableDataset."""
    return any("IterableDataset" in b for o in lineage(script, owner) for b in bases(o))

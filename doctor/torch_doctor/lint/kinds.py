"""What kind of thing an expression is: a module, an optimizer, a loader, a loss, ..."""

from __future__ import annotations

import ast
import functools
import re

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.flow import Origin, bases, called, class_of, has_star, lineage, origins, receiver
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
    if isinstance(node, ast.Subscript):
        found = {kind(o.script, o.node, o.scope) for o in elements(script, node.value, key=node.slice)} - {""}
    else:
        found = {_of_origin(o) for o in origins(script, node, scope)} - {""}
    if len(found) == 1:
        return found.pop()
    if found:
        return "module" if "module" in found else ""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return ""
    name = dotted(node)
    if isinstance(node, ast.Subscript) and name.endswith("s[]") and by_name(name.removesuffix("s[]")) == "module":
        return "module"
    return by_name(name) or _by_use(script, node)


def elements(script: Script, node: ast.AST, *, key: ast.AST | None = None, depth: int = 3) -> list[Origin]:
    """The expressions that a container holds, as far as they can be seen; of a dict only those of a constant key."""
    memo = script.memo.setdefault("elements", {})
    at = (node, key.value if isinstance(key, ast.Constant) else None, depth)
    if at not in memo:
        memo[at] = []  # a container that is made from itself holds no more
        memo[at] = _elements(script, node, key, depth)[:MOST_ELEMENTS]
    found: list[Origin] = memo[at]
    return found


#: elements that are looked at: more of one container tell nothing new
MOST_ELEMENTS = 16


def _elements(script: Script, node: ast.AST, key: ast.AST | None, depth: int) -> list[Origin]:
    found: list[Origin] = []
    for origin in origins(script, node) if depth else ():
        where, item = origin.script, origin.node
        inner: list[ast.AST] = []
        if isinstance(item, ast.Dict):
            inner = [v for k, v in zip(item.keys, item.values, strict=True) if _same_key(k, key)]
        elif isinstance(item, (ast.List, ast.Tuple, ast.Set)):
            inner = [e for e in item.elts if not isinstance(e, ast.Starred)]
        elif isinstance(item, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            inner = [item.elt]
        elif isinstance(item, ast.DictComp):
            inner = [item.value]
        elif isinstance(item, ast.Call):
            found += _elements_of_call(where, item, key, depth - 1)
        found += [Origin(e, where.index.scope(e), where) for e in inner]
    return found


def _same_key(own: ast.AST | None, key: ast.AST | None) -> bool:
    wanted = isinstance(key, ast.Constant) and isinstance(own, ast.Constant)
    return not wanted or own.value == key.value  # type: ignore[union-attr]


def _elements_of_call(script: Script, call: ast.Call, key: ast.AST | None, depth: int) -> list[Origin]:
    short = dotted(call.func).rsplit(".", 1)[-1]
    if short == "dict" and not call.args:
        return [
            Origin(k.value, script.index.scope(k.value), script)
            for k in call.keywords
            if not isinstance(key, ast.Constant) or key.value == k.arg
        ]
    if short in ("list", "tuple", "sorted", "reversed") and call.args:
        return elements(script, call.args[0], key=key, depth=depth)
    if short == "values" and isinstance(call.func, ast.Attribute):
        return elements(script, call.func.value, depth=depth)
    target = called(script, call)
    values = [r.value for r in target[1].returns if r.value is not None] if target is not None else []
    return [o for v in values for o in elements(target[0], v, key=key, depth=depth)] if target is not None else []


#: methods that, called without arguments, only a module has
_MODULE_USES = ("parameters", "named_parameters", "eval", "train")
#: what has a step() of its own and is no optimizer
_STEPPED = re.compile(
    r".*(?:sched|prof|ema|env|sim|bar|progress|timer|log|track|meter|writer|accelerator|fabric|engine|train|agent|model|"
    r"net|scaler|swa|anneal|callback|cb|clock|count|state|strategy|hook|temp|beta|gamma|eps|warm|world|game|physics|"
    r"curriculum|monitor|policy|runner|learner|player|self|lr|decay).*"
)


def _by_use(script: Script, node: ast.AST) -> str:
    """What a name is by its use in this file: eval() or parameters() of a module, step() beside backward()."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ""
    used = script.memo.get("used_as")
    if used is None:
        used = script.memo["used_as"] = _steppers(script)
        for short in _MODULE_USES:
            for call in script.index.by_tail.get(short, ()):
                value = receiver(call)
                if value is not None and not call.args and not call.keywords:
                    used[_place_of(script, value)] = "module"
    found: str = used.get(_place_of(script, node), "") if used else ""
    return found


def _place_of(script: Script, node: ast.AST) -> tuple[str, Scope | None]:
    """A name and where it holds: an attribute of self in the whole file, anything else in its function."""
    name = dotted(node)
    return name, None if name.startswith("self.") else script.index.scope(node)


def _steppers(script: Script) -> dict[tuple[str, Scope | None], str]:
    """What alone is stepped without arguments in a function that runs backward(): an optimizer, whatever its name."""
    stepped: dict[Scope, set[tuple[str, Scope | None]]] = {}
    for call in script.index.by_tail.get("step", ()):
        value, scope = receiver(call), script.index.scope(call)
        if not isinstance(value, (ast.Name, ast.Attribute)) or call.args or call.keywords:
            continue
        name = dotted(value)
        made = [b.value for b in scope.bindings.get(name, ()) if isinstance(b.value, ast.Call)]
        if by_name(name) == "scheduler" or any("scheduler" in script.index.qual(m).lower() for m in made):
            continue
        stepped.setdefault(scope, set()).add(_place_of(script, value))
    runs = {script.index.scope(c) for c in script.index.by_tail.get("backward", ())}
    return {
        next(iter(names)): "optimizer"
        for scope, names in stepped.items()
        if scope in runs and len(names) == 1 and not _STEPPED.fullmatch(words.tail(next(iter(names))[0]).lower())
    }


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
    if words.says(words.MODULE, name) and not words.says(words.DOES, name):
        return "module"
    return ""


def _of_origin(origin: Origin) -> str:
    node = origin.node
    if origin.how == "parameter" and isinstance(node, ast.arg):
        return _of_parameter(origin, node)
    if origin.how == "loop":
        return _of_item(origin)
    if origin.how == "unpack":
        return _of_part(origin)
    if origin.how == "with":
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
        text = origin.script.index.resolve(_annotated(node.annotation))
        if text:
            found = of_class(text) or ("module" if text.endswith("Module") else "")
            if found:
                return found
            if text in ("int", "float", "str", "bool", "dict", "list"):
                return "other"
    return by_name(node.arg)


def _annotated(node: ast.expr) -> str:
    """The dotted name of an annotation: "Optimizer", Optional[Optimizer] and Optimizer | None are Optimizer."""
    if isinstance(node, ast.Constant):
        return node.value.strip() if isinstance(node.value, str) else ""
    if isinstance(node, ast.Subscript) and dotted(node.value).rsplit(".", 1)[-1] in ("Optional", "Annotated"):
        inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return _annotated(inner)
    if isinstance(node, ast.BinOp):
        sides = [s for s in (node.left, node.right) if not (isinstance(s, ast.Constant) and s.value is None)]
        return _annotated(sides[0]) if len(sides) == 1 else ""
    return dotted(node)


def _of_item(origin: Origin) -> str:
    """The kind of what a loop draws from a container."""
    found = {kind(o.script, o.node, o.scope) for o in elements(origin.script, origin.node)}
    return found.pop() if len(found) == 1 else ""


def _of_part(origin: Origin) -> str:
    """The kind of one of the values that a call returns: ``model, opt = build()``, ``prepare(model, opt)``."""
    call, at = origin.node, origin.position
    if not isinstance(call, ast.Call):
        return ""
    if dotted(call.func).endswith(".prepare") and not has_star(call):
        return kind(origin.script, call.args[at]) if at < len(call.args) else ""
    target = called(origin.script, call)
    values = [r.value for r in target[1].returns if r.value is not None] if target is not None else []
    if target is None or not all(isinstance(v, ast.Tuple) and at < len(v.elts) for v in values):
        return ""
    found = {kind(target[0], v.elts[at], target[1]) for v in values if isinstance(v, ast.Tuple)}
    return found.pop() if len(found) == 1 else ""


#: optimizers of other packages (apex, bitsandbytes, timm, transformers, torch_optimizer, lion-pytorch; November 2026)
_OPTIMIZERS = named(
    "Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam LBFGS Adafactor Lion Lamb LAMB LARS Lars Prodigy "
    "DAdaptAdam DAdaptSGD SophiaG FusedAdam FusedLAMB FusedSGD CPUAdam DeepSpeedCPUAdam AdamW8bit Adam8bit Lion8bit "
    "PagedAdamW PagedAdamW8bit PagedAdamW32bit BertAdam Ranger AdaBelief AdaBound DiffGrad Yogi QHAdam Novograd "
    "NovoGrad MADGRAD Adan Shampoo SOAP Muon Lookahead ScheduleFreeAdamW AdamWScheduleFree SGDScheduleFree"
)
_OTHER_FRAMEWORKS = ("tensorflow.", "keras.", "tf.", "optax.", "mxnet.", "paddle.", "jax.", "sklearn.")
_MAKES_OPTIMIZER = re.compile(r"(?:create|build|make|get|init|setup|configure)_(?:\w+_)?optim(?:izer)?(?:_\w{1,3})?")


@functools.lru_cache(maxsize=1 << 16)
def of_class(name: str) -> str:
    """The kind of an instance of a class, or of what a torch function returns, by its qualified name."""
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.optim.lr_scheduler.") or short in SCHEDULER_MAKERS:
        return "scheduler"
    if name.startswith("torch.optim.swa_utils."):
        return {"AveragedModel": "module", "SWALR": "scheduler"}.get(short, "")
    if name.startswith("torch.optim.") and short[:1].isupper():
        return "optimizer"
    if short in _OPTIMIZERS and "." in name and not name.startswith(_OTHER_FRAMEWORKS):
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
    found = of_class(name) or _of_chosen_class(script, call)
    if found:
        return found
    owner = class_of(script, call)
    if owner is not None:
        return of_local_class(*owner)
    short = name.rsplit(".", 1)[-1]
    if short in FLUENT:
        inner = receiver(call)
        return kind(script, inner, scope) if inner is not None else ""
    made = _of_factory(script, call, short)
    if made:
        return made
    if short in HUGGING_FACE and "Model" in name:
        return "module"
    if short == "deepcopy" and call.args:
        return kind(script, call.args[0], scope)
    if short[:1].isupper() and not name.startswith("?"):
        return _by_class_name(short)
    return ""


def _of_chosen_class(script: Script, call: ast.Call) -> str:
    """The class itself is a value: getattr(torch.optim, name)(...), OPTIMIZERS[name](...), partial(SGD)(...)."""
    function = call.func
    if isinstance(function, ast.Call):
        if dotted(function.func) == "getattr" and function.args:
            module = script.index.qual(function.args[0])
            return {"torch.optim": "optimizer", "torch.optim.lr_scheduler": "scheduler"}.get(module, "")
        return ""
    if isinstance(function, ast.Subscript):
        chosen = elements(script, function.value, key=function.slice)
    elif isinstance(function, ast.Name) and function.id not in script.index.imports:
        chosen = [o for o in origins(script, function, None, 2) if o.node is not function]
    else:
        return ""
    found = set()
    for origin in chosen:
        node = origin.node
        if isinstance(node, ast.Call) and dotted(node.func).endswith("partial") and node.args:
            node = node.args[0]
        found.add(of_class(origin.script.index.qual(node)) if isinstance(node, (ast.Name, ast.Attribute)) else "")
    return found.pop() if len(found) == 1 else ""


def _of_factory(script: Script, call: ast.Call, short: str) -> str:
    """What a function of the file returns; of one that cannot be read, what its name says it makes."""
    target = called(script, call)
    if target is not None:
        values = [r.value for r in target[1].returns if r.value is not None]
        found = {kind(target[0], v, target[1]) for v in values if not isinstance(v, ast.Constant)}
        return found.pop() if len(found) == 1 else ""
    if short == "instantiate" and call.args:
        return by_name(dotted(call.args[0]))
    return "optimizer" if _MAKES_OPTIMIZER.fullmatch(short) else ""


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

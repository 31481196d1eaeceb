"""Where a program wants a GPU, and is not content without one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.requirements.source import Source

_CUDA = re.compile(r"cuda(?::(\d+))?")
#: functions that only work with a GPU
_CUDA_CALLS = frozenset({"torch.cuda.set_device", "torch.cuda.current_device", "torch.cuda.CUDAGraph"})


def wishes(source: Source) -> Iterator[tuple[int, str]]:
    """How many GPUs at least, and where, for each place that cannot do without one."""
    guards = _guard_names(source)
    for node in source.nodes:
        wish = _wish(source, node)
        if wish is None or _guarded(source, node, guards):
            continue
        count, text = wish
        yield count, f"{source.path}:{getattr(node, 'lineno', 1)} {text}"


def _wish(source: Source, node: ast.AST) -> tuple[int, str] | None:
    """How many GPUs a node wants at least, and its text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = _CUDA.fullmatch(node.value)
        if match and _is_device(source, node):
            return int(match[1] or 0) + 1, repr(node.value)
        return None
    if not isinstance(node, ast.Call):
        return None
    name = source.dotted(node.func) or ""
    if name.startswith("torch.multiprocessing"):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and name != "torch.cuda":
        index = source.value(node.args[0]) if node.args else 0
        return (index + 1 if isinstance(index, int) and not isinstance(index, bool) else 1), ".cuda()"
    if name in _CUDA_CALLS:
        return 1, f"{name}()"
    if name.endswith("init_process_group"):
        given = [k.value for k in node.keywords if k.arg == "backend"] or node.args[:1]
        if given and source.value(given[0]) == "nccl":
            return 1, "the nccl backend"
    return None


def _is_device(source: Source, node: ast.Constant) -> bool:
    """True where a string "cuda" names a device: an argument of a call, a default, or a plain assignment."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        grand = source.parents.get(parent)
        if isinstance(grand, ast.Call):
            name = (source.dotted(grand.func) or "").rsplit(".", 1)[-1]
            if parent.arg == "device_type" or name in ("autocast", "GradScaler", "add_argument"):
                # autocast("cuda") without a GPU only warns; an option's default can be another at run time
                return False
        return parent.arg in ("device", "map_location")
    if isinstance(parent, ast.Call) and node in parent.args:
        name = source.dotted(parent.func) or ""
        return name == "torch.device" or (
            isinstance(parent.func, ast.Attribute) and parent.func.attr in ("to", "set_default_device")
        )
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return any("device" in _target(t).lower() and not _assigned_again(source, parent, t) for t in targets)
    return False


def _target(node: ast.AST) -> str:
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def _assigned_again(source: Source, node: ast.AST, target: ast.AST) -> bool:
    """``device = "cuda"`` that another assignment overrules is no firm wish."""
    return isinstance(target, ast.Name) and len(source.assigned.get((source.scope(node), target.id), ())) > 1


_AVAILABLE = ("is_available", "device_count", "current_accelerator", "is_initialized")


def _mentions(node: ast.AST, guards: set[str]) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in _AVAILABLE:
            return True
        if isinstance(inner, ast.Name) and inner.id in guards:
            return True
        if isinstance(inner, ast.Attribute) and inner.attr in guards:
            return True
    return False


def _guard_names(source: Source) -> set[str]:
    """Names and attributes that hold whether there is a GPU, or a device chosen by it."""
    guards: set[str] = set()
    for _ in range(2):  # use_cuda = is_available(); device = "cuda" if use_cuda else "cpu"
        for node in source.nodes:
            if (
                isinstance(node, (ast.Assign, ast.AnnAssign))
                and node.value is not None
                and _mentions(node.value, guards)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                guards.update(n for t in targets if (n := _target(t)))
    return guards


def _guarded(source: Source, node: ast.AST, guards: set[str]) -> bool:
    child = node
    for parent in source.ancestors(node):
        branch = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and child is not parent.test
        if branch and (_mentions(parent.test, guards) or _is_option(parent.test)):  # type: ignore[attr-defined]
            return True
        tried = isinstance(parent, ast.Try) and bool(parent.handlers) and child in parent.body
        if tried or (isinstance(parent, ast.BoolOp) and _mentions(parent, guards)):
            return True
        if _left_before(parent, child, guards):
            return True
        child = parent
    return False


def _left_before(parent: ast.AST, child: ast.AST, guards: set[str]) -> bool:
    """An earlier ``if not torch.cuda.is_available(): return`` in the same block. One that raises is a demand."""
    body = getattr(parent, "body", None)
    if not isinstance(body, list) or child not in body:
        return False
    for statement in body[: body.index(child)]:
        if isinstance(statement, ast.If) and _mentions(statement.test, guards):
            last = statement.body[-1]
            if isinstance(last, (ast.Return, ast.Continue, ast.Break)):
                return True
    return False


def _is_option(test: ast.expr) -> bool:
    """``if args.gpu:``, ``if use_cuda:``: the user chooses at run time."""
    for inner in ast.walk(test):
        word = getattr(inner, "attr", None) or getattr(inner, "id", None) or ""
        if re.search(r"cuda|gpu|device", word, re.IGNORECASE):
            return True
    return False

"""torch.compile: branches on values, reads of values, and other causes of graph breaks and recompiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.flow import (
    Loop,
    called,
    class_of,
    constant,
    inside,
    keyword,
    last_before,
    loops_around,
    method,
    origins,
    parameters,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, source
from torch_doctor.lint.kinds import is_module_class, kind
from torch_doctor.lint.words import named
from torch_doctor.model import Finding, Severity
from torch_doctor.registry import check

#: attributes and methods that Dynamo knows at trace time: a branch on them guards and recompiles
STATIC = named(
    "shape size dim ndim dtype device is_cuda requires_grad numel nelement stride is_contiguous training "
    "is_sparse layout itemsize names is_floating_point is_complex element_size"
)
#: reads of a value: a graph break (seen with torch 2.9 to 2.13; int() and float() as item())
READS = frozenset({"item", "tolist"})
#: reductions to a truth value: evidence that a branch is on a value
VALUES = named(
    "sum mean max min any all norm item std var prod abs count_nonzero argmax isnan isinf amax amin "
    "median allclose equal"
)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A function that torch.compile traces."""

    script: Script
    scope: Scope
    fullgraph: bool
    tensors: frozenset[str]


def compiled(script: Script) -> list[Compiled]:
    """Every compiled function of the file: decorated, torch.compile(f), torch.compile(Net()), net.compile()."""
    if "compiled" in script.memo:
        known: list[Compiled] = script.memo["compiled"]
        return known
    found: dict[Scope, Compiled] = {}
    if "compile" in script.text:
        for function in script.index.functions:
            for decorator in getattr(function.node, "decorator_list", ()):
                full = _decorates(script, decorator)
                if full is not None:
                    _add(script, function, full, found)
        for call in script.index.by_tail.get("compile", ()):
            if script.index.qual(call) == "torch.compile" and call.args:
                full = constant(script, keyword(call, "fullgraph")) is True
                _add_target(script, call.args[0], full, found)
            elif (
                isinstance(call.func, ast.Attribute)
                and not call.args
                and not script.index.qual(call).startswith(("torch.", "re."))
            ):
                _add_target(script, call.func.value, constant(script, keyword(call, "fullgraph")) is True, found)
    script.memo["compiled"] = list(found.values())
    return list(found.values())


def _decorates(script: Script, node: ast.AST) -> bool | None:
    if isinstance(node, ast.Call):
        if script.index.qual(node) == "torch.compile":
            return constant(script, keyword(node, "fullgraph")) is True
        if (
            dotted(node.func).rsplit(".", 1)[-1] == "partial"
            and node.args
            and script.index.qual(node.args[0]) == "torch.compile"
        ):
            return constant(script, keyword(node, "fullgraph")) is True
        return None
    return False if script.index.qual(node) == "torch.compile" else None


def _add_target(script: Script, node: ast.AST, full: bool, found: dict[Scope, Compiled]) -> None:
    if isinstance(node, ast.Lambda):
        _add(script, script.index.scope_at[node], full, found)
        return
    if isinstance(node, ast.Name):
        at: Scope | None = script.index.scope(node)
        while at is not None:
            own = at.function(node.id)
            if own is not None:
                _add(script, own, full, found)
                return
            at = at.parent
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        target = method(script, script.index.scope(node).owner, node.attr)
        if target is not None:
            _add(script, target[1], full, found)
            return
    for origin in origins(script, node):
        made = origin.node
        while (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Attribute)
            and made.func.attr in ("cuda", "to", "eval", "train")
        ):
            made = made.func.value
        if isinstance(made, ast.Call):
            owner = class_of(origin.script, made)
            if owner is not None and owner[0] is script and is_module_class(*owner):
                forward = method(owner[0], owner[1], "forward")
                if forward is not None:
                    _add(script, forward[1], full, found)


def _add(script: Script, scope: Scope, full: bool, found: dict[Scope, Compiled]) -> None:
    arguments = getattr(scope.node, "args", None)
    names: set[str] = set()
    if isinstance(arguments, ast.arguments):
        defaults = [*arguments.posonlyargs, *arguments.args][
            len([*arguments.posonlyargs, *arguments.args]) - len(arguments.defaults) :
        ]
        plain = {a.arg for a in defaults}
        for item in [*arguments.posonlyargs, *arguments.args]:
            text = dotted(item.annotation) if item.annotation is not None else ""
            if item.arg in ("self", "cls") or item.arg in plain or text not in ("", "torch.Tensor", "Tensor"):
                continue
            if not names or text or _computes_with(script, scope, item.arg):
                names.add(item.arg)
    earlier = found.get(scope)
    found[scope] = Compiled(script, scope, full or bool(earlier and earlier.fullgraph), frozenset(names))
    for call in scope.calls:
        target = called(script, call)
        if target is not None and target[0] is script and target[1] not in found and len(found) < 50:
            _add_helper(script, target[1], call, full, found, frozenset(names))


def _computes_with(script: Script, scope: Scope, name: str) -> bool:
    """Whether a function treats a parameter as a tensor: methods and attributes of one, torch functions, layers."""
    for use in scope.names.get(name, ()):
        parent = script.index.parent.get(use)
        if isinstance(parent, ast.Attribute) and (
            parent.attr in STATIC or parent.attr in VALUES or parent.attr in READS
        ):
            return True
        if isinstance(parent, ast.Call) and use in parent.args:
            called_name = script.index.qual(parent)
            if called_name.startswith("torch.") or (called_name.startswith("self.") and called_name.count(".") == 1):
                return True
    return False


def _add_helper(
    script: Script, scope: Scope, call: ast.Call, full: bool, found: dict[Scope, Compiled], outer: frozenset[str]
) -> None:
    """A helper that the compiled function calls: its parameters that are given tensors."""
    if any(dotted(d).endswith(("disable", "disable()")) for d in getattr(scope.node, "decorator_list", ())):
        return  # torch._dynamo.disable, torch.compiler.disable: it runs outside the graph, as it was meant to
    names = [p for p in parameters(scope) if p not in ("self", "cls")]
    given = {n for n, a in zip(names, call.args, strict=False) if is_value(script, a, outer, 3)}
    if given:
        found[scope] = Compiled(script, scope, full, frozenset(given))


def is_value(script: Script, node: ast.AST, tensors: frozenset[str], depth: int = 4) -> bool:
    """Whether an expression depends on what a tensor holds, and not only on its shape or kind."""
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        if node.id in tensors:
            return True
        item = last_before(script, node.id, node)
        if item is None or item.how != "assign" or item.value is None or item.scope is not script.index.scope(node):
            return False
        return is_value(script, item.value, tensors, depth - 1)
    if isinstance(node, ast.Attribute):
        return node.attr not in STATIC and is_value(script, node.value, tensors, depth)
    if isinstance(node, ast.Subscript):
        return is_value(script, node.value, tensors, depth)
    if isinstance(node, ast.Call):
        return _call_value(script, node, tensors, depth)
    if isinstance(node, ast.BinOp):
        return is_value(script, node.left, tensors, depth) or is_value(script, node.right, tensors, depth)
    if isinstance(node, ast.UnaryOp):
        return is_value(script, node.operand, tensors, depth)
    if isinstance(node, ast.BoolOp):
        return any(is_value(script, v, tensors, depth) for v in node.values)
    if isinstance(node, ast.Compare):
        if all(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops):
            return False
        if any(
            isinstance(c, ast.Constant) and (c.value is None or isinstance(c.value, str)) for c in node.comparators
        ):
            return False
        return any(is_value(script, p, tensors, depth) for p in [node.left, *node.comparators])
    return False


def _call_value(script: Script, node: ast.Call, tensors: frozenset[str], depth: int) -> bool:
    short = dotted(node.func).rsplit(".", 1)[-1]
    if short in ("isinstance", "len", "hasattr", "getattr", "type", "callable", "id"):
        return False
    name = script.index.qual(node)
    if name in (
        "torch.is_tensor",
        "torch.is_grad_enabled",
        "torch.is_autocast_enabled",
        "torch.is_floating_point",
        "torch.numel",
    ):
        return False
    if isinstance(node.func, ast.Attribute) and (not name.startswith("torch.") or "(" in name):
        if short in STATIC:
            return False
        if dotted(node.func).startswith("self.") and dotted(node.func).count(".") == 1:
            # a layer or helper of the module: a tensor goes in, a tensor comes out
            return any(is_value(script, a, tensors, depth) for a in node.args)
        return is_value(script, node.func.value, tensors, depth)
    if name.startswith("torch.") or short in ("bool", "int", "float", "abs", "max", "min", "any", "all", "sum"):
        return any(is_value(script, a, tensors, depth) for a in node.args)
    return False


def is_shape(script: Script, node: ast.AST, tensors: frozenset[str]) -> bool:
    """Whether a test depends on the shape of a tensor."""
    for item in ast.walk(node):
        if (
            isinstance(item, ast.Attribute)
            and item.attr in ("shape", "size", "numel")
            and is_value(script, item.value, tensors)
        ):
            return True
        if (
            isinstance(item, ast.Call)
            and dotted(item.func) == "len"
            and item.args
            and is_value(script, item.args[0], tensors)
        ):
            return True
        if isinstance(item, ast.Name):
            found = last_before(script, item.id, item)
            if found is not None and found.value is not None and found.how in ("assign", "unpack"):
                for inner in ast.walk(found.value):
                    if (
                        isinstance(inner, ast.Attribute)
                        and inner.attr in ("shape", "size")
                        and is_value(script, inner.value, tensors)
                    ):
                        return True
    return False


def _tests(scope: Scope) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(statement, test) of the branches of a function, those of functions nested in it left out."""
    stack: list[ast.AST] = list(scope.body) or [getattr(scope.node, "body", scope.node)]
    while stack:
        node = stack.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node, node.test
        stack = [*ast.iter_child_nodes(node), *stack]


@check("CMP101", "value-dependent-branch", tags={"compile"})
def value_dependent_branch(script: Script) -> Iterator[Finding]:
    """A compiled function branches on what a tensor holds.

    What it checks:
        if, while, and conditional expressions on a tensor's value in functions and modules that are compiled, and in
        the helpers they call. An error with fullgraph=True.
    Why it matters:
        Dynamo breaks the graph there: two graphs, a synchronisation with the GPU, and with fullgraph=True an error
        at the first call.
    Example:
        Bad::

            import torch
            @torch.compile
            def f(x):
                if x.sum() > 0:
                    return x
                return -x

        Good::

            import torch
            @torch.compile
            def f(x):
                return torch.where(x.sum() > 0, x, -x)
    Fix:
        torch.where, torch.cond, or move the branch out of the compiled function.
    References:
        https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_troubleshooting.html
    """
    for item in compiled(script):
        for statement, test in _tests(item.scope):
            if isinstance(statement, ast.Assert):
                continue  # an assert on a value is traced as torch._assert_async
            if is_value(script, test, item.tensors):
                yield finding(
                    script,
                    statement,
                    _severity(item),
                    f"a branch on a tensor's value ({source(script, test)}) in a compiled function"
                    + (": fullgraph=True fails here" if item.fullgraph else " breaks the graph"),
                    "torch.where or torch.cond, or move the branch out of the compiled function",
                )


def _severity(item: Compiled) -> Severity:
    return ERROR if item.fullgraph else WARNING


@check("CMP102", "shape-dependent-branch", tags={"compile", "performance"})
def shape_dependent_branch(script: Script) -> Iterator[Finding]:
    """A compiled function branches on a shape.

    What it checks:
        if and while on shape, size() or len() of an argument of a compiled function. Advice: a note.
    Why it matters:
        Dynamo guards on it and compiles again when the branch changes, up to the recompile limit. It is no graph
        break and no error, not with fullgraph=True either.
    Example:
        Bad::

            import torch
            @torch.compile
            def f(x):
                if x.shape[0] > 8:
                    return x * 2
                return x

        Good::

            import torch
            @torch.compile
            def f(x):
                return x * 2
    Fix:
        Pad to a few sizes, or mark the dimension dynamic with torch._dynamo.mark_dynamic.
    References:
        https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamic_shapes.html
    """
    for item in compiled(script):
        for statement, test in _tests(item.scope):
            if isinstance(statement, ast.Assert) or is_value(script, test, item.tensors):
                continue
            if is_shape(script, test, item.tensors):
                yield finding(
                    script,
                    statement,
                    NOTE,
                    f"a branch on a shape ({source(script, test)}): each side is compiled anew, up to the limit",
                    "Pad to a few sizes, or torch._dynamo.mark_dynamic",
                )


@check("CMP103", "value-read-in-compiled", tags={"compile"})
def value_read_in_compiled(script: Script) -> Iterator[Finding]:
    """A compiled function reads a tensor's value into Python, or prints.

    What it checks:
        .item(), .tolist(), int(), float() and bool() of a tensor, print() and logging in compiled functions. An error
        with fullgraph=True, where it fails.
    Why it matters:
        A graph break each, and a synchronisation with the GPU.
    Example:
        Bad::

            import torch
            @torch.compile
            def f(x):
                return x * x.sum().item()

        Good::

            import torch
            @torch.compile
            def f(x):
                return x * x.sum()
    Fix:
        Stay with tensors; print outside the compiled function.
    References:
        https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_troubleshooting.html
    """
    for item in compiled(script):
        branches = [t for _, t in _tests(item.scope) if is_value(script, t, item.tensors)]
        for call in item.scope.calls:
            if any(inside(call, t) for t in branches):
                continue  # CMP101 says it
            found = _reads(script, call, item)
            if found:
                yield finding(
                    script, call, found[0], found[1], "Stay with tensors; print outside the compiled function"
                )


def _reads(script: Script, call: ast.Call, item: Compiled) -> tuple[Severity, str] | None:
    ending = ": fullgraph=True fails here" if item.fullgraph else " breaks the graph"
    name = dotted(call.func)
    short = name.rsplit(".", 1)[-1]
    if short in READS and isinstance(call.func, ast.Attribute) and is_value(script, call.func.value, item.tensors):
        if short == "tolist":
            return _severity(item), f"{source(script, call)} in a compiled function{ending}"
        return (
            WARNING,
            f"{source(script, call)} in a compiled function: a graph break up to torch 2.12, a synchronisation after",
        )
    if name in ("int", "float", "bool") and call.args and is_value(script, call.args[0], item.tensors):
        severity = _severity(item) if name == "bool" else WARNING
        return severity, f"{source(script, call)} reads a tensor's value in a compiled function"
    if name in ("print", "breakpoint", "input"):
        return (ERROR if item.fullgraph else WARNING), f"{name}() in a compiled function{ending}"
    if short == "numpy" and isinstance(call.func, ast.Attribute) and is_value(script, call.func.value, item.tensors):
        return (
            NOTE,
            f"{source(script, call)} in a compiled function: NumPy code is traced as far as Dynamo knows it",
        )
    return None


@check("CMP104", "compiled-in-loop", tags={"compile"})
def compiled_in_loop(script: Script) -> Iterator[Finding]:
    """torch.compile is called within a training loop.

    What it checks:
        torch.compile(...) in the body of a loop over batches or epochs.
    Why it matters:
        Each call makes a new compiled object with an empty cache: it compiles again at every round.
    Example:
        Bad::

            import torch
            def train(model, loader):
                for x in loader:
                    fast = torch.compile(model)
                    print(fast(x))

        Good::

            import torch
            def train(model, loader):
                fast = torch.compile(model)
                for x in loader:
                    print(fast(x))
    Fix:
        Compile once, before the loop.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.compile.html
    """
    for call in script.index.by_tail.get("compile", ()):
        if script.index.qual(call) != "torch.compile" or not call.args:
            continue
        loop = next((x for x in loops_around(script, call) if _repeats(script, x)), None)
        if loop is not None and not _depends(script, call, loop):
            yield finding(
                script,
                call,
                WARNING,
                "torch.compile within the loop compiles again at every round",
                "Compile once, before the loop",
            )


def _repeats(script: Script, loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return False
    node: ast.expr = loop.iter
    while isinstance(node, ast.Call) and node.args and dotted(node.func) in ("enumerate", "tqdm"):
        node = node.args[0]
    return (
        kind(script, node) == "loader"
        or words.says(words.LOADED, dotted(node))
        or "epoch" in dotted(loop.target).lower()
    )


def _depends(script: Script, call: ast.Call, loop: Loop) -> bool:
    """Whether what is compiled is made anew in each round."""
    bound = (
        {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if not isinstance(loop, ast.While) else set()
    )
    return any(isinstance(n, ast.Name) and n.id in bound for a in call.args for n in ast.walk(a))

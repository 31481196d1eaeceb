"""torch.compile: branches on values and shapes, reads of values, compilation in a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.compiled import READS, Compiled, compiled, is_shape, is_value
from torch_doctor.lint.flow import (
    Loop,
    inside,
    loops_around,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, source
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding, Severity
from torch_doctor.registry import check


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

"""What a loop draws from a loader: by its target, by next(), and by unpacking what it drew."""

from __future__ import annotations

import ast

from torch_doctor.facts.code_index import Binding, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import Loop, in_body, inside, origins, place
from torch_doctor.lint.kinds import kind
from torch_doctor.lint.words import named

#: what passes on the items of what it is given
PASSING = named("enumerate tqdm trange iter islice track progress_bar cycle")


def opened(node: ast.expr) -> ast.expr:
    """``enumerate(tqdm(loader))`` as ``loader``."""
    while isinstance(node, ast.Call) and node.args and dotted(node.func).rsplit(".", 1)[-1] in PASSING:
        node = node.args[0]
    return node


def loader_of(script: Script, value: ast.AST | None) -> ast.expr | None:
    """The loader that ``next(it)`` or ``it.__next__()`` draws from, where ``it`` is iter() of one; None otherwise."""
    if isinstance(value, ast.NamedExpr):
        value = value.value
    if not isinstance(value, ast.Call):
        return None
    if isinstance(value.func, ast.Name) and value.func.id == "next" and value.args:
        iterator = value.args[0]
    elif isinstance(value.func, ast.Attribute) and value.func.attr in ("next", "__next__") and not value.args:
        iterator = value.func.value
    else:
        return None
    found = [o.node for o in origins(script, iterator)]
    if not found or not all(isinstance(n, ast.Call) and dotted(n.func) == "iter" and n.args for n in found):
        return None
    loader = opened(found[0])  # type: ignore[arg-type]
    return loader if kind(script, loader) == "loader" else None


def counter(loop: ast.AST) -> str:
    """The name of the number in ``for i, batch in enumerate(loader)``; "" where there is none."""
    target, iterated = getattr(loop, "target", None), getattr(loop, "iter", None)
    while isinstance(iterated, ast.Call) and iterated.args:
        if dotted(iterated.func) == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            return dotted(target.elts[0])
        iterated = iterated.args[0]
    return ""


def draws(script: Script, loop: Loop) -> dict[str, list[ast.AST]]:
    """The names that hold a batch or a part of one in a loop, with the statements that put it there."""
    memo = script.memo.setdefault("draws", {})
    if loop not in memo:
        memo[loop] = _draws(script, loop)
    found: dict[str, list[ast.AST]] = memo[loop]
    return found


def _draws(script: Script, loop: Loop) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = {}
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        node = opened(loop.iter)
        if not dotted(node).endswith("()") and kind(script, node) == "loader":
            number = counter(loop)
            found = {
                n.id: [loop] for n in ast.walk(loop.target) if isinstance(n, ast.Name) and n.id not in (number, "_")
            }
    bound = [b for items in script.index.scope(loop).bindings.values() for b in items if _is_in(b, loop)]
    for item in sorted(bound, key=lambda b: place(b.node)):
        if item.how not in ("assign", "unpack") or not item.name.isidentifier():
            continue
        if isinstance(item.node, (ast.Assign, ast.NamedExpr)) and (
            loader_of(script, item.value) is not None or _part(item, found)
        ):
            found.setdefault(item.name, []).append(item.node)
    return found


def _is_in(item: Binding, loop: Loop) -> bool:
    test = loop.test if isinstance(loop, ast.While) else None
    return in_body(item.node, loop) or (test is not None and inside(item.node, test))


def _part(item: Binding, found: dict[str, list[ast.AST]]) -> bool:
    """``x, y = batch``, ``x = batch[0]``: a part of what was drawn."""
    value = item.value
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        value = value.value
        return isinstance(value, ast.Name) and value.id in found and value.id != item.name
    return item.how == "unpack" and isinstance(value, ast.Name) and value.id in found

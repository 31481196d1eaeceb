"""What a name holds and what a block does, followed through helpers, classes and modules beside the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.code_index import FUNCTIONS, LOOPS, Binding, Scope, all_arguments, dotted
from torch_doctor.facts.script import Script

Loop = ast.For | ast.AsyncFor | ast.While
#: how far values and calls are followed
DEPTH = 5


@dataclass(frozen=True, eq=False)
class Origin:
    """An expression that a value may come from; ``how`` is the Binding's, or "value"."""

    node: ast.AST
    scope: Scope
    script: Script
    how: str = "value"
    position: int = -1


def place(node: ast.AST) -> tuple[int, int]:
    """(line, column) for comparisons within one file."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end(node: ast.AST) -> tuple[int, int]:
    """(line, column) just after a node."""
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0


def inside(node: ast.AST, container: ast.AST) -> bool:
    """Whether a node lies within another, by its place in the file."""
    return place(container) <= place(node) and end(node) <= end(container)


def in_body(node: ast.AST, loop: ast.AST) -> bool:
    """Whether a node lies in the repeated part of a loop: not in what it iterates over, nor its else."""
    body = getattr(loop, "body", None)
    if not isinstance(body, list):
        return inside(node, loop)
    return place(body[0]) <= place(node) and end(node) <= end(body[-1])


def loops_around(script: Script, node: ast.AST) -> list[Loop]:
    """The loops around a node within its own function, innermost first."""
    memo = script.memo.setdefault("loops_around", {})
    parent = script.index.parent
    child = node
    # an expression stands in the loops of what it is part of: of a long chain, each call asks the one around it
    while child not in memo and isinstance(child, ast.expr) and not isinstance(child, ast.Lambda):
        above = parent.get(child)
        if not isinstance(above, ast.expr) or isinstance(above, ast.Lambda):
            break
        child = above
    if child not in memo:
        memo[child] = _loops_around(script, child)
    found: list[Loop] = memo[child]
    memo[node] = found
    return list(found)


def _loops_around(script: Script, node: ast.AST) -> list[Loop]:
    found: list[Loop] = []
    child = node
    for item in script.index.ancestors(node):
        if isinstance(item, (FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(item, LOOPS) and child is not getattr(item, "iter", None) and child not in item.orelse:
            found.append(item)
        child = item
    return found


def calls_in(script: Script, node: ast.AST, nested: bool = True) -> list[ast.Call]:
    """The calls within a node, those of functions nested in it too, in the order of the file."""
    memo = script.memo.setdefault("calls_in", {})
    key = (node, nested)
    if key not in memo:
        own = script.index.scope_at.get(node)
        scope = own or script.index.scope(node)
        scopes = scope.walk() if nested else [scope]
        memo[key] = sorted((c for s in scopes for c in s.calls if own is scope or inside(c, node)), key=place)
    found: list[ast.Call] = memo[key]
    return found


def bindings(script: Script, name: str, scope: Scope) -> list[Binding]:
    """What binds a name where it is used in ``scope``; for ``self.x``, every method of the class."""
    root = name.split(".", 1)[0]
    if root in ("self", "cls") and "." in name and scope.owner is not None:
        found = [b for owner in lineage(script, scope.owner) for s in owner.walk() for b in s.bindings.get(name, ())]
        return found or _class_level(script, name, scope)
    at: Scope | None = scope
    while at is not None:
        if name in at.bindings and (at.kind != "class" or at is scope):
            found = at.bindings[name]
            if all(b.how == "global" for b in found):
                return list(script.index.module.bindings.get(name, ())) or found
            return found
        at = at.parent
    return []


def _class_level(script: Script, name: str, scope: Scope) -> list[Binding]:
    short = name.split(".", 1)[1]
    return list(scope.owner.bindings.get(short, ())) if scope.owner is not None else []


def lineage(script: Script, owner: Scope) -> list[Scope]:
    """A class and its bases that are defined in the same file."""
    found: list[Scope] = []
    stack = [owner]
    while stack and len(found) < 10:
        item = stack.pop()
        if item in found:
            continue
        found.append(item)
        for base in bases(item):
            other = script.index.classes.get(base)
            if other is not None:
                stack.append(other)
    return found


def bases(owner: Scope) -> list[str]:
    """The dotted names of a class's bases."""
    return [dotted(b) for b in getattr(owner.node, "bases", [])]


def parameters(scope: Scope) -> list[str]:
    """The names of a function's parameters."""
    arguments = getattr(scope.node, "args", None)
    return [a.arg for a in all_arguments(arguments)] if isinstance(arguments, ast.arguments) else []


def last_before(script: Script, name: str, node: ast.AST, scope: Scope | None = None) -> Binding | None:
    """The last binding of a name before ``node`` in the same function, else its first one anywhere."""
    scope = scope or script.index.scope(node)
    found = [b for b in bindings(script, name, scope) if b.how not in ("global",)]
    here = [b for b in found if b.scope is scope and place(b.node) < place(node) and not _contains(b.node, node)]
    if here:
        return max(here, key=lambda b: place(b.node))
    return found[-1] if found else None


def _contains(statement: ast.AST, node: ast.AST) -> bool:
    # ``total = total + loss``: the name on the right still has its value from before
    return not isinstance(statement, (*LOOPS, ast.With, ast.AsyncWith)) and inside(node, statement)


def origins(script: Script, node: ast.AST, scope: Scope | None = None, depth: int = DEPTH) -> list[Origin]:
    """The expressions that a value may come from: names, attributes and parameters followed."""
    scope = scope or script.index.scope(node)
    if isinstance(node, ast.IfExp):
        return [*origins(script, node.body, scope, depth), *origins(script, node.orelse, scope, depth)]
    if isinstance(node, ast.BoolOp):
        return [o for v in node.values for o in origins(script, v, scope, depth)]
    if isinstance(node, ast.NamedExpr):
        return origins(script, node.value, scope, depth)
    if isinstance(node, ast.Await):
        return origins(script, node.value, scope, depth)
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return [Origin(node, scope, script)]
    name = dotted(node)
    if depth <= 0 or not name:
        return [Origin(node, scope, script)]
    found: list[Origin] = []
    for item in bindings(script, name, scope)[-8:]:
        if item.how == "assign" and item.value is not None:
            if item.value is node or (inside(node, item.node) and dotted(item.value) == name):
                continue
            found += origins(script, item.value, item.scope, depth - 1)
        elif item.how == "parameter":
            found += _arguments(script, item, depth)
        elif item.value is not None:
            found.append(Origin(item.value, item.scope, script, item.how, item.position))
    return found or [Origin(node, scope, script)]


def _arguments(script: Script, item: Binding, depth: int) -> list[Origin]:
    found: list[Origin] = []
    for site in call_sites(script, item.scope)[:6]:
        value = argument_for(item.scope, site, item.name)
        if (value is not None and dotted(value) != item.name) or (value is not None and depth > 2):
            found += origins(script, value, None, depth - 2)
    return found or [Origin(item.node, item.scope, script, "parameter")]


def argument_for(function: Scope, site: ast.Call, name: str) -> ast.expr | None:
    """What a call passes for a parameter; None where it does not, or by * or **."""
    for keyword in site.keywords:
        if keyword.arg == name:
            return keyword.value
    names = parameters(function)
    if function.parent is not None and function.parent.kind == "class" and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    if name not in names or any(isinstance(a, ast.Starred) for a in site.args):
        return None
    at = names.index(name)
    return site.args[at] if at < len(site.args) else None


def call_sites(script: Script, function: Scope) -> list[ast.Call]:
    """Where a function of this file is called in it; for ``__init__``, where its class is."""
    memo = script.memo.setdefault("call_sites", {})
    if function not in memo:
        memo[function] = []
        memo[function] = _call_sites(script, function) if function.kind == "function" else []
    found: list[ast.Call] = memo[function]
    return found


def _call_sites(script: Script, function: Scope) -> list[ast.Call]:
    owner = function.parent if function.parent is not None and function.parent.kind == "class" else None
    if owner is not None and function.name == "__init__":
        return [c for c in script.index.by_tail.get(owner.name, ()) if isinstance(c.func, ast.Name)]
    found = []
    for site in script.index.by_tail.get(function.name, ()):
        if isinstance(site.func, ast.Name):
            if owner is None:
                found.append(site)
        elif owner is not None and _may_be_method(script, site, owner):
            found.append(site)
    return found


def _may_be_method(script: Script, site: ast.Call, owner: Scope) -> bool:
    receiver = site.func.value if isinstance(site.func, ast.Attribute) else None
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
        own = script.index.scope(site).owner
        return own is not None and (owner in lineage(script, own) or own in lineage(script, owner))
    if receiver is None:
        return False
    return any(_is_instance(script, o, owner) for o in origins(script, receiver, None, 2))


def _is_instance(script: Script, origin: Origin, owner: Scope) -> bool:
    return isinstance(origin.node, ast.Call) and dotted(origin.node.func) == owner.name


def called(script: Script, call: ast.Call) -> tuple[Script, Scope] | None:
    """The function that a call runs, where it is in this file or a module beside it."""
    memo = script.memo.setdefault("called", {})
    if call not in memo:
        memo[call] = None  # a value that is made from itself leads nowhere
        memo[call] = _called(script, call)
    found: tuple[Script, Scope] | None = memo[call]
    return found


def _called(script: Script, call: ast.Call) -> tuple[Script, Scope] | None:
    function = call.func
    scope = script.index.scope(call)
    if isinstance(function, ast.Name):
        return _function_named(script, function.id, scope)
    if not isinstance(function, ast.Attribute):
        return None
    receiver = function.value
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
        return method(script, scope.owner, function.attr)
    if isinstance(receiver, ast.Call) and dotted(receiver.func) == "super" and scope.owner is not None:
        return next(
            (m for m in (method(script, o, function.attr) for o in lineage(script, scope.owner)[1:]) if m), None
        )
    name = script.index.qual(call)
    if "." in name and not name.startswith(("torch.", "?")):
        imported = _imported(script, name)
        if imported is not None:
            return imported
    if dotted(receiver):
        for origin in origins(script, receiver, scope, 2):
            if isinstance(origin.node, ast.Call):
                owner = class_of(origin.script, origin.node)
                if owner is not None:
                    return method(owner[0], owner[1], function.attr)
    return None


def _function_named(script: Script, name: str, scope: Scope) -> tuple[Script, Scope] | None:
    at: Scope | None = scope
    while at is not None:
        found = at.function(name) if at.kind != "class" else None
        if found is not None:
            return script, found
        for item in at.bindings.get(name, ()):
            if isinstance(item.value, ast.Lambda):
                return script, script.index.scope_at[item.value]
        at = at.parent
    target = script.index.imports.get(name)
    return _imported(script, target) if target else None


def _imported(script: Script, name: str) -> tuple[Script, Scope] | None:
    module, _, short = name.rpartition(".")
    other = script.neighbours.get(module) if module else None
    found = other.index.module.function(short) if other is not None else None
    return (other, found) if other is not None and found is not None else None


def method(script: Script, owner: Scope | None, name: str) -> tuple[Script, Scope] | None:
    """A method of a class of this file, or of its bases here."""
    for item in lineage(script, owner) if owner is not None else ():
        found = item.function(name)
        if found is not None:
            return script, found
    return None


def class_of(script: Script, call: ast.Call) -> tuple[Script, Scope] | None:
    """The class that a call makes an instance of, in this file or beside it."""
    name = dotted(call.func)
    own = script.index.classes.get(name)
    if own is not None:
        return script, own
    module, _, short = script.index.resolve(name).rpartition(".")
    other = script.neighbours.get(module) if module else None
    found = other.index.classes.get(short) if other is not None else None
    return (other, found) if other is not None and found is not None else None


def reached(script: Script, node: ast.AST, depth: int = 4) -> Iterator[tuple[Script, ast.Call]]:
    """Every call that running a node makes, through the helpers that are known."""
    seen: set[Scope] = set()
    stack: list[tuple[Script, ast.AST, int]] = [(script, node, depth)]
    while stack:
        where, item, left = stack.pop()
        for call in calls_in(where, item):
            yield where, call
            target = called(where, call) if left else None
            if target is not None and target[1] not in seen:
                seen.add(target[1])
                stack.append((target[0], target[1].node, left - 1))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def has_star(call: ast.Call) -> bool:
    """Whether a call passes arguments that cannot be seen (``*args``, ``**kwargs``)."""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def constant(script: Script, node: ast.AST | None) -> object:
    """The one constant that an expression is, names followed; None where it is not known."""
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else None
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    found = [o.node for o in origins(script, node)]
    if len(found) == 1 and isinstance(found[0], ast.Constant):
        return found[0].value
    return None


def receiver(call: ast.Call) -> ast.expr | None:
    """What a method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def spelled(node: ast.AST) -> str:
    """``dotted``, with constant subscripts told apart: ``nets["D"]`` is nets[D], and a call is left out."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return f"{dotted(node.value)}[{node.slice.value!s}]"
    return dotted(node)

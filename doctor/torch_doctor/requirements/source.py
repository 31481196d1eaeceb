"""One parsed file: what its names mean and which values its source fixes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

#: what the source does not fix
UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN", "__bool__": lambda self: False})()

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
}
_CPU_COUNTS = {
    "os.cpu_count",
    "os.process_cpu_count",
    "multiprocessing.cpu_count",
    "torch.multiprocessing.cpu_count",
    "psutil.cpu_count",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "int": int, "float": float, "round": round}
_DEEPEST = 20  # names that lead to names


class Source:
    """A parsed file with its aliases, parents, assignments and defaults of options.

    Args:
        path: as the user would write it.
        tree: its syntax tree.
        cpu_count: what ``os.cpu_count()`` gives on the machine that is judged; None leaves it unknown.
    """

    def __init__(self, path: str, tree: ast.Module, cpu_count: int | None = None) -> None:
        self.path = path
        self.tree = tree
        self.cpu_count = cpu_count
        self.parents: dict[ast.AST, ast.AST] = {}
        self.aliases: dict[str, str] = {}
        self.imported: list[tuple[int, str]] = []  # (level, dotted name)
        self.assigned: dict[tuple[ast.AST, str], list[ast.expr]] = {}
        self.attributes: dict[str, list[ast.expr]] = {}  # option or field -> its defaults
        self.nodes: list[ast.AST] = []
        self._values: dict[ast.AST, Any] = {}
        self._evaluating: set[ast.AST] = set()
        self._index(tree)

    def _index(self, tree: ast.Module) -> None:
        pending: list[ast.AST] = [tree]
        while pending:  # no recursion: generated files nest deeply
            node = pending.pop()
            self.nodes.append(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self.parents[child] = node
            pending.extend(reversed(children))
        for node in self.nodes:
            self._note_import(node)
        for node in self.nodes:
            self._note_value(node)

    def _note_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for name in node.names:
                self.imported.append((0, name.name))
                if name.asname:
                    self.aliases[name.asname] = name.name
                else:
                    top = name.name.split(".")[0]
                    self.aliases.setdefault(top, top)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            self.imported.append((node.level, module))
            for name in node.names:
                full = f"{module}.{name.name}" if module else name.name
                self.imported.append((node.level, full))
                self.aliases[name.asname or name.name] = full

    def _note_value(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._note_target(node, target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._note_target(node, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._note_target(node, node.target, ast.Constant(...))  # changed in place: not a constant
        elif isinstance(node, ast.Call):
            self._note_option(node)

    def _note_target(self, node: ast.AST, target: ast.expr, value: ast.expr) -> None:
        scope = self.scope(node)
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._note_target(node, one, its)
        elif isinstance(target, ast.Name):
            self.assigned.setdefault((scope, target.id), []).append(value)
            if isinstance(scope, ast.ClassDef):
                self.attributes.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Attribute):
            self.attributes.setdefault(target.attr, []).append(value)

    def _note_option(self, call: ast.Call) -> None:
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            name = option_name(names, keywords.get("dest"))
            if name and "default" in keywords:
                self.attributes.setdefault(name, []).insert(0, keywords["default"])
        elif (self.dotted(call.func) or "").rsplit(".", 1)[-1] in ("Namespace", "SimpleNamespace"):
            for name, value in keywords.items():
                self.attributes.setdefault(name, []).append(value)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module that ``node`` stands in."""
        current = self.parents.get(node)
        while current is not None and not isinstance(current, (*FUNCTIONS, ast.ClassDef)):
            current = self.parents.get(current)
        return current or self.tree

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What ``node`` stands in, from the inside out."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def dotted(self, node: ast.AST | None) -> str | None:
        """``F.relu`` as ``torch.nn.functional.relu``: import aliases resolved; None for what is no dotted name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Each call whose function is a dotted name, in the order of the file."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                name = self.dotted(node.func)
                if name is not None:
                    yield node, name

    def value(self, node: ast.AST | None, bound: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
        """The constant that an expression comes to, or UNKNOWN. ``bound``: values of the function's parameters."""
        if node is None or depth > _DEEPEST:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return UNKNOWN if node.value is ... else node.value
        handler = _HANDLERS.get(type(node))
        if handler is None or node in self._evaluating:
            return UNKNOWN
        if node in self._values and not bound:
            return self._values[node]
        self._evaluating.add(node)
        value = handler(self, node, bound or {}, depth + 1)
        self._evaluating.discard(node)
        if not bound:  # names lead to names: without a memory that doubles at each step
            self._values[node] = value
        return value

    def definition(self, node: ast.Name) -> ast.expr | None:
        """The one expression that a name was given in the innermost scope that gives it one."""
        found = self.definitions(node)
        return found[0] if len(found) == 1 else None

    def definitions(self, node: ast.Name) -> Sequence[ast.expr]:
        """Each expression that a name was given in the innermost scope that gives it one."""
        scope: ast.AST = self.scope(node)
        while True:
            found = self.assigned.get((scope, node.id))
            if found:
                return found
            if isinstance(scope, FUNCTIONS):
                default = parameter_default(scope, node.id)
                if default is not None:
                    return (default,) if isinstance(default, ast.expr) else ()
            if scope is self.tree:
                return ()
            scope = self.scope(scope)

    def owner(self, node: ast.Name) -> ast.AST | None:
        """The function whose parameter a name is, else None."""
        scope: ast.AST = self.scope(node)
        while scope is not self.tree:
            if isinstance(scope, FUNCTIONS) and node.id in parameters(scope):
                return scope
            if (scope, node.id) in self.assigned:
                return None
            scope = self.scope(scope)
        return None


def option_name(names: list[str], dest: ast.expr | None = None) -> str:
    """The attribute that argparse gives an option: its dest, its first long name, else its first name."""
    if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
        return dest.value
    chosen = next((n for n in names if n.startswith("--")), names[0] if names else "")
    return chosen.lstrip("-").replace("-", "_")


def parameters(function: ast.AST) -> list[str]:
    """Names of a function's parameters: positional ones first, in order."""
    spec = function.args  # type: ignore[attr-defined]
    return [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def parameter_default(function: ast.AST, name: str) -> ast.expr | bool | None:
    """The default of a parameter; True where it has none; None where there is no such parameter."""
    spec = function.args  # type: ignore[attr-defined]
    positional = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | bool] = [True] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg == name:
            return default
    for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if argument.arg == name:
            return True if default is None else default
    return None


def _name(source: Source, node: ast.Name, bound: Mapping[str, Any], depth: int) -> Any:
    if node.id in bound and source.owner(node) is not None:
        return bound[node.id]
    return source.value(source.definition(node), bound, depth)


def _attribute(source: Source, node: ast.Attribute, bound: Mapping[str, Any], depth: int) -> Any:
    values = [source.value(v, bound, depth) for v in source.attributes.get(node.attr, ())]
    if not values:
        return UNKNOWN
    # an option's default stands first; a class that fills its field from it says nothing new
    known = [v for v in values if v is not UNKNOWN]
    if not known or any(v != known[0] for v in known):
        return UNKNOWN
    return known[0]


def _operation(source: Source, node: ast.BinOp, bound: Mapping[str, Any], depth: int) -> Any:
    left, right = source.value(node.left, bound, depth), source.value(node.right, bound, depth)
    function = _ARITHMETIC.get(type(node.op))
    if function is None or not _numbers(left, right) or (function is operator.lshift and right > 64):
        return UNKNOWN
    try:
        return function(left, right)
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN


def _numbers(*values: Any) -> bool:
    return all(isinstance(v, (int, float)) for v in values)


def _negation(source: Source, node: ast.UnaryOp, bound: Mapping[str, Any], depth: int) -> Any:
    value = source.value(node.operand, bound, depth)
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(node.op, ast.Not):
        return not value
    return -value if isinstance(node.op, ast.USub) and _numbers(value) else UNKNOWN


def _sequence(source: Source, node: ast.Tuple | ast.List, bound: Mapping[str, Any], depth: int) -> Any:
    return tuple(source.value(e, bound, depth) for e in node.elts)


def _mapping(source: Source, node: ast.Dict, bound: Mapping[str, Any], depth: int) -> Any:
    keys = [source.value(k, bound, depth) if k is not None else UNKNOWN for k in node.keys]
    pairs = zip(keys, node.values, strict=True)
    return {k: source.value(v, bound, depth) for k, v in pairs if isinstance(k, (str, int))}


def _item(source: Source, node: ast.Subscript, bound: Mapping[str, Any], depth: int) -> Any:
    base, key = source.value(node.value, bound, depth), source.value(node.slice, bound, depth)
    if isinstance(base, dict) and isinstance(key, (str, int)):
        return base.get(key, UNKNOWN)
    if isinstance(base, tuple) and isinstance(key, int) and -len(base) <= key < len(base):
        return base[key]
    return UNKNOWN


def _either(source: Source, node: ast.BoolOp, bound: Mapping[str, Any], depth: int) -> Any:
    # ``os.cpu_count() or 1``: an unknown part leaves the whole unknown
    stops = isinstance(node.op, ast.Or)
    value: Any = UNKNOWN
    for part in node.values:
        value = source.value(part, bound, depth)
        if value is UNKNOWN or bool(value) is stops:
            return value
    return value


def _choice(source: Source, node: ast.IfExp, bound: Mapping[str, Any], depth: int) -> Any:
    test = source.value(node.test, bound, depth)
    if test is not UNKNOWN:
        return source.value(node.body if test else node.orelse, bound, depth)
    first, second = source.value(node.body, bound, depth), source.value(node.orelse, bound, depth)
    return first if first is not UNKNOWN and first == second else UNKNOWN


def _call(source: Source, node: ast.Call, bound: Mapping[str, Any], depth: int) -> Any:
    name = source.dotted(node.func) or ""
    if name in _CPU_COUNTS or (name == "len" and node.args and _is_affinity(source, node.args[0])):
        return UNKNOWN if source.cpu_count is None else source.cpu_count
    if name == "dict" and not node.args:
        return {k.arg: source.value(k.value, bound, depth) for k in node.keywords if k.arg}
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return _get(source, node, bound, depth)
    if name in ("os.environ.get", "os.getenv") or name not in _FUNCTIONS:
        return UNKNOWN
    arguments = [source.value(a, bound, depth) for a in node.args]
    if node.keywords or not arguments or not all(_numbers(a) or isinstance(a, str) for a in arguments):
        return UNKNOWN
    try:
        return _FUNCTIONS[name](*arguments)
    except (ValueError, TypeError, OverflowError):
        return UNKNOWN


def _get(source: Source, node: ast.Call, bound: Mapping[str, Any], depth: int) -> Any:
    base = source.value(node.func.value, bound, depth)  # type: ignore[attr-defined]
    key = source.value(node.args[0], bound, depth)
    if not isinstance(base, dict) or not isinstance(key, (str, int)):
        return UNKNOWN
    if key in base:
        return base[key]
    return source.value(node.args[1], bound, depth) if len(node.args) > 1 else None


def _is_affinity(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.dotted(node.func) == "os.sched_getaffinity"


_HANDLERS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BinOp: _operation,
    ast.UnaryOp: _negation,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Dict: _mapping,
    ast.Subscript: _item,
    ast.BoolOp: _either,
    ast.IfExp: _choice,
    ast.Call: _call,
}

"""An index over one syntax tree, built by a single traversal: scopes, bindings, calls, imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: a chain with more parts than this is generated, and no name
LONGEST_NAME = 100
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(slots=True, eq=False, repr=False)
class Binding:
    """One place that gives a name a value.

    Args:
        name: ``loss`` or ``self.loss``; a subscripted target is ``stats[]``.
        value: the expression on the right; None for a parameter or an import.
        node: the statement (or comprehension) that binds.
        scope: the scope that the statement is in.
        how: assign, augment, loop, with, unpack, parameter, def, import or global.
        position: for ``unpack``, the place within the tuple.
    """

    name: str
    value: ast.expr | None
    node: ast.AST
    scope: Scope
    how: str
    position: int = -1


@dataclass(slots=True, eq=False, repr=False)
class Scope:
    """A module, class, function or lambda, with what stands directly in it, in source order."""

    kind: str
    name: str
    node: ast.AST
    parent: Scope | None = None
    children: list[Scope] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    bindings: defaultdict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    loops: list[ast.For | ast.AsyncFor | ast.While] = field(default_factory=list)
    withs: list[ast.With | ast.AsyncWith] = field(default_factory=list)
    returns: list[ast.Return] = field(default_factory=list)
    names: defaultdict[str, list[ast.Name]] = field(default_factory=lambda: defaultdict(list))

    @property
    def body(self) -> list[ast.stmt]:
        """The statements; a lambda has none."""
        found = getattr(self.node, "body", [])
        return found if isinstance(found, list) else []

    @property
    def owner(self) -> Scope | None:
        """The class that a method (or a function nested in one) belongs to."""
        scope: Scope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    def walk(self) -> Iterator[Scope]:
        """This scope and all below it."""
        stack = [self]
        while stack:
            scope = stack.pop()
            yield scope
            stack.extend(reversed(scope.children))

    def function(self, name: str) -> Scope | None:
        """The function of this name that is defined directly here (the last one wins)."""
        return next((c for c in reversed(self.children) if c.name == name and c.kind == "function"), None)


class Index:
    """What the rules look things up in. Nodes are keys by identity."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", "", tree)
        self.parent: dict[ast.AST, ast.AST] = {}
        self.scope_of: dict[ast.AST, Scope] = {}
        self.scope_at: dict[ast.AST, Scope] = {tree: self.module}
        self.calls: list[ast.Call] = []
        self.quals: dict[ast.AST, str] = {}
        self.by_tail: defaultdict[str, list[ast.Call]] = defaultdict(list)
        self.attributes: defaultdict[str, list[ast.Attribute]] = defaultdict(list)
        self.statements: defaultdict[type, list[ast.stmt]] = defaultdict(list)
        self.functions: list[Scope] = []
        self.classes: dict[str, Scope] = {}
        self.imports: dict[str, str] = {}
        self.star_imports: list[str] = []
        self.import_nodes: list[ast.Import | ast.ImportFrom] = []
        _Builder(self).build(tree)

    def qual(self, node: ast.AST) -> str:
        """The dotted name of a name, attribute or call's function, import aliases resolved; "" where none."""
        found = self.quals.get(node)
        if found is None:
            found = self.resolve(dotted(node.func if isinstance(node, ast.Call) else node))
            self.quals[node] = found
        return found

    def resolve(self, name: str) -> str:
        """``F.relu`` as ``torch.nn.functional.relu`` where F was imported so."""
        root, _, rest = name.partition(".")
        target = self.imports.get(root)
        if target is None:
            return name
        return f"{target}.{rest}" if rest else target

    def release(self) -> None:
        """Break the cycles between scopes, so that memory is freed without the collector; then it is of no use."""
        for scope in list(self.module.walk()):
            scope.parent = None
            scope.children.clear()
            scope.bindings.clear()

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parents of a node, the nearest first, through scopes up to the module."""
        parent = self.parent
        while node in parent:
            node = parent[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            if node not in self.parent:
                return None
            node = self.parent[node]
        return node

    def scope(self, node: ast.AST) -> Scope:
        """The scope that a node stands in."""
        if node in self.scope_of:
            return self.scope_of[node]
        for item in self.ancestors(node):
            if item in self.scope_at:
                return self.scope_at[item]
            if item in self.scope_of:
                return self.scope_of[item]
        return self.module


def dotted(node: ast.AST) -> str:
    """``a.b.c``; a call within is ``()`` and a subscript ``[]``: ``nn.DataParallel(m).cuda`` is
    ``nn.DataParallel().cuda``. "" where the root has no name."""
    parts: list[str] = []
    while len(parts) < LONGEST_NAME:
        cls = node.__class__
        if cls is ast.Attribute:
            parts.append("." + node.attr)  # type: ignore[attr-defined]
            node = node.value  # type: ignore[attr-defined]
        elif cls is ast.Name:
            parts.append(node.id)  # type: ignore[attr-defined]
            parts.reverse()
            return "".join(parts)
        elif cls is ast.Call:
            parts.append("()")
            node = node.func  # type: ignore[attr-defined]
        elif cls is ast.Subscript:
            parts.append("[]")
            node = node.value  # type: ignore[attr-defined]
        else:
            break
    parts.reverse()
    return "?" + "".join(parts) if parts else ""


_SKIPPED = {"ctx", "op", "ops", "type_comment", "kind", "type_ignores", "conversion", "type_params"}
_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(cls: type) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(cls, "_fields", ())
    _FIELDS[cls] = found = tuple(n for n in reversed(names) if n not in _SKIPPED)
    return found


class _Builder:
    """Fills an Index. Iterative: a deep tree does not exhaust the interpreter's stack."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.scope = index.module
        self.pending: list[tuple[Scope, list[ast.AST]]] = []

    def build(self, tree: ast.Module) -> None:
        handlers = {
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.Assign: self._assign,
            ast.AnnAssign: self._ann_assign,
            ast.AugAssign: self._aug_assign,
            ast.NamedExpr: self._named,
            ast.For: self._loop,
            ast.AsyncFor: self._loop,
            ast.While: self._loop,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Return: self._return,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.Lambda: self._lambda,
            ast.ClassDef: self._class,
            ast.comprehension: self._comprehension,
            ast.Global: self._global,
            ast.Nonlocal: self._global,
        }
        self.pending.append((self.index.module, list(tree.body)))
        for item in tree.body:
            self.index.parent[item] = tree
        while self.pending:
            self.scope, roots = self.pending.pop()
            self._scan(roots, handlers)
        for call in self.index.calls:
            self.index.qual(call)

    def _scan(self, roots: list[ast.AST], handlers: Mapping[type, object]) -> None:
        parent, statements = self.index.parent, self.index.statements
        names = self.scope.names
        stack = roots[::-1]
        while stack:
            node = stack.pop()
            cls = node.__class__
            if cls is ast.Name:
                names[node.id].append(node)  # type: ignore[attr-defined, arg-type]
                continue
            handler = handlers.get(cls)
            if handler is not None:
                own = handler(node)  # type: ignore[operator]
                if own is not None:
                    for child in reversed(own):
                        parent[child] = node
                        stack.append(child)
                    continue
            elif cls is ast.Expr or cls is ast.If or cls is ast.Try or cls is ast.Assert or cls is ast.Delete:
                statements[cls].append(node)  # type: ignore[arg-type]
            for name in _FIELDS.get(cls) or _fields(cls):
                child = getattr(node, name, None)
                kind = child.__class__
                if kind is list:
                    for item in reversed(child):  # type: ignore[arg-type]
                        if item.__class__ is ast.Constant:
                            parent[item] = node
                        elif isinstance(item, ast.AST):
                            parent[item] = node
                            stack.append(item)
                elif kind is ast.Constant:
                    parent[child] = node  # type: ignore[index]
                elif isinstance(child, ast.AST):
                    parent[child] = node
                    stack.append(child)

    def _bind(self, target: ast.AST, value: ast.expr | None, node: ast.AST, how: str, position: int = -1) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            pairs = value.elts if isinstance(value, (ast.Tuple, ast.List)) and how == "assign" else None
            paired = pairs is not None and len(pairs) == len(target.elts)
            for at, item in enumerate(target.elts):
                if paired and pairs is not None:
                    self._bind(item, pairs[at], node, how)
                else:
                    self._bind(item, value, node, "unpack" if how == "assign" else how, at)
            return
        if isinstance(target, ast.Starred):
            target = target.value
        name = target.id if isinstance(target, ast.Name) else dotted(target)
        if name:
            self.scope.bindings[name].append(Binding(name, value, node, self.scope, how, position))

    def _call(self, node: ast.Call) -> None:
        index = self.index
        index.calls.append(node)
        index.scope_of[node] = self.scope
        self.scope.calls.append(node)
        function = node.func
        if function.__class__ is ast.Attribute:
            index.by_tail[function.attr].append(node)
        elif function.__class__ is ast.Name:
            index.by_tail[function.id].append(node)
        else:
            index.by_tail[""].append(node)

    def _attribute(self, node: ast.Attribute) -> None:
        self.index.attributes[node.attr].append(node)

    def _assign(self, node: ast.Assign) -> None:
        self.index.statements[ast.Assign].append(node)
        self.index.scope_of[node] = self.scope
        for target in node.targets:
            self._bind(target, node.value, node, "assign")

    def _ann_assign(self, node: ast.AnnAssign) -> None:
        self.index.statements[ast.AnnAssign].append(node)
        self.index.scope_of[node] = self.scope
        if node.value is not None:
            self._bind(node.target, node.value, node, "assign")

    def _aug_assign(self, node: ast.AugAssign) -> None:
        self.index.statements[ast.AugAssign].append(node)
        self.index.scope_of[node] = self.scope
        self._bind(node.target, node.value, node, "augment")

    def _named(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, node.value, node, "assign")

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self.scope.loops.append(node)
        self.index.scope_of[node] = self.scope
        if not isinstance(node, ast.While):
            self._bind(node.target, node.iter, node, "loop")

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        self.scope.withs.append(node)
        self.index.statements[ast.With].append(node)
        self.index.scope_of[node] = self.scope
        for item in node.items:
            if item.optional_vars is not None:
                self._bind(item.optional_vars, item.context_expr, node, "with")

    def _return(self, node: ast.Return) -> None:
        self.scope.returns.append(node)

    def _comprehension(self, node: ast.comprehension) -> None:
        self._bind(node.target, node.iter, node, "loop")

    def _global(self, node: ast.Global | ast.Nonlocal) -> list[ast.AST]:
        for name in node.names:
            self.scope.bindings[name].append(Binding(name, None, node, self.scope, "global"))
        return []

    def _import(self, node: ast.Import) -> list[ast.AST]:
        self.index.import_nodes.append(node)
        for item in node.names:
            if item.asname:
                self.index.imports[item.asname] = canonical(item.name)
        return []

    def _import_from(self, node: ast.ImportFrom) -> list[ast.AST]:
        self.index.import_nodes.append(node)
        module = "." * node.level + (node.module or "")
        for item in node.names:
            if item.name == "*":
                self.index.star_imports.append(module)
            else:
                glue = "" if module.endswith(".") else "."
                self.index.imports[item.asname or item.name] = canonical(f"{module}{glue}{item.name}")
        return []

    def _open(self, kind: str, name: str, node: ast.AST, body: list[ast.AST]) -> Scope:
        scope = Scope(kind, name, node, self.scope)
        self.scope.children.append(scope)
        self.index.scope_at[node] = scope
        self.index.scope_of[node] = self.scope
        for item in body:
            self.index.parent[item] = node
        self.pending.append((scope, body))
        return scope

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
        scope = self._open("function", node.name, node, list(node.body))
        self.index.functions.append(scope)
        self._parameters(scope, node.args)
        self.scope.bindings[node.name].append(Binding(node.name, None, node, self.scope, "def"))
        return [*node.decorator_list, *_defaults(node.args)]

    def _lambda(self, node: ast.Lambda) -> list[ast.AST]:
        scope = self._open("lambda", "<lambda>", node, [node.body])
        self.index.functions.append(scope)
        self._parameters(scope, node.args)
        return _defaults(node.args)

    def _parameters(self, scope: Scope, args: ast.arguments) -> None:
        for argument in all_arguments(args):
            scope.bindings[argument.arg].append(Binding(argument.arg, None, argument, scope, "parameter"))

    def _class(self, node: ast.ClassDef) -> list[ast.AST]:
        self.index.classes[node.name] = self._open("class", node.name, node, list(node.body))
        self.scope.bindings[node.name].append(Binding(node.name, None, node, self.scope, "def"))
        return [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]


def _defaults(args: ast.arguments) -> list[ast.AST]:
    return [*args.defaults, *(d for d in args.kw_defaults if d is not None)]


def all_arguments(args: ast.arguments) -> list[ast.arg]:
    """Every parameter, ``*args`` and ``**kwargs`` last."""
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [a for a in (args.vararg, args.kwarg) if a is not None]


#: where the public name of something stands, for those that are imported from where they are defined
_CANONICAL = (
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.nn.parallel.data_parallel.", "torch.nn.parallel."),
    ("torch.nn.modules.loss.", "torch.nn."),
    ("torch.cuda.amp.grad_scaler.", "torch.cuda.amp."),
    ("torch.cuda.amp.autocast_mode.", "torch.cuda.amp."),
    ("torch.optim.adam.", "torch.optim."),
    ("torch.optim.sgd.", "torch.optim."),
)


def canonical(name: str) -> str:
    """The public spelling of a qualified name."""
    if name.startswith("torch."):
        for long, short in _CANONICAL:
            if name.startswith(long):
                return short + name[len(long) :]
    return name

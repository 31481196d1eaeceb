"""Losses that outlive their step: kept with their graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.batches import draws
from torch_doctor.lint.events import backward_loss, is_backward, is_step, repeated_in
from torch_doctor.lint.flow import (
    Loop,
    bindings,
    called,
    calls_in,
    in_body,
    inside,
    last_before,
    loops_around,
    origins,
    reached,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, fix, insert, source
from torch_doctor.lint.grad_mode import grad_off
from torch_doctor.lint.graph import CUTS, carries, has_backward, is_loss_function, loss_like, mentions
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding, Fix
from torch_doctor.registry import check

KEEPERS = frozenset({"append", "extend", "add", "insert", "appendleft", "put"})


@check("GRD101", "loss-kept-with-graph", tags={"fixable", "memory"})
def loss_kept_with_graph(script: Script) -> Iterator[Finding]:
    """A loss is kept over the steps together with its autograd graph.

    What it checks:
        total += loss, total = total + loss, losses.append(loss), stats["loss"] += loss, self.total += loss and the
        like in a loop over steps, where the value still has its graph and no backward() needs the sum.
    Why it matters:
        Each step's graph stays alive: after backward() the nodes on the host (memory grows slowly), without one all
        activations (out of memory after some steps).
    Example:
        Bad::

            def train(model, loader, opt, loss_fn):
                total = 0
                for x, y in loader:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
                    total += loss
                return total

        Good::

            def train(model, loader, opt, loss_fn):
                total = 0
                for x, y in loader:
                    opt.zero_grad()
                    loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
                    total += loss.item()
                return total
    Fix:
        loss.item() for a number, loss.detach() where it must stay a tensor. --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """
    if (
        not script.index.by_tail.get("backward")
        and not script.index.by_tail.get("manual_backward")
        and not _evaluates(script)
    ):
        return
    for target, value, node in _keepings(script):
        if isinstance(value, ast.Constant) or grad_off(script, node):
            continue
        kept = _kept_graph(script, value, target)
        if kept is None:
            continue
        loop = _step_loop(script, node, target)
        if loop is None and not _persists_over_calls(script, node, target, kept):
            continue
        if _sum_is_needed(script, target, node) or _is_reset_in(script, target, node, loop):
            continue
        trains = _has_backward(script, node, loop) or script.index.scope(node).name == "training_step"
        if not trains and (loop is None or not _over_data(script, loop) or _returns_sum(script, target, node)):
            continue
        yield finding(
            script,
            node,
            WARNING if trains else ERROR,
            f"{source(script, kept)} is kept in {target} with its graph: memory grows at every step",
            f"Keep {source(script, kept)}.item(), or .detach() where it must stay a tensor",
            fix=_mend(script, kept, target, node),
        )


def _evaluates(script: Script) -> bool:
    return bool(script.index.by_tail.get("eval")) or "training_step" in script.text


def _keepings(script: Script) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """(what keeps, the value kept, the statement) of everything that looks like an accumulation."""
    index = script.index
    for node in index.statements[ast.AugAssign]:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            name = dotted(node.target)
            if name:
                yield name, node.value, node
    for node in index.statements[ast.Assign]:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                for one, its in zip(target.elts, value.elts, strict=True):
                    yield from _assigned(script, node, one, its)
            else:
                yield from _assigned(script, node, target, value)
    for short in KEEPERS:
        for call in index.by_tail.get(short, ()):
            name = dotted(call.func)
            statement = index.statement(call)
            if name and call.args and isinstance(statement, ast.Expr) and statement.value is call:
                yield _without_setdefault(name.rpartition(".")[0]), call.args[-1], statement
    for call in index.by_tail.get("update", ()):
        yield from _metered(script, call)


def _without_setdefault(name: str) -> str:
    return name.removesuffix("()").removesuffix(".setdefault") + "[]" if name.endswith(".setdefault()") else name


def _assigned(
    script: Script, node: ast.Assign, target: ast.expr, value: ast.expr
) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    name = dotted(target)
    if not name:
        return
    if isinstance(value, ast.IfExp):
        # avg = loss if avg is None else 0.9 * avg + 0.1 * loss
        sums = [v for v in (value.body, value.orelse) if isinstance(v, ast.BinOp) and mentions(script, v, name)]
        value = sums[0] if sums else value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        left, right = value.left, value.right
        if _same(left, target):
            yield name, right, node
        elif _same(right, target):
            yield name, left, node
        elif mentions(script, left, name) and not mentions(script, right, name):
            yield name, right, node
        elif mentions(script, right, name) and not mentions(script, left, name):
            yield name, left, node
    elif (
        isinstance(target, ast.Subscript)
        and not isinstance(target.slice, ast.Constant)
        and isinstance(target.slice, (ast.Name, ast.BinOp, ast.Tuple))
    ):
        # losses[i] = loss: one more entry at each step
        yield name, value, node


def _same(left: ast.AST, right: ast.AST) -> bool:
    places = (ast.Name, ast.Attribute, ast.Subscript)
    if not isinstance(left, places) or not isinstance(right, places):
        return False
    return ast.dump(left).replace("Store()", "Load()") == ast.dump(right).replace("Store()", "Load()")


def _metered(script: Script, call: ast.Call) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """``meter.update(loss)`` where the meter's class is known to sum up what it is given."""
    target = called(script, call)
    statement = script.index.statement(call)
    if target is None or statement is None or not call.args:
        return
    where, scope = target
    names = [a.arg for a in getattr(scope.node, "args").args][1:]  # noqa: B009
    if not names:
        return
    for node in where.index.statements[ast.AugAssign]:
        if (
            isinstance(node, ast.AugAssign)
            and inside(node, scope.node)
            and dotted(node.target).startswith("self.")
            and (
                any(isinstance(n, ast.Name) and n.id == names[0] for n in ast.walk(node.value))
                and not _cut(node.value)
            )
        ):
            rebound = [b for b in scope.bindings.get(names[0], ()) if b.how == "assign"]
            if not rebound:
                yield dotted(call.func).rpartition(".")[0], call.args[0], statement
            return


def _cut(value: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in CUTS for n in ast.walk(value)) or any(
        isinstance(n, ast.Call) and dotted(n.func) == "float" for n in ast.walk(value)
    )


def _kept_graph(script: Script, value: ast.expr, target: str) -> ast.expr | None:
    """The part of a value that carries a graph; None where none does for certain."""
    if isinstance(value, ast.Dict):
        return next((v for v in value.values if carries(script, v) is True), None)
    if isinstance(value, (ast.Tuple, ast.List)):
        return next((v for v in value.elts if carries(script, v) is True), None)
    if carries(script, value) is not True:
        return None
    if isinstance(value, ast.BinOp):
        for part in (value.left, value.right):
            if carries(script, part) is True and isinstance(part, (ast.Name, ast.Attribute, ast.Call)):
                return part
    return value


def _step_loop(script: Script, node: ast.AST, target: str) -> Loop | None:
    """The innermost loop over steps that the accumulator outlives; None without one."""
    base = target.split("[", 1)[0]
    for loop in loops_around(script, node):
        bound = [b for b in bindings(script, base, script.index.scope(node)) if b.how == "assign"]
        if any(
            in_body(b.node, loop) and b.scope is script.index.scope(node) and _resets(b.value, base) for b in bound
        ):
            return None
        if _has_backward(script, node, loop) or _over_data(script, loop):
            return loop
    return None


def _resets(value: ast.AST | None, base: str) -> bool:
    return value is not None and not any(
        dotted(n) == base for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Attribute))
    )


def _has_backward(script: Script, node: ast.AST, loop: Loop | None) -> bool:
    container: ast.AST = loop or script.index.scope(node).node
    return any(is_backward(where, c) or is_step(where, c) for where, c in reached(script, container, 2))


def _over_data(script: Script, loop: Loop) -> bool:
    if draws(script, loop):
        return True
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    node: ast.expr = loop.iter
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return kind(script, node) == "loader" or words.says(words.LOADED, dotted(node))


def _persists_over_calls(script: Script, node: ast.AST, target: str, kept: ast.expr) -> bool:
    """self.total += loss in a function that makes one step: it is called again and again."""
    scope = script.index.scope(node)
    if scope.kind != "function" or scope.name == "__init__" or loops_around(script, node):
        return False
    base = target.split("[", 1)[0]
    if not base.startswith("self.") and not any(b.how == "global" for b in scope.bindings.get(base, ())):
        caller_loops = any(True for call in calls_in(script, node) for _ in repeated_in(script, call))
        if not (caller_loops and base not in scope.bindings):
            return False
    if base.startswith("self.") and any(
        b.scope is scope and b.how == "assign" and _resets(b.value, base) for b in bindings(script, base, scope)
    ):
        return False
    if scope.name == "training_step" and loss_like(script, kept):
        return True
    return any(is_backward(script, c) for c in scope.calls)


def _sum_is_needed(script: Script, target: str, node: ast.AST) -> bool:
    """Whether backward() runs on the accumulator, or on something computed from it."""
    scope = script.index.scope(node)
    base = target.split("[", 1)[0]
    for call in script.index.by_tail.get("backward", []) + script.index.by_tail.get("manual_backward", []):
        loss = backward_loss(script, call)
        if loss is None:
            continue
        same = script.index.scope(call) is scope or base.startswith("self.")
        if same and _derives(script, loss, base, 4):
            return True
    if any(
        isinstance(s.node, ast.Lambda) and mentions(script, s.node.body, base)
        for s in scope.walk()
        if s.kind == "lambda"
    ):
        return True  # a closure that is handed to the optimizer
    for call in script.index.by_tail.get("grad", ()):
        if call.args and script.index.scope(call) is scope and _derives(script, call.args[0], base, 4):
            return True
    return False


def _derives(script: Script, node: ast.AST, base: str, depth: int) -> bool:
    """Whether a value is made from what a name holds, through at most ``depth`` names of the same function."""
    return base in _made_from(script, node, depth)


def _made_from(script: Script, node: ast.AST, depth: int) -> set[str]:
    """The names that a value is made from, those of the same function followed, each once."""
    memo = script.memo.setdefault("made_from", {})
    if (node, depth) in memo:
        known: set[str] = memo[node, depth]
        return known
    found: set[str] = set()
    stack = [(node, depth)]
    while stack:
        item, left = stack.pop()
        for part in ast.walk(item):
            name = dotted(part) if isinstance(part, (ast.Name, ast.Attribute)) else ""
            if not name or name in found:
                continue
            found.add(name)
            if left and isinstance(part, ast.Name):
                for binding in script.index.scope(part).bindings.get(name, ()):
                    used = binding.how in ("assign", "augment", "unpack", "loop")
                    if binding.value is not None and used and not inside(part, binding.node):
                        stack.append((binding.value, left - 1))
    memo[node, depth] = found
    return found


def _is_reset_in(script: Script, target: str, node: ast.AST, loop: Loop | None) -> bool:
    """Whether a bounded container keeps it (deque(maxlen=...)), or it is emptied within the loop."""
    base = target.split("[", 1)[0]
    for origin in origins(script, _name_of(base), script.index.scope(node)):
        if isinstance(origin.node, ast.Call):
            short = dotted(origin.node.func).rsplit(".", 1)[-1]
            if short == "deque" and (
                len(origin.node.args) > 1 or any(k.arg == "maxlen" for k in origin.node.keywords)
            ):
                return True
            if short in ("set", "Tensor", "zeros", "empty"):
                return short != "zeros" or "[]" in target
    if loop is None:
        return False
    clears = [c for s in ("clear", "pop", "popleft", "popitem") for c in script.index.by_tail.get(s, ())]
    return any(dotted(c.func).rpartition(".")[0] == base and in_body(c, loop) for c in clears)


def _name_of(base: str) -> ast.expr:
    return ast.parse(base, mode="eval").body if all(p.isidentifier() for p in base.split(".")) else ast.Constant(None)


def _returns_sum(script: Script, target: str, node: ast.AST) -> bool:
    """Whether the function hands the sum to a caller that may run backward() on it."""
    scope = script.index.scope(node)
    base = target.split("[", 1)[0]
    if words.says(words.EVALUATION, scope.name) or any(
        c.func.attr == "eval" for c in scope.calls if isinstance(c.func, ast.Attribute)
    ):
        return False
    return any(r.value is not None and _derives(script, r.value, base, 3) for r in scope.returns)


def _mend(script: Script, kept: ast.expr, target: str, node: ast.AST) -> Fix | None:
    if not isinstance(kept, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
        return None  # the other branch keeps it, too
    scalar = is_scalar_loss(script, kept)
    method_name = ".item()" if scalar and not _needs_tensor(script, target, node) else ".detach()"
    return fix(f"keep {source(script, kept)}{method_name}", [insert(script, kept, method_name, after=True)])


def _needs_tensor(script: Script, target: str, node: ast.AST) -> bool:
    """Whether what is kept is used as a tensor later: torch.stack(losses), total.backward, total.item()."""
    base = target.split("[", 1)[0]
    scope = script.index.scope(node)
    scopes = scope.owner.walk() if base.startswith("self.") and scope.owner is not None else scope.walk()
    for item in scopes:
        for call in item.calls:
            name = script.index.qual(call)
            if name.startswith("torch.") and any(mentions(script, a, base) for a in call.args):
                return True
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr
                in CUTS
                | {
                    "cpu",
                    "mean",
                    "sum",
                    "to",
                    "float",
                }
                and call.func.attr not in ("index", "format", "sample")
                and mentions(script, call.func.value, base)
            ):
                return True
    return False


def is_scalar_loss(script: Script, node: ast.AST) -> bool:
    """Whether a value is a loss of one element: backward() without arguments runs on it, or a mean loss made it."""
    if isinstance(node, (ast.Name, ast.Attribute)) and has_backward(script, node):
        return True
    name = dotted(node)
    value: ast.AST | None = node
    if isinstance(node, (ast.Name, ast.Attribute)) and name:
        found = last_before(script, name, node)
        value = found.value if found is not None and found.how == "assign" else None
        if found is not None and found.how == "parameter":
            return words.tail(name) in ("loss", "total_loss")
    return value is not None and makes_scalar(script, value)


def makes_scalar(script: Script, value: ast.AST) -> bool:
    """Whether an expression makes a loss of one element: a mean or a sum, a loss function with a reduction."""
    if isinstance(value, ast.BinOp):
        return makes_scalar(script, value.left) or makes_scalar(script, value.right)
    if not isinstance(value, ast.Call):
        return False
    reduction = next((k.value for k in value.keywords if k.arg in ("reduction", "reduce")), None)
    if reduction is not None and not (
        isinstance(reduction, ast.Constant) and reduction.value in ("mean", "sum", "batchmean")
    ):
        return False
    short = dotted(value.func).rsplit(".", 1)[-1]
    if short in ("mean", "sum") and not value.args and not value.keywords:
        return True
    if script.index.qual(value).startswith("torch.nn.functional."):
        return is_loss_function(short)
    if kind(script, value.func) != "criterion":
        return False
    made = [o.node for o in origins(script, value.func) if isinstance(o.node, ast.Call)]
    return not any(k.arg in ("reduction", "reduce") and not _is_mean(k.value) for m in made for k in m.keywords)


def _is_mean(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("mean", "sum", "batchmean", True)

"""Gradients that flow where they must not: generator, teacher, target, hidden state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import (
    backward_loss,
    frozen,
    grad_off,
    is_backward,
    is_forward,
    modules_of,
    step_target,
)
from torch_doctor.lint.flow import (
    calls_in,
    constant,
    in_body,
    inside,
    keyword,
    last_before,
    loops_around,
    place,
    spelled,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, source
from torch_doctor.lint.graph import CUTS, is_loss_function
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


def graph_sources(script: Script, node: ast.AST) -> list[ast.Call]:
    """The module calls that a value's graph goes back to, cuts (.detach(), no_grad, .item()) honoured."""
    found: list[ast.Call] = []
    seen: set[object] = set()
    stack: list[ast.AST] = [node]
    while stack and len(seen) < 500:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item, ast.Call):
            stack += _through_call(script, item, found)
        elif isinstance(item, ast.Name):
            stack += _values_of(script, item)
        elif isinstance(item, ast.Attribute):
            if item.attr not in CUTS and not dotted(item).startswith("self."):
                stack.append(item.value)
        elif not isinstance(item, (ast.Compare, ast.Lambda)):
            stack += [c for c in ast.iter_child_nodes(item) if isinstance(c, ast.expr)]
    return sorted(found, key=place)


def _through_call(script: Script, call: ast.Call, found: list[ast.Call]) -> list[ast.AST]:
    """What a call's result has its graph from; a module call itself goes into ``found``."""
    if is_forward(script, call):
        if grad_off(script, call):
            return []
        found.append(call)
        return [*call.args, *(k.value for k in call.keywords)]
    short = dotted(call.func).rsplit(".", 1)[-1]
    if short in CUTS or (short in ("float", "int", "len") and isinstance(call.func, ast.Name)):
        return []
    inner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*inner, *call.args, *(k.value for k in call.keywords)]


def _values_of(script: Script, node: ast.Name) -> list[ast.AST]:
    """The expressions that a name's value was made from, in the same function."""
    item = last_before(script, node.id, node)
    if item is None or item.value is None or item.how not in ("assign", "unpack", "augment"):
        return []
    if item.scope is not script.index.scope(node) or place(item.node) >= place(node):
        return []
    if (
        item.how == "unpack"
        and item.position == 1
        and isinstance(item.value, ast.Call)
        and dotted(item.value.func).rsplit(".", 1)[-1] in ("max", "min", "topk", "sort")
    ):
        return []
    found: list[ast.AST] = [item.value]
    # values[mask] = net(x): what was put into a tensor that was made before
    stored = item.scope.bindings.get(f"{item.name}[]", ()) if item.how == "assign" else ()
    found += [b.value for b in stored if b.value is not None and place(item.node) < place(b.node) < place(node)]
    if item.how == "augment":
        earlier = [b for b in item.scope.bindings[item.name] if place(b.node) < place(item.node)]
        found += [b.value for b in earlier[-3:] if b.value is not None and b.how in ("assign", "augment")]
    return found


@check("GRD105", "generator-not-detached")
def generator_not_detached(script: Script) -> Iterator[Finding]:
    """The discriminator's backward() runs through the generator.

    What it checks:
        A loss over D(G(z)) without detach() or no_grad, whose backward() is followed by the step of an optimizer that
        has the discriminator's parameters, by its making or its name.
    Why it matters:
        The generator's graph is walked and freed: the generator's own backward() fails with "Trying to backward
        through the graph a second time", or, with retain_graph, costs a third of the speed and spoils its gradients.
    Example:
        Bad::

            def train(G, D, loader, optG, optD, loss_fn):
                for x, z in loader:
                    fake = G(z)
                    optD.zero_grad()
                    loss_d = loss_fn(D(x)) - loss_fn(D(fake))
                    loss_d.backward()
                    optD.step()
                    optG.zero_grad()
                    loss_g = loss_fn(D(fake))
                    loss_g.backward()
                    optG.step()

        Good::

            def train(G, D, loader, optG, optD, loss_fn):
                for x, z in loader:
                    fake = G(z)
                    optD.zero_grad()
                    loss_d = loss_fn(D(x)) - loss_fn(D(fake.detach()))
                    loss_d.backward()
                    optD.step()
                    optG.zero_grad()
                    loss_g = loss_fn(D(fake))
                    loss_g.backward()
                    optG.step()
    Fix:
        D(fake.detach()) in the discriminator's step.
    References:
        https://docs.pytorch.org/tutorials/beginner/dcgan_faces_tutorial.html
    """
    seen: set[ast.AST] = set()
    for call in [*script.index.by_tail.get("backward", ()), *script.index.by_tail.get("manual_backward", ())]:
        if not is_backward(script, call):
            continue
        step = _next_step(script, call)
        target = step_target(script, step) if step is not None else None
        loss = backward_loss(script, call)
        if target is None or loss is None or _steps_others(script, call, target):
            continue
        for judge, maker in _nested(script, loss):
            if judge in seen or not _steps_only(script, target, judge, maker):
                continue
            if frozen(script, spelled(maker.func)) or not _is_generator(script, maker):
                continue
            seen.add(judge)
            yield finding(
                script,
                judge,
                ERROR if _used_again(script, judge, call) else WARNING,
                f"{source(script, judge)} carries the graph of {source(script, maker)} into the discriminator's step",
                f"{source(script, judge.func)}({source(script, judge.args[0])}.detach())",
            )


def _next_step(script: Script, call: ast.Call) -> ast.Call | None:
    scope = script.index.scope(call)
    later = [c for c in scope.calls if place(c) > place(call) and step_target(script, c) is not None]
    return min(later, key=place) if later else None


def _steps_others(script: Script, call: ast.Call, target: ast.AST) -> bool:
    """Whether another optimizer is stepped for the same backward(): both modules are trained by it."""
    scope = script.index.scope(call)
    later = [place(c) for c in scope.calls if place(c) > place(call) and is_backward(script, c)]
    stop = min(later, default=(1 << 30, 0))
    steps = [step_target(script, c) for c in scope.calls if place(call) < place(c) < stop]
    return any(s is not None and spelled(s) != spelled(target) for s in steps)


def _nested(script: Script, loss: ast.AST) -> Iterator[tuple[ast.Call, ast.Call]]:
    """(D(...), G(...)) for each judge in a loss that is fed by another module's output."""
    for judge in graph_sources(script, loss):
        name = spelled(judge.func)
        for argument in judge.args:
            for maker in graph_sources(script, argument):
                other = spelled(maker.func)
                if other and other != name and maker is not judge:
                    yield judge, maker
                    break


def _steps_only(script: Script, target: ast.AST, judge: ast.Call, maker: ast.Call) -> bool:
    """Whether an optimizer has the judge's parameters and not the maker's."""
    has = modules_of(script, target)
    d, g = spelled(judge.func).split("(")[0], spelled(maker.func).split("(")[0]
    if has:
        return any(words.tail(d) == words.tail(h) for h in has) and not any(
            words.tail(g) == words.tail(h) for h in has
        )
    name = words.tail(_key_or_name(spelled(target))).lower()
    for word in ("optimizer", "optimiser", "optim", "opt", "_"):
        name = name.replace(word, "")
    if not name:
        return False
    d, g = _key_or_name(d), _key_or_name(g)
    first, other = _short_name(d), _short_name(g)
    fits = name[0] == first[:1] and (
        name.startswith(first) or first.startswith(name) or words.says(words.DISCRIMINATOR, d)
    )
    return fits and not (
        other and name.startswith(other[: len(name)]) and other[:1] == name[0] and first[:1] != other[:1]
    )


def _key_or_name(name: str) -> str:
    """``optimizers[D]`` as D: in a container the key says what the thing is."""
    holder, _, key = name.removesuffix("]").partition("[")
    return key if key and not key.isdigit() else holder


def _short_name(name: str) -> str:
    """netD, model_D and D_net as d."""
    short = words.tail(name).lower().strip("_").removeprefix("net").removeprefix("model").replace("_", "")
    return short or words.tail(name).lower()


_GENERATOR = re.compile(
    r"(?:.*_)?(?:g|gen|generator|netg|gnet|generator_\w+|g_\w+|gen_\w+|decoder|encoder|actor|policy|mapper)\w{0,3}"
)


def _is_generator(script: Script, maker: ast.Call) -> bool:
    """Whether a module is one that is trained by another optimizer: by the optimizers of the file, or by its name."""
    name = words.tail(spelled(maker.func).removesuffix(".forward"))
    if _GENERATOR.fullmatch(_key_or_name(name).lower().strip("_")):
        return True
    for call in script.index.calls:
        if (
            script.index.qual(call).startswith("torch.optim.")
            and kind(script, call) == "optimizer"
            and any(words.tail(h) == name for h in modules_of(script, call))
        ):
            return True
    return False


def _used_again(script: Script, judge: ast.Call, backward: ast.Call) -> bool:
    """Whether the same generated value goes into a later backward: that one then fails on a freed graph."""
    names = {n.id for a in judge.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    scope = script.index.scope(backward)
    stop = [place(b.node) for n in names for b in scope.bindings.get(n, ()) if place(b.node) > place(backward)]
    return any(
        place(backward) < place(use) < min(stop, default=(1 << 30, 0))
        for n in names
        for use in scope.names.get(n, ())
    )


@check("GRD106", "teacher-not-detached")
def teacher_not_detached(script: Script) -> Iterator[Finding]:
    """A teacher or target network is run with autograd on, and its output goes into the loss.

    What it checks:
        The output of a module named teacher, target network or EMA model in a loss that backward() runs on, outside
        no_grad(), without detach(), where nothing freezes its parameters.
    Why it matters:
        The teacher's activations are kept and its gradients computed for nothing: memory, over 30 % of the speed; a
        target network that is trained towards the prediction spoils the learning.
    Example:
        Bad::

            import torch.nn.functional as F
            def train(student, teacher, loader, opt):
                for x in loader:
                    opt.zero_grad()
                    loss = F.mse_loss(student(x), teacher(x))
                    loss.backward()
                    opt.step()

        Good::

            import torch
            import torch.nn.functional as F
            def train(student, teacher, loader, opt):
                for x in loader:
                    opt.zero_grad()
                    with torch.no_grad():
                        goal = teacher(x)
                    loss = F.mse_loss(student(x), goal)
                    loss.backward()
                    opt.step()
    Fix:
        with torch.no_grad(): around the teacher's forward, or .detach() on its output.
    References:
        https://docs.pytorch.org/tutorials/beginner/knowledge_distillation_tutorial.html
    """
    seen: set[ast.AST] = set()
    for call in script.index.by_tail.get("backward", ()):
        loss = backward_loss(script, call) if is_backward(script, call) else None
        if loss is None:
            continue
        step = _next_step(script, call)
        target = step_target(script, step) if step is not None else None
        for maker in graph_sources(script, loss):
            name = dotted(maker.func)
            if maker in seen or frozen(script, name.split("(")[0].removesuffix(".forward")):
                continue
            if not (words.says(words.TEACHER, name) or words.says(words.TARGET_NET, name)):
                continue
            if target is not None and any(words.tail(h) == words.tail(name) for h in modules_of(script, target)):
                continue
            seen.add(maker)
            yield finding(
                script,
                maker,
                WARNING,
                f"{source(script, maker)} is run with its graph and its output goes into the loss",
                "with torch.no_grad(): around it, or .detach() on its output",
            )


_TARGET_NAME = ("target", "expected", "td_", "bootstrap", "returns", "y_", "q_next", "next_q")


@check("GRD107", "target-not-detached")
def target_not_detached(script: Script) -> Iterator[Finding]:
    """The target of a regression is computed by the network that is trained, with its graph.

    What it checks:
        mse_loss, smooth_l1_loss, huber_loss and their classes, whose target is a name for a target (target,
        expected, ...) or holds a discount, and goes back to a module call outside no_grad() and without detach().
    Why it matters:
        The gradient flows into the target, too: the bootstrapped value moves towards the prediction and learning
        diverges.
    Example:
        Bad::

            import torch.nn.functional as F
            def step(net, opt, s, a, r, s2, gamma):
                target = r + gamma * net(s2).max(1)[0]
                loss = F.mse_loss(net(s).gather(1, a), target)
                opt.zero_grad()
                loss.backward()
                opt.step()

        Good::

            import torch.nn.functional as F
            def step(net, opt, s, a, r, s2, gamma):
                target = r + gamma * net(s2).max(1)[0].detach()
                loss = F.mse_loss(net(s).gather(1, a), target)
                opt.zero_grad()
                loss.backward()
                opt.step()
    Fix:
        Compute the target under torch.no_grad(), or detach() it.
    References:
        https://docs.pytorch.org/tutorials/intermediate/reinforcement_q_learning.html
    """
    yield from _advantages(script)
    if "gamma" not in script.text and "discount" not in script.text:
        return
    for call, value in _targets_of(script):
        name = dotted(value).lower()
        if not _is_bootstrap(script, value, name):
            continue
        for maker in graph_sources(script, value):
            called_name = dotted(maker.func)
            if words.says(words.TEACHER, called_name) or words.says(words.TARGET_NET, called_name):
                continue  # GRD106 says it
            if _trained_here(script, call):
                yield finding(
                    script,
                    maker,
                    WARNING,
                    f"the target {source(script, value)} carries the graph of {source(script, maker)}",
                    "Compute it under torch.no_grad(), or detach() it",
                )
                break


def _targets_of(script: Script) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(where, target) of every regression: a loss function's second argument, or what is subtracted in a square."""
    for call in script.index.calls:
        if len(call.args) >= 2 and _regression(script, call):
            yield call, call.args[1]
    for short in ("pow", "square", "abs"):
        for call in script.index.by_tail.get(short, ()):
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            if script.index.qual(call).startswith("torch.") and call.args:
                base = call.args[0]
            yield from ((call, side) for side in _difference(script, base))
    for statement in script.index.statements[ast.Assign]:
        for item in ast.walk(statement):
            if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Pow):
                yield from ((statement, side) for side in _difference(script, item.left))


def _difference(script: Script, node: ast.expr | None) -> list[ast.expr]:
    """The two sides of a difference, also where it has a name; [] for anything else."""
    if isinstance(node, ast.Name):
        found = last_before(script, node.id, node)
        same = found is not None and found.how == "assign" and found.scope is script.index.scope(node)
        node = found.value if found is not None and same else None
    is_one = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return [node.left, node.right] if is_one and isinstance(node, ast.BinOp) else []


_ADVANTAGE = re.compile(r"(?:.*_)?(?:adv|advs|advantages?|td_errors?|delta|deltas)(?:_.*)?")


def _advantages(script: Script) -> Iterator[Finding]:
    """``-log_prob * advantage`` where the advantage goes back to the critic's forward."""
    for call in script.index.by_tail.get("backward", ()):
        loss = backward_loss(script, call) if is_backward(script, call) else None
        for product in _products(script, loss) if loss is not None else ():
            sides = [product.left, product.right]
            weights = [s for s in sides if isinstance(s, ast.Name) and _ADVANTAGE.fullmatch(s.id.lower())]
            policy = [s for s in sides if "log_p" in ast.dump(s).lower() or "logp" in ast.dump(s).lower()]
            makers = graph_sources(script, weights[0]) if weights and policy and weights[0] not in policy else []
            if makers:
                yield finding(
                    script,
                    product,
                    WARNING,
                    f"{source(script, weights[0])} carries {source(script, makers[0])}'s graph into the policy loss",
                    f"{source(script, weights[0])}.detach()",
                )
                return


def _products(script: Script, loss: ast.AST) -> Iterator[ast.BinOp]:
    """The products within a loss, names followed in the same function."""
    stack: list[ast.AST] = [loss]
    seen: set[ast.AST] = set()
    while stack and len(seen) < 200:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult):
            yield item
        if isinstance(item, ast.Name):
            stack += _values_of(script, item)
        stack += list(ast.iter_child_nodes(item))


def _regression(script: Script, call: ast.Call) -> bool:
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    if name.startswith("torch.nn.functional."):
        return short in ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")
    return kind(script, call.func) == "criterion" and not is_loss_function(short)


def _is_bootstrap(script: Script, value: ast.AST, name: str) -> bool:
    found = last_before(script, dotted(value), value) if isinstance(value, ast.Name) else None
    made = found.value if found is not None and found.value is not None and found.how == "assign" else value
    words_in = {words.tail(dotted(n)).lower() for n in ast.walk(made) if isinstance(n, (ast.Name, ast.Attribute))}
    discounted = any(w in words_in for w in ("gamma", "discount", "discount_factor"))
    return discounted and isinstance(made, (ast.BinOp, ast.Call))


def _trained_here(script: Script, call: ast.AST) -> bool:
    scope: Scope | None = script.index.scope(call)
    return scope is not None and any(is_backward(script, c) for c in scope.calls)


@check("GRD108", "hidden-state-not-detached")
def hidden_state_not_detached(script: Script) -> Iterator[Finding]:
    """A recurrent state is carried from batch to batch with its graph.

    What it checks:
        out, h = model(x, h) in a loop that runs backward() at each round, where h is bound before the loop and never
        detached or made anew in it.
    Why it matters:
        The second backward() goes back into the first batch's graph: "Trying to backward through the graph a second
        time".
    Example:
        Bad::

            def train(model, loader, opt, loss_fn, h):
                for x, y in loader:
                    opt.zero_grad()
                    out, h = model(x, h)
                    loss = loss_fn(out, y)
                    loss.backward()
                    opt.step()

        Good::

            def train(model, loader, opt, loss_fn, h):
                for x, y in loader:
                    opt.zero_grad()
                    h = h.detach()
                    out, h = model(x, h)
                    loss = loss_fn(out, y)
                    loss.backward()
                    opt.step()
    Fix:
        h = h.detach() at the top of the loop; for an LSTM each of the two states.
    References:
        https://docs.pytorch.org/docs/stable/notes/faq.html
    """
    yield from _kept_by_module(script)
    for assign in script.index.statements[ast.Assign]:
        value, targets = getattr(assign, "value", None), getattr(assign, "targets", [])
        if not isinstance(value, ast.Call) or len(targets) != 1 or not isinstance(targets[0], (ast.Tuple, ast.List)):
            continue
        if not is_forward(script, value):
            continue
        loop = next(iter(loops_around(script, assign)), None)
        given = {dotted(a) for a in [*value.args, *(k.value for k in value.keywords)]}
        for target in targets[0].elts:
            name = dotted(target)
            if name and name in given and loop is not None and _carried(script, name, assign, loop):
                yield finding(
                    script,
                    assign,
                    ERROR,
                    f"{name} carries its graph into the next round: the second backward() fails",
                    f"{name} = {name}.detach() at the top of the loop",
                )


def _kept_by_module(script: Script) -> Iterator[Finding]:
    """``out, self.h = self.rnn(x, self.h)`` in forward(), and nothing in the file ever detaches or resets it."""
    if not script.index.by_tail.get("backward"):
        return
    for scope in script.index.functions:
        if scope.name != "forward":
            continue
        for name, bound in scope.bindings.items():
            for item in bound if name.startswith("self.") and name.count(".") == 1 else ():
                call = item.value
                if item.how != "unpack" or not isinstance(call, ast.Call) or not is_forward(script, call):
                    continue
                given = {dotted(n) for a in call.args for n in ast.walk(a) if isinstance(n, ast.Attribute)}
                if name in given and not _reset_anywhere(script, name, item.node):
                    yield finding(
                        script,
                        item.node,
                        ERROR,
                        f"{name} carries its graph into the next batch: the second backward() fails",
                        f"{name} = {name}.detach() before it is used",
                    )


def _reset_anywhere(script: Script, name: str, node: ast.AST) -> bool:
    short = name.removeprefix("self.")
    for attribute in script.index.attributes.get(short, ()):
        if isinstance(attribute.ctx, ast.Store) and not inside(attribute, node):
            owner = script.index.scope(attribute)
            if owner.name != "__init__":
                return True
        parent = script.index.parent.get(attribute)
        if isinstance(parent, ast.Attribute) and parent.attr in ("detach", "detach_", "data", "zero_"):
            return True
        if isinstance(parent, (ast.GeneratorExp, ast.comprehension, ast.Call)) and not inside(attribute, node):
            return True
    return False


def _carried(script: Script, name: str, assign: ast.AST, loop: ast.AST) -> bool:
    scope = script.index.scope(assign)
    for item in scope.bindings.get(name, ()):
        if item.node is not assign and in_body(item.node, loop):
            return False
    for call in calls_in(script, loop):
        if dotted(call.func) in (f"{name}.detach_", f"{name}.zero_"):
            return False
    runs = [c for c in calls_in(script, loop) if is_backward(script, c)]
    if not runs or any(loops_around(script, c)[:1] != [loop] for c in runs):
        return False
    # with a step between, retain_graph=True fails too: the step changed what the old graph saved
    steps = any(step_target(script, c) is not None for c in calls_in(script, loop))
    for run in runs:
        retain = keyword(run, "retain_graph")
        if retain is not None and constant(script, retain) is not False and not steps:
            return False
        if any(isinstance(p, ast.If) and inside(p, loop) for p in script.index.ancestors(run)):
            return False
    return not any(grad_off(script, c) for c in calls_in(script, assign) if is_forward(script, c))

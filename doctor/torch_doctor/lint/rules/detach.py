"""Gradients that flow where they must not: generator, teacher, target network."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import backward_loss, frozen, is_backward, is_forward, modules_of, step_target
from torch_doctor.lint.flow import (
    last_before,
    place,
    spelled,
)
from torch_doctor.lint.found import ERROR, WARNING, finding, source
from torch_doctor.lint.grad_mode import grad_off
from torch_doctor.lint.graph import CUTS
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
            stack += values_of(script, item)
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


def values_of(script: Script, node: ast.Name) -> list[ast.AST]:
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

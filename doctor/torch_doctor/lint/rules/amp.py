"""Mixed precision: the old API, GradScaler out of order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.events import is_backward, step_target, uses
from torch_doctor.lint.flow import calls_in, keyword, loops_around, place, reached, receiver
from torch_doctor.lint.found import ERROR, WARNING, before, finding, fix, insert, replace, source, span
from torch_doctor.lint.kinds import kind
from torch_doctor.model import Edit, Finding, Fix
from torch_doctor.registry import check

#: torch.cuda.amp.X and torch.cpu.amp.X -> torch.amp.X, deprecated since torch 2.4
OLD = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
_DEVICE_FIRST = frozenset({"autocast", "GradScaler"})


@check("AMP101", "old-amp-api", tags={"fixable", "deprecated"})
def old_amp_api(script: Script) -> Iterator[Finding]:
    """torch.cuda.amp is used instead of torch.amp.

    What it checks:
        Imports and uses of autocast, GradScaler, custom_fwd and custom_bwd of torch.cuda.amp and torch.cpu.amp, but
        for those that are the fallback for an older torch.
    Why it matters:
        Deprecated since PyTorch 2.4: each use prints a FutureWarning, and it works on one kind of device only.
    Example:
        Bad::

            from torch.cuda.amp import autocast
            with autocast():
                pass

        Good::

            from torch.amp import autocast
            with autocast("cuda"):
                pass
    Fix:
        torch.amp.autocast("cuda"), torch.amp.GradScaler("cuda"). --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/amp.html
    """
    if "amp" not in script.text:
        return
    for node in script.index.import_nodes:
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES and not node.level:
            names = [a for a in node.names if a.name in OLD]
            if names and not _fallback(script, node):
                shown = ", ".join(a.name for a in names)
                device = _MODULES[node.module]
                yield finding(
                    script,
                    node,
                    WARNING,
                    f"{shown} of {node.module}: deprecated since torch 2.4",
                    f'from torch.amp import {shown}; the device comes first: autocast("{device}")',
                    fix=_import_fix(script, node, device),
                )
    for short in OLD:
        for attribute in script.index.attributes.get(short, ()):
            written = dotted(attribute)
            name = script.index.resolve(written)
            module = name.rpartition(".")[0]
            if module in _MODULES and _is_used(script, attribute) and not _fallback(script, attribute):
                yield finding(
                    script,
                    attribute,
                    WARNING,
                    f"{name} is deprecated since torch 2.4",
                    f'torch.amp.{short}("{_MODULES[module]}")'
                    if short in _DEVICE_FIRST
                    else f'torch.amp.{short}(device_type="{_MODULES[module]}")',
                    fix=_use_fix(script, attribute, short, _MODULES[module]),
                )


def _is_used(script: Script, node: ast.AST) -> bool:
    """Called, or a decorator: an annotation or isinstance() warns of nothing."""
    parent = script.index.parent.get(node)
    if isinstance(parent, ast.Call):
        return parent.func is node
    return isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list


_MODULES = {
    "torch.cuda.amp": "cuda",
    "torch.cpu.amp": "cpu",
    "torch.cuda.amp.autocast_mode": "cuda",
    "torch.cuda.amp.grad_scaler": "cuda",
}


def _fallback(script: Script, node: ast.AST) -> bool:
    """Within try/except ImportError, or a condition on a version or hasattr: for an older torch on purpose."""
    for item in script.index.ancestors(node):
        if isinstance(item, ast.Try):
            for handler in item.handlers:
                caught = ast.dump(handler.type) if handler.type is not None else ""
                if any(
                    word in caught for word in ("ImportError", "AttributeError", "ModuleNotFoundError", "Exception")
                ):
                    return True
        if isinstance(item, (ast.If, ast.IfExp)) and any(
            word in ast.dump(item.test).lower() for word in ("version", "hasattr", "torch_", "_ge_", "available")
        ):
            return True
    return False


def _import_fix(script: Script, node: ast.ImportFrom, device: str) -> Fix | None:
    """The import and every call of what it brings in."""
    if any(a.name not in OLD or a.name == "*" for a in node.names) or not _one_line_module(script, node):
        return None
    edits = [_module_edit(script, node)]
    for item in node.names:
        name = item.asname or item.name
        scopes = script.index.module.walk()
        for use in [n for s in scopes for n in s.names.get(name, ())]:
            edit = _call_edit(script, use, item.name, device)
            if edit is None:
                return None
            edits += edit
    return fix("import from torch.amp", edits)


def _one_line_module(script: Script, node: ast.ImportFrom) -> bool:
    line = script.lines[node.lineno - 1][:200].encode()[node.col_offset :].decode(errors="replace")
    return line.startswith(f"from {node.module} import")


def _module_edit(script: Script, node: ast.ImportFrom) -> Edit:
    start = node.col_offset + len("from ")
    return span(script, (node.lineno, start), (node.lineno, start + len(node.module or "")), "torch.amp")


def _use_fix(script: Script, attribute: ast.Attribute, short: str, device: str) -> Fix | None:
    if not dotted(attribute).startswith("torch."):
        return None
    edits = _call_edit(script, attribute, short, device)
    if edits is None:
        return None
    if isinstance(script.index.parent.get(attribute), ast.FunctionDef):
        return fix(
            f"use torch.amp.{short}", [replace(script, attribute, f'torch.amp.{short}(device_type="{device}")')]
        )
    return fix(f"use torch.amp.{short}", [replace(script, attribute, f"torch.amp.{short}"), *edits])


def _call_edit(script: Script, use: ast.AST, short: str, device: str) -> list[Edit] | None:
    """The device as the first argument of the call that a use is the function of; None where it is no call."""
    call = script.index.parent.get(use)
    if isinstance(call, ast.FunctionDef) and use in call.decorator_list and short not in _DEVICE_FIRST:
        # @custom_fwd of a method: the new one wants its device
        return [insert(script, use, f'(device_type="{device}")', after=True)]
    if not isinstance(call, ast.Call) or call.func is not use:
        return None
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    if short not in _DEVICE_FIRST:
        if call.args:
            return None
        given = f'device_type="{device}"'
        return [_first_argument(script, call, given)]
    if not call.args:
        return [_first_argument(script, call, f'"{device}"')]
    if short == "autocast":
        # autocast(enabled, dtype, cache_enabled) becomes autocast(device_type, dtype, enabled, cache_enabled)
        names = ("enabled", "dtype", "cache_enabled")
        if len(call.args) > len(names):
            return None
        edits = [insert(script, a, f"{n}=") for n, a in zip(names, call.args, strict=False)]
        return [insert(script, call.args[0], f'"{device}", enabled='), *edits[1:]]
    return [insert(script, call.args[0], f'"{device}", ')]


def _first_argument(script: Script, call: ast.Call, text: str) -> Edit:
    stop = (call.func.end_lineno or call.lineno, call.func.end_col_offset or 0)
    if call.keywords:
        return insert(script, call.keywords[0], f"{text}, ")
    # between the parentheses: the closing one is the last character of the call
    at = (call.end_lineno or stop[0], (call.end_col_offset or 0) - 1)
    return span(script, at, at, text)


@check("AMP102", "clip-before-unscale", tags={"fixable"})
def clip_before_unscale(script: Script) -> Iterator[Finding]:
    """Gradients are clipped while GradScaler's scale is still on them.

    What it checks:
        clip_grad_norm_ or clip_grad_value_ between scaler.scale(loss).backward() and scaler.step(), without
        scaler.unscale_(optimizer) before it.
    Why it matters:
        The gradients are some 65536 times too large when they are clipped: every step is clipped to almost nothing.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn, scaler):
                for x, y in loader:
                    opt.zero_grad()
                    scaler.scale(loss_fn(model(x), y)).backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(opt)
                    scaler.update()

        Good::

            import torch
            def train(model, loader, opt, loss_fn, scaler):
                for x, y in loader:
                    opt.zero_grad()
                    scaler.scale(loss_fn(model(x), y)).backward()
                    scaler.unscale_(opt)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(opt)
                    scaler.update()
    Fix:
        scaler.unscale_(optimizer) before the clipping. --fix --unsafe-fixes does it.
    References:
        https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
    """
    for short in ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"):
        for call in script.index.by_tail.get(short, ()):
            scope = script.index.scope(call)
            loops = loops_around(script, call)
            container = loops[0] if loops else scope.node
            calls = calls_in(script, container)
            scaled = [c for c in calls if _scales(script, c) and place(c) < place(call)]
            steps = [c for c in calls if _scaler_method(script, c, "step") and place(c) > place(call)]
            if not scaled or not steps:
                continue
            if any(dotted(c.func).endswith("unscale_") for _, c in reached(script, container, 2) if True):
                unscales = [c for c in calls if dotted(c.func).endswith("unscale_")]
                if not unscales or any(place(c) < place(call) for c in unscales):
                    continue
            yield finding(
                script,
                call,
                ERROR,
                f"{source(script, call.func)} clips gradients that GradScaler has scaled",
                "scaler.unscale_(optimizer) before it",
                fix=_unscale_before(script, call, steps),
            )


def _unscale_before(script: Script, call: ast.Call, steps: list[ast.Call]) -> Fix | None:
    """scaler.unscale_(optimizer) as a statement before the clipping, where one optimizer is stepped."""
    statement = script.index.statement(call)
    step = steps[0]
    scaler = receiver(step)
    plain = (
        len(steps) == 1
        and len(step.args) == 1
        and not step.keywords
        and script.index.scope(step) is (script.index.scope(call))
    )
    if not plain or scaler is None or not isinstance(statement, (ast.Expr, ast.Assign)):
        return None
    text = f"{script.segment(scaler)}.unscale_({script.segment(step.args[0])})"
    return fix("unscale before clipping", [before(script, statement, text)], safe=False)


def _scaler_method(script: Script, call: ast.Call, name: str) -> bool:
    value = receiver(call)
    return value is not None and dotted(call.func).endswith(f".{name}") and kind(script, value) == "scaler"


def _scales(script: Script, call: ast.Call) -> bool:
    value = receiver(call)
    return is_backward(script, call) and isinstance(value, ast.Call) and _scaler_method(script, value, "scale")


@check("AMP103", "scaler-bypassed")
def scaler_bypassed(script: Script) -> Iterator[Finding]:
    """The loss is scaled by GradScaler and the optimizer is stepped without it, or the scale is never updated.

    What it checks:
        A block with scaler.scale(loss).backward() and optimizer.step() on the optimizer itself; one with
        scaler.step() and no scaler.update() anywhere in the file.
    Why it matters:
        The optimizer takes gradients that are some 65536 times too large; or the scale stays where it overflowed.
    Example:
        Bad::

            def train(model, loader, opt, loss_fn, scaler):
                for x, y in loader:
                    opt.zero_grad()
                    scaler.scale(loss_fn(model(x), y)).backward()
                    opt.step()

        Good::

            def train(model, loader, opt, loss_fn, scaler):
                for x, y in loader:
                    opt.zero_grad()
                    scaler.scale(loss_fn(model(x), y)).backward()
                    scaler.step(opt)
                    scaler.update()
    Fix:
        scaler.step(optimizer) and then scaler.update().
    References:
        https://docs.pytorch.org/docs/stable/notes/amp_examples.html
    """
    for call in script.index.by_tail.get("backward", ()):
        if not _scales(script, call):
            continue
        scope = script.index.scope(call)
        loops = loops_around(script, call)
        container = loops[0] if loops else scope.node
        calls = calls_in(script, container)
        direct = [c for c in calls if step_target(script, c) is receiver(c) and step_target(script, c) is not None]
        by_scaler = any(_scaler_method(script, c, "step") for c in calls)
        unscaled = any(dotted(c.func).endswith("unscale_") for c in calls)
        if direct and not by_scaler and not unscaled:
            yield finding(
                script,
                direct[0],
                ERROR,
                f"{source(script, direct[0])} takes gradients that GradScaler has scaled",
                "scaler.step(optimizer); scaler.update()",
            )
        elif by_scaler and not any(
            kind(script, receiver(c) or c) == "scaler" for c in script.index.by_tail.get("update", ())
        ):
            step = next(c for c in calls if _scaler_method(script, c, "step"))
            if not any(_gives_away(script, c) for c in calls):
                yield finding(
                    script,
                    step,
                    WARNING,
                    "scaler.update() is never called: the scale does not adapt",
                    "scaler.update() after scaler.step()",
                )


def _gives_away(script: Script, call: ast.Call) -> bool:
    return any(kind(script, a) == "scaler" for a in [*call.args, *(k.value for k in call.keywords)])


@check("AMP104", "scaler-missing")
def scaler_missing(script: Script) -> Iterator[Finding]:
    """A loss is computed in float16 and backward() runs without a GradScaler.

    What it checks:
        autocast in float16 (the default on CUDA) around a forward in a loop with loss.backward() and an optimizer's
        step, in a file that knows no scaler and no framework that has one.
    Why it matters:
        Small gradients become zero in float16: training stalls without a word. bfloat16 needs no scaler.
    Example:
        Bad::

            import torch
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()

        Good::

            import torch
            def train(model, loader, opt, loss_fn):
                for x, y in loader:
                    opt.zero_grad()
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = loss_fn(model(x), y)
                    loss.backward()
                    opt.step()
    Fix:
        scaler = torch.amp.GradScaler("cuda"), or dtype=torch.bfloat16 where the GPU has it.
    References:
        https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
    """
    if "caler" in script.text or "autocast" not in script.text:
        return
    if uses(script, "accelerate", "lightning", "pytorch_lightning", "deepspeed", "apex"):
        return
    for statement in script.index.statements[ast.With]:
        if not any(_half(script, i.context_expr) for i in getattr(statement, "items", ())):
            continue
        loop = next(iter(loops_around(script, statement)), None)
        calls = calls_in(script, loop) if loop is not None else []
        runs = [c for c in calls if is_backward(script, c) and not c.args]
        if runs and any(step_target(script, c) is not None for c in calls):
            yield finding(
                script,
                statement,
                WARNING,
                "float16 without a GradScaler: small gradients become zero",
                'scaler = torch.amp.GradScaler("cuda"), or dtype=torch.bfloat16',
            )


def _half(script: Script, node: ast.AST) -> bool:
    """Whether a context is autocast in float16 on CUDA, for certain."""
    if not isinstance(node, ast.Call) or keyword(node, "enabled") is not None:
        return False
    name = script.index.qual(node)
    dtype = keyword(node, "dtype")
    if dtype is not None:
        return name.endswith("autocast") and script.index.qual(dtype) in ("torch.float16", "torch.half")
    if name == "torch.cuda.amp.autocast":
        return not node.args
    device = node.args[0] if node.args else keyword(node, "device_type")
    cuda = isinstance(device, ast.Constant) and device.value == "cuda" and len(node.args) <= 1
    return name in ("torch.autocast", "torch.amp.autocast") and cuda

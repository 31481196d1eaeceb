"""Checkpoints and the prefixes of wrappers: saved with them, loaded without, or hidden by strict=False."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint import words
from torch_doctor.lint.events import uses
from torch_doctor.lint.flow import (
    argument_for,
    bindings,
    call_sites,
    constant,
    keyword,
    last_before,
    origins,
    place,
    receiver,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, source
from torch_doctor.lint.kinds import WRAPPERS, kind
from torch_doctor.model import Finding
from torch_doctor.registry import check


def wrapper_of(script: Script, node: ast.AST, depth: int = 4, sometimes: bool = False) -> str:
    """``module.`` or ``_orig_mod.``: the prefix that the state_dict of an expression has; "" where none, or unknown.

    Only where the last binding before is a wrapper for certain: one under a condition that is not shared is unknown,
    but for ``sometimes``.
    """
    if depth == 0:
        return ""
    if isinstance(node, ast.Call):
        name = script.index.qual(node)
        if name in WRAPPERS:
            return WRAPPERS[name]
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "to", "train", "eval"):
            return wrapper_of(script, node.func.value, depth - 1, sometimes)
        return ""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ""
    name = dotted(node)
    if name.rsplit(".", 1)[-1] in ("module", "_orig_mod"):
        return ""
    if name.startswith("self."):
        found = [
            b for b in bindings(script, name, script.index.scope(node)) if b.how == "assign" and b.value is not None
        ]
        last = found[-1] if found and not _runs_before(script, node, found[-1].node) else None
    else:
        item = last_before(script, name, node)
        last = item if item is not None and item.how == "assign" else None
        if item is not None and item.how == "parameter":
            return _wrapped_by_callers(script, node, depth)
    if last is None or last.value is None or (not sometimes and _conditional(script, last.node, node)):
        return ""
    return wrapper_of(script, last.value, depth - 1, sometimes)


def _runs_before(script: Script, node: ast.AST, wrapping: ast.AST) -> bool:
    """Whether a method's only calls stand before a wrapping in its own method: _load() in __init__, before DDP."""
    sites = call_sites(script, script.index.scope(node))
    owner = script.index.scope(wrapping)
    return bool(sites) and all(script.index.scope(s) is owner and place(s) < place(wrapping) for s in sites)


def _wrapped_by_callers(script: Script, node: ast.AST, depth: int) -> str:
    scope = script.index.scope(node)
    found = set()
    for site in call_sites(script, scope):
        value = argument_for(scope, site, dotted(node))
        found.add(wrapper_of(script, value, depth - 1) if value is not None else "")
    return found.pop() if len(found) == 1 else ""


def _conditional(script: Script, statement: ast.AST, node: ast.AST) -> bool:
    """Whether a wrapping is under a condition that the use is not under."""
    around = set(script.index.ancestors(node))
    for item in script.index.ancestors(statement):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(item, (ast.If, ast.Try)) and item not in around:
            return True
    return False


@check("CKP101", "wrapper-prefix-saved")
def wrapper_prefix_saved(script: Script) -> Iterator[Finding]:
    """The state_dict of a wrapped model is saved, so its keys have the wrapper's prefix.

    What it checks:
        torch.save of the state_dict() of a model wrapped in DataParallel, DistributedDataParallel or torch.compile;
        not where the file strips the prefix, or loads the file into the wrapped model again.
    Why it matters:
        A bare model does not load it: "Missing key(s) in state_dict", or, with strict=False, it silently stays
        random.
    Example:
        Bad::

            import torch
            from torch import nn
            def save(model):
                model = nn.DataParallel(model)
                torch.save(model.state_dict(), "m.pt")

        Good::

            import torch
            from torch import nn
            def save(model):
                model = nn.DataParallel(model)
                torch.save(model.module.state_dict(), "m.pt")
    Fix:
        Save model.module.state_dict() (_orig_mod for torch.compile); a file is mended by
        torch.nn.modules.utils.consume_prefix_in_state_dict_if_present.
    References:
        https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
    """
    if _strips(script) or uses(script, "lightning", "pytorch_lightning", "accelerate"):
        return
    for call in script.index.by_tail.get("state_dict", ()):
        value = receiver(call)
        if value is None or not _is_saved(script, call):
            continue
        prefix = wrapper_of(script, value) or (_loaded_bare(script) and wrapper_of(script, value, sometimes=True))
        if not prefix or _loaded_wrapped(script):
            continue
        inner = prefix.rstrip(".")
        yield finding(
            script,
            call,
            WARNING,
            f"{source(script, call)} has the {prefix!r} prefix of its wrapper: a bare model does not load it",
            f"{source(script, value)}.{inner}.state_dict()",
        )


def _paths_of_bare(script: Script) -> set[str]:
    """The constant paths that only models which are wrapped nowhere are saved to."""
    saved: dict[str, bool] = {}
    for call in script.index.by_tail.get("state_dict", ()):
        value, path = receiver(call), _saved_to(script, call)
        if value is not None and path and kind(script, value) == "module":
            saved[path] = saved.get(path, True) and not wrapper_of(script, value, sometimes=True)
    return {path for path, is_bare in saved.items() if is_bare}


def _loaded_from(script: Script, call: ast.Call) -> str:
    """The constant path of load_state_dict(torch.load(path)); "" where none."""
    for origin in origins(script, call.args[0]) if call.args else ():
        load = origin.node
        if isinstance(load, ast.Call) and load.args and origin.script.index.qual(load) == "torch.load":
            path = constant(origin.script, load.args[0])
            return path if isinstance(path, str) else ""
    return ""


def _saved_to(script: Script, call: ast.Call) -> str:
    """The constant path that a state_dict() is saved to in the same expression; "" where none."""
    for parent in script.index.ancestors(call):
        if isinstance(parent, ast.Call) and script.index.qual(parent) == "torch.save" and len(parent.args) > 1:
            path = constant(script, parent.args[1])
            return path if isinstance(path, str) else ""
        if isinstance(parent, (ast.stmt, ast.Dict)):
            return ""
    return ""


def _strips(script: Script) -> bool:
    if script.index.by_tail.get("consume_prefix_in_state_dict_if_present"):
        return True
    return any(f"{q}{p}{q}" in script.text for p in ("module.", "_orig_mod.") for q in "'\"")


def _is_saved(script: Script, call: ast.Call) -> bool:
    for parent in script.index.ancestors(call):
        if isinstance(parent, ast.Call) and script.index.qual(parent).rsplit(".", 1)[-1] in (
            "save",
            "save_file",
            "save_checkpoint",
        ):
            return True
        if isinstance(parent, ast.Assign):
            names = {dotted(t).split("[", 1)[0] for t in parent.targets}
            scope = script.index.scope(call)
            return any(
                script.index.qual(c).rsplit(".", 1)[-1] in ("save", "save_file")
                and any(
                    dotted(a) in names or (isinstance(a, ast.Dict) and any(dotted(v) in names for v in a.values if v))
                    for a in c.args
                )
                for c in scope.calls
            )
        if isinstance(parent, ast.stmt):
            return False
    return False


def _loaded_wrapped(script: Script) -> bool:
    """Whether the file loads into a wrapped model, and into no other."""
    found = [
        wrapper_of(script, receiver(c) or c)
        for c in script.index.by_tail.get("load_state_dict", ())
        if _into_model(script, c)
    ]
    return bool(found) and all(found)


def _loaded_bare(script: Script) -> bool:
    """Whether the file loads into a model that is wrapped under no condition, and never unwraps one."""
    if script.index.attributes.get("module") or script.index.attributes.get("_orig_mod"):
        return False
    found = [receiver(c) or c for c in script.index.by_tail.get("load_state_dict", ()) if _into_model(script, c)]
    return any(not wrapper_of(script, value, sometimes=True) for value in found)


def _into_model(script: Script, call: ast.Call) -> bool:
    value = receiver(call)
    return value is not None and kind(script, value) in ("module", "")


@check("CKP102", "mismatch-hidden-by-strict")
def mismatch_hidden_by_strict(script: Script) -> Iterator[Finding]:
    """load_state_dict(strict=False) is called and what it reports is thrown away.

    What it checks:
        strict=False with the result unused. A warning where the same file saves from a wrapped model, else a note.
    Why it matters:
        Every key may be missing (a "module." prefix is enough) and the model stays random without a word.
    Example:
        Bad::

            def load(model, state):
                model.load_state_dict(state, strict=False)

        Good::

            def load(model, state):
                missing, unexpected = model.load_state_dict(state, strict=False)
                assert not missing, missing
    Fix:
        Look at missing_keys and unexpected_keys, or load strictly.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict
    """
    for call in script.index.by_tail.get("load_state_dict", ()):
        strict = keyword(call, "strict") or (call.args[1] if len(call.args) > 1 else None)
        if constant(script, strict) is not False or not isinstance(script.index.parent.get(call), ast.Expr):
            continue
        wrapped = any(wrapper_of(script, receiver(c) or c) for c in script.index.by_tail.get("state_dict", ()))
        bad = wrapped and not _strips(script) and not wrapper_of(script, receiver(call) or call)
        yield finding(
            script,
            call,
            WARNING if bad else NOTE,
            "strict=False hides every key that does not fit, and the result is not looked at",
            "missing, unexpected = model.load_state_dict(...), and check both",
        )


@check("CKP105", "bare-checkpoint-into-wrapper")
def bare_checkpoint_into_wrapper(script: Script) -> Iterator[Finding]:
    """A checkpoint without the wrapper's prefix is loaded into the wrapped model.

    What it checks:
        load_state_dict on a model wrapped in DataParallel, DistributedDataParallel or torch.compile, in a file that
        saves the state_dict of the bare model only.
    Why it matters:
        "Missing key(s) in state_dict": every key lacks the "module." that the wrapper has.
    Example:
        Bad::

            import torch
            from torch import nn
            def save(model):
                torch.save(model.module.state_dict(), "m.pt")
            def resume(model):
                model = nn.DataParallel(model)
                model.load_state_dict(torch.load("m.pt"))

        Good::

            import torch
            from torch import nn
            def save(model):
                torch.save(model.module.state_dict(), "m.pt")
            def resume(model):
                model = nn.DataParallel(model)
                model.module.load_state_dict(torch.load("m.pt"))
    Fix:
        model.module.load_state_dict(...), or load before wrapping.
    References:
        https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
    """
    if _strips(script):
        return
    saved = [receiver(c) for c in script.index.by_tail.get("state_dict", ()) if _is_saved(script, c)]
    bare = [v for v in saved if v is not None and words.tail(dotted(v)) in ("module", "_orig_mod")]
    every = bool(bare) and len(bare) == len([v for v in saved if v is not None and kind(script, v) in ("module", "")])
    plain = _paths_of_bare(script)
    for call in script.index.by_tail.get("load_state_dict", ()) if every or plain else ():
        value = receiver(call)
        prefix = wrapper_of(script, value) if value is not None else ""
        if prefix and (every or _loaded_from(script, call) in plain):
            yield finding(
                script,
                call,
                ERROR,
                f"the checkpoint lacks the {prefix!r} that {source(script, value or call)} wants: missing keys",
                f"{source(script, value or call)}.{prefix.rstrip('.')}.load_state_dict(...)",
            )

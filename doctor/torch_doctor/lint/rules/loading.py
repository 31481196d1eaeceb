"""Loading: files that run code, and results that are no model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    constant,
    keyword,
    origins,
    receiver,
)
from torch_doctor.lint.found import ERROR, NOTE, WARNING, finding, is_test_file, source
from torch_doctor.model import Finding
from torch_doctor.registry import check


@check("CKP103", "unsafe-load", tags={"security"})
def unsafe_load(script: Script) -> Iterator[Finding]:
    """torch.load runs with weights_only=False.

    What it checks:
        torch.load(..., weights_only=False) of a file that comes from outside: named by a literal, the command line or
        a caller, or downloaded. A note where this file saved it itself, or made up its name.
    Why it matters:
        Unpickling runs any code that the file holds: a downloaded checkpoint can take over the machine.
    Example:
        Bad::

            import torch
            def load(path):
                return torch.load(path, weights_only=False)

        Good::

            import torch
            def load(path):
                return torch.load(path, weights_only=True)
    Fix:
        weights_only=True (the default since 2.6), torch.serialization.add_safe_globals for classes of your own, or
        safetensors.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.load.html
    """
    saved = {
        ast.dump(c.args[1])
        for c in script.index.by_tail.get("save", ())
        if script.index.qual(c) == "torch.save" and len(c.args) > 1
    }
    for call in script.index.by_tail.get("load", ()):
        if script.index.qual(call) != "torch.load" or constant(script, keyword(call, "weights_only")) is not False:
            continue
        own = (bool(call.args) and ast.dump(call.args[0]) in saved) or is_test_file(script.path)
        yield finding(
            script,
            call,
            WARNING if not own and _comes_from_outside(script, call) else NOTE,
            "weights_only=False runs whatever code the file holds",
            "weights_only=True, with torch.serialization.add_safe_globals for classes of your own",
        )


def _comes_from_outside(script: Script, call: ast.Call) -> bool:
    """Whether the file is named by a literal, the command line, a caller, or was downloaded: not made up here."""
    first = call.args[0] if call.args else keyword(call, "f")
    for origin in origins(script, first) if first is not None else ():
        node = origin.node
        if isinstance(node, (ast.Constant, ast.arg)):
            return True
        if dotted(node).split(".", 1)[0] in ("args", "opt", "cfg", "flags", "FLAGS", "sys", "config", "hparams"):
            return True
        if isinstance(node, ast.Call) and any(
            w in dotted(n.func).lower()
            for n in ast.walk(node)
            if isinstance(n, ast.Call)
            for w in ("download", "url", "cached", "fetch", "input", "requests.", "httpx.")
        ):
            return True
    return False


@check("CKP104", "load-result-assigned-to-model")
def load_result_assigned_to_model(script: Script) -> Iterator[Finding]:
    """The result of load_state_dict is taken for the model, or it is given a path.

    What it checks:
        model = model.load_state_dict(...), and load_state_dict of a string.
    Why it matters:
        load_state_dict works in place and returns the keys that did not fit: the next call of the model fails. A
        path is no state_dict: it raises.
    Example:
        Bad::

            import torch
            def load(model, path):
                model = model.load_state_dict(torch.load(path))
                return model

        Good::

            import torch
            def load(model, path):
                model.load_state_dict(torch.load(path))
                return model
    Fix:
        model.load_state_dict(torch.load(path)) on a line of its own.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict
    """
    for call in script.index.by_tail.get("load_state_dict", ()):
        parent = script.index.parent.get(call)
        value = receiver(call)
        if (
            isinstance(parent, ast.Assign)
            and value is not None
            and dotted(value)
            and len(parent.targets) == 1
            and dotted(parent.targets[0]) == dotted(value)
        ):
            yield finding(
                script,
                call,
                ERROR,
                f"load_state_dict returns the keys that did not fit: {source(script, value)} is no model now",
                f"{source(script, call)} on a line of its own",
            )
            continue
        first = call.args[0] if call.args else None
        given_text = (isinstance(first, ast.Constant) and isinstance(first.value, str)) or _is_text(script, first)
        if given_text and not is_test_file(script.path):  # a test hands any value to a mock
            yield finding(
                script,
                call,
                ERROR,
                "load_state_dict is given a path and wants a state_dict",
                f"load_state_dict(torch.load({source(script, first)}))",  # type: ignore[arg-type]
            )


def _is_text(script: Script, node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) and isinstance(constant(script, node), str)

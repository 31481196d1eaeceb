"""Losses with the arguments that reduction= took the place of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import (
    constant,
    has_star,
    keyword,
)
from torch_doctor.lint.found import WARNING, finding, fix, replace, source, span
from torch_doctor.model import Edit, Finding, Fix
from torch_doctor.registry import check

#: loss class -> its positional parameters up to ``reduction`` (torch 2.9, torch/nn/modules/loss.py)
_PLAIN = ("size_average", "reduce", "reduction")
_WEIGHTED = ("weight", *_PLAIN)
CLASSES: dict[str, tuple[str, ...]] = {
    "L1Loss": _PLAIN,
    "MSELoss": _PLAIN,
    "SmoothL1Loss": _PLAIN,
    "KLDivLoss": _PLAIN,
    "SoftMarginLoss": _PLAIN,
    "MultiLabelMarginLoss": _PLAIN,
    "BCELoss": _WEIGHTED,
    "BCEWithLogitsLoss": _WEIGHTED,
    "MultiLabelSoftMarginLoss": _WEIGHTED,
    "NLLLoss": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    "NLLLoss2d": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    "CrossEntropyLoss": ("weight", "size_average", "ignore_index", "reduce", "reduction"),
    "PoissonNLLLoss": ("log_input", "full", "size_average", "eps", "reduce", "reduction"),
    "HingeEmbeddingLoss": ("margin", *_PLAIN),
    "CosineEmbeddingLoss": ("margin", *_PLAIN),
    "MarginRankingLoss": ("margin", *_PLAIN),
    "MultiMarginLoss": ("p", "margin", "weight", *_PLAIN),
    "TripletMarginLoss": ("margin", "p", "eps", "swap", *_PLAIN),
}
#: function of torch.nn.functional -> the same (torch/nn/functional.py)
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "l1_loss": ("input", "target", *_PLAIN),
    "mse_loss": ("input", "target", *_PLAIN),
    "smooth_l1_loss": ("input", "target", *_PLAIN),
    "kl_div": ("input", "target", *_PLAIN),
    "soft_margin_loss": ("input", "target", *_PLAIN),
    "multilabel_margin_loss": ("input", "target", *_PLAIN),
    "binary_cross_entropy": ("input", "target", *_WEIGHTED),
    "binary_cross_entropy_with_logits": ("input", "target", *_WEIGHTED),
    "multilabel_soft_margin_loss": ("input", "target", *_WEIGHTED),
    "nll_loss": ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    "cross_entropy": ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction"),
    "poisson_nll_loss": ("input", "target", "log_input", "full", "size_average", "eps", "reduce", "reduction"),
    "hinge_embedding_loss": ("input", "target", "margin", *_PLAIN),
    "cosine_embedding_loss": ("input1", "input2", "target", "margin", *_PLAIN),
    "margin_ranking_loss": ("input1", "input2", "target", "margin", *_PLAIN),
    "multi_margin_loss": ("input", "target", "p", "margin", "weight", *_PLAIN),
    "triplet_margin_loss": ("anchor", "positive", "negative", "margin", "p", "eps", "swap", *_PLAIN),
}


def legacy_reduction(size_average: object, reduce: object) -> str:
    """What the deprecated pair means; None stands for its default, True."""
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


@check("LOS101", "deprecated-loss-argument", tags={"fixable", "deprecated"})
def deprecated_loss_argument(script: Script) -> Iterator[Finding]:
    """size_average= or reduce= is given to a loss.

    What it checks:
        Every loss class of torch.nn and function of torch.nn.functional that had them, by keyword and by position.
    Why it matters:
        They are deprecated since PyTorch 0.4.1 and override reduction= when they are given.
    Example:
        Bad::

            from torch import nn
            loss_fn = nn.CrossEntropyLoss(size_average=False)

        Good::

            from torch import nn
            loss_fn = nn.CrossEntropyLoss(reduction="sum")
    Fix:
        reduce=False is reduction="none"; else size_average=False is "sum" and True is "mean". --fix does it.
    References:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    for call in script.index.calls:
        short = dotted(call.func).rsplit(".", 1)[-1]
        imported = script.index.imports.get(short, short).rsplit(".", 1)[-1]
        if short not in CLASSES and short not in FUNCTIONS and imported not in CLASSES and imported not in FUNCTIONS:
            continue
        names = signature(script, call)
        if names is None:
            continue
        given = _given(call, names)
        if not given:
            continue
        known = {n: constant(script, v) for n, v in given.items()}
        sure = all(isinstance(v, bool) for v in known.values())
        meaning = legacy_reduction(known.get("size_average"), known.get("reduce")) if sure else ""
        words = ", ".join(f"{n}={source(script, v)}" for n, v in given.items())
        yield finding(
            script,
            call,
            WARNING,
            f"{words} is deprecated" + (f": it means reduction={meaning!r}" if meaning else ""),
            f'reduction="{meaning}"' if meaning else "Pass reduction= instead",
            fix=_mend(script, call, names, given, meaning) if meaning else None,
        )


def signature(script: Script, call: ast.Call) -> tuple[str, ...] | None:
    """The positional parameters of a call to a loss of torch; None for any other call."""
    name = script.index.qual(call)
    short = name.rsplit(".", 1)[-1]
    if name == f"torch.nn.functional.{short}":
        return FUNCTIONS.get(short)
    if name == f"torch.nn.{short}" or (name == short and "torch.nn" in script.index.star_imports):
        return CLASSES.get(short)
    return None


def _given(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    """The deprecated arguments that a call passes, but for None, their default."""
    found = {k.arg: k.value for k in call.keywords if k.arg in ("size_average", "reduce")}
    if not any(isinstance(a, ast.Starred) for a in call.args):
        for name, value in zip(names, call.args, strict=False):
            if (
                name in ("size_average", "reduce")
                and isinstance(value, ast.Constant)
                and isinstance(value.value, bool)
            ):
                found[name] = value
    return {n: v for n, v in found.items() if n and not (isinstance(v, ast.Constant) and v.value is None)}


def _mend(
    script: Script, call: ast.Call, names: tuple[str, ...], given: dict[str, ast.expr], meaning: str
) -> Fix | None:
    if keyword(call, "reduction") is not None or has_star(call):
        return None
    positional = [v for v in given.values() if v in call.args]
    if positional:
        return _mend_positional(script, call, names, given, meaning)
    first, *rest = [k for k in call.keywords if k.arg in given]
    edits = [replace(script, first, f'reduction="{meaning}"')]
    for item in rest:
        removal = _removal(script, call, item)
        if removal is None:
            return None
        edits.append(removal)
    extra = [k for k in call.keywords if k.arg in ("size_average", "reduce") and k.arg not in given]
    for item in extra:
        removal = _removal(script, call, item)
        if removal is not None:
            edits.append(removal)
    return fix(f'use reduction="{meaning}"', edits)


def _mend_positional(
    script: Script, call: ast.Call, names: tuple[str, ...], given: dict[str, ast.expr], meaning: str
) -> Fix | None:
    """Only where the deprecated arguments are the last of the positional ones."""
    first = min(call.args.index(v) for v in given.values() if v in call.args)
    tail = call.args[first:]
    if any(v not in given.values() for v in tail) or any(k.arg in given for k in call.keywords):
        return None
    start, stop = tail[0], tail[-1]
    edit = span(
        script,
        (start.lineno, start.col_offset),
        (stop.end_lineno or stop.lineno, stop.end_col_offset or 0),
        f'reduction="{meaning}"',
    )
    return fix(f'use reduction="{meaning}"', [edit])


def _removal(script: Script, call: ast.Call, item: ast.keyword) -> Edit | None:
    """An edit that removes a keyword together with the comma before it."""
    everything: list[ast.expr | ast.keyword] = sorted(
        [*call.args, *call.keywords], key=lambda n: (n.lineno, n.col_offset)
    )
    at = everything.index(item)
    if at == 0:
        return None
    before = everything[at - 1]
    return span(
        script,
        (before.end_lineno or before.lineno, before.end_col_offset or 0),
        (item.end_lineno or item.lineno, item.end_col_offset or 0),
        "",
    )

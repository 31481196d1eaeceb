"""Shape and element size of the arrays that a program makes with torch and NumPy."""

from __future__ import annotations

import ast
from typing import Any

from torch_doctor.requirements.source import UNKNOWN, Source

#: bytes of one element, by the last part of the dtype's name
DTYPES = {
    **dict.fromkeys(("float64", "double", "int64", "long", "complex64", "uint64"), 8),
    **dict.fromkeys(("float32", "float", "int32", "int", "uint32"), 4),
    **dict.fromkeys(("float16", "half", "bfloat16", "int16", "short", "uint16"), 2),
    **dict.fromkeys(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
#: functions that make an array of the shape they are given: library -> names, bytes of an element by default
_MAKERS = {
    "torch": (("zeros", "ones", "empty", "rand", "randn", "full"), 4),
    "numpy": (("zeros", "ones", "empty", "full"), 8),
    "numpy.random": (("rand", "randn", "random", "normal", "uniform", "standard_normal", "random_sample"), 8),
}


def array(source: Source, node: ast.expr | None) -> tuple[tuple[int, ...], int] | None:
    """Shape and bytes of an element of what a call like ``torch.zeros(3, 8)`` makes; None for any other."""
    if not isinstance(node, ast.Call):
        return None
    library, _, name = (source.dotted(node.func) or "").rpartition(".")
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    names, width = _MAKERS.get(library, ((), 0))
    if name in names:
        given = _shape_arguments(node, keywords, library, name)
    elif name == "randint" and library in ("torch", "numpy.random"):
        sizes: list[ast.expr] = [a for a in node.args if isinstance(a, (ast.Tuple, ast.List))]
        given, width = ([keywords["size"]] if "size" in keywords else sizes[:1]), 8
    else:
        return None
    shape = _shape_of(source, given)
    return None if shape is None else (shape, _dtype(source, keywords.get("dtype")) or width)


def _shape_arguments(node: ast.Call, keywords: dict[str, ast.expr], library: str, name: str) -> list[ast.expr]:
    for keyword in ("size", "shape"):
        if keyword in keywords:
            return [keywords[keyword]]
    if name == "full" or library == "numpy":
        return node.args[:1]
    if name in ("normal", "uniform"):  # their positional arguments are the distribution's
        return node.args[2:3]
    return list(node.args)


def _shape_of(source: Source, arguments: list[ast.expr]) -> tuple[int, ...] | None:
    if len(arguments) == 1:
        value = source.value(arguments[0])
        return known_shape(value if isinstance(value, tuple) else (value,))
    return known_shape(tuple(source.value(a) for a in arguments))


def _dtype(source: Source, node: ast.expr | None) -> int | None:
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return DTYPES.get(node.value)
    return DTYPES.get((source.dotted(node) or "").rsplit(".", 1)[-1])


def known_shape(value: Any) -> tuple[int, ...] | None:
    """A shape whose numbers are known; None for any other. The first, the number of rows, may be -1: not known."""
    if not isinstance(value, tuple) or not value:
        return None
    first, *rest = (v if isinstance(v, int) and not isinstance(v, bool) else UNKNOWN for v in value)
    return None if any(v is UNKNOWN for v in rest) else (-1 if first is UNKNOWN else first, *rest)

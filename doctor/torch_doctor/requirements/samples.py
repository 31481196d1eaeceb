"""How many bytes one sample of a dataset has, where the source says it: shapes, transforms, built-in data sets."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from torch_doctor.requirements.arrays import array, known_shape
from torch_doctor.requirements.source import FUNCTIONS, Source

#: shape of a sample of torchvision's data sets that have one fixed size (float32 after ToTensor); torchvision 0.26
FIXED_SHAPES = {
    **dict.fromkeys(("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "EMNIST"), (1, 28, 28)),
    **dict.fromkeys(("CIFAR10", "CIFAR100", "SVHN"), (3, 32, 32)),
    "STL10": (3, 96, 96),
    "USPS": (1, 16, 16),
    "PCAM": (3, 96, 96),
    "FakeData": (3, 224, 224),
}
_CROPS = {"RandomResizedCrop", "CenterCrop", "RandomCrop", "Resize", "FiveCrop", "RandomSizedCrop", "ScaleJitter"}
_TO_TENSOR = {"ToTensor", "ToImage", "PILToTensor", "ToImageTensor", "ToTensorV2", "ConvertImageDtype", "ToDtype"}
_TRANSPARENT = {"Subset", "ConcatDataset", "random_split", "as_tensor", "from_numpy", "tensor", "asarray", "array"}
_LABEL_BYTES = 8  # collate makes an int64 of a Python int
_DEEPEST = 12


def sample_bytes(
    source: Source, dataset: ast.expr | None, classes: dict[str, tuple[Source, ast.ClassDef]]
) -> int | None:
    """Bytes of one sample of the dataset that an expression makes; None where the source does not say.

    Args:
        source: the file that the expression stands in.
        dataset: what DataLoader is given.
        classes: the program's own classes by name, to look into their ``__getitem__``.
    """
    return _Sizes(source, classes).dataset(dataset, 0)


class _Sizes:
    def __init__(self, source: Source, classes: dict[str, tuple[Source, ast.ClassDef]]) -> None:
        self.source = source
        self.classes = classes
        self.seen: set[ast.expr] = set()

    def dataset(self, node: ast.expr | None, depth: int) -> int | None:
        node = self._follow(node)
        if isinstance(node, ast.Name) and node not in self.seen:  # real data in one branch, fake data in the other
            self.seen.add(node)
            sizes = {self.dataset(each, depth + 1) for each in self.source.definitions(node)}
            return sizes.pop() if len(sizes) == 1 else None
        if not isinstance(node, ast.Call) or depth > _DEEPEST:
            return None
        name = (self.source.dotted(node.func) or "").rsplit(".", 1)[-1]
        if name == "TensorDataset":
            return _total(self.rows(a, depth + 1) for a in node.args) if node.args else None
        if name in self.classes:
            return self._own_class(node, name, depth)
        if name in ("Subset", "random_split") and node.args:
            return self.dataset(node.args[0], depth + 1)
        if name == "FakeData":
            return self._fake_data(node)
        shape = self._transformed(node, FIXED_SHAPES.get(name))
        return None if shape is None else math.prod(shape) * 4 + _LABEL_BYTES

    def _own_class(self, call: ast.Call, name: str, depth: int) -> int | None:
        source, definition = self.classes[name]
        for method in definition.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name in (
                "__getitem__",
                "__iter__",
            ):
                inner = _Sizes(source, self.classes)
                sizes = {inner.element(value, depth + 1) for value in returned(method)}
                if len(sizes) == 1 and (size := sizes.pop()):
                    return size
        shape = self._transformed(call, None)
        return None if shape is None else math.prod(shape) * 4 + _LABEL_BYTES

    def _fake_data(self, call: ast.Call) -> int | None:
        given = next(
            (k.value for k in call.keywords if k.arg == "image_size"), call.args[1] if len(call.args) > 1 else None
        )
        shape = (3, 224, 224) if given is None else known_shape(self.source.value(given))
        if shape is not None and shape[0] < 0:
            return None
        shape = self._transformed(call, shape)
        return None if shape is None else math.prod(shape) * 4 + _LABEL_BYTES

    # -- what one item is ------------------------------------------------------------------------------------

    def element(self, node: ast.expr | None, depth: int) -> int | None:
        """Bytes of a returned item: a tensor, a number, or a tuple or dict of them."""
        node = self._follow(node)
        if node is None or depth > _DEEPEST:
            return None
        if isinstance(node, (ast.Tuple, ast.List)):
            return _total(self.element(e, depth + 1) for e in node.elts)
        if isinstance(node, ast.Dict):
            return _total(self.element(v, depth + 1) for v in node.values)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return _LABEL_BYTES
        if isinstance(node, ast.BinOp):
            return self._broadcast(node, depth)
        if isinstance(node, ast.Subscript):
            return self.rows(node.value, depth + 1)
        if isinstance(node, ast.Name):  # a name nobody assigns: the index itself, as a label
            return _LABEL_BYTES if self.source.owner(node) is not None else None
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return None

    def _broadcast(self, node: ast.BinOp, depth: int) -> int | None:
        sides = [self.element(node.left, depth + 1), self.element(node.right, depth + 1)]
        known = [s for s in sides if s is not None]
        return max(known) if known else None

    def _call(self, node: ast.Call, depth: int) -> int | None:
        found = self._array_of(node)
        if found is not None:
            return math.prod(found[0]) * found[1] if found[0][0] >= 0 else None
        name = (self.source.dotted(node.func) or "").rsplit(".", 1)[-1]
        if name in ("int", "float", "len"):
            return _LABEL_BYTES
        if name in _TRANSPARENT and node.args:
            if name == "tensor" and not isinstance(
                self._follow(node.args[0]), (ast.Tuple, ast.List, ast.Call, ast.Subscript)
            ):
                return _LABEL_BYTES
            return self.element(node.args[0], depth + 1)
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, depth)
        return None

    def _method(self, function: ast.Attribute, depth: int) -> int | None:
        width = _CASTS.get(function.attr)
        base = function.value
        if width is not None:
            found = self._array_of(self._follow(base))
            return math.prod(found[0]) * width if found and found[0][0] >= 0 else None
        if function.attr in _SHAPE_KEEPING:
            return self.element(base, depth + 1)
        return None

    def rows(self, node: ast.expr | None, depth: int) -> int | None:
        """Bytes of one row (the first dimension taken) of an array."""
        node = self._follow(node)
        if depth >= _DEEPEST:
            return None
        if isinstance(node, ast.Call):
            return self._rows_of_call(node, depth)
        if isinstance(node, ast.BinOp):
            sides = [self.rows(node.left, depth + 1), self.rows(node.right, depth + 1)]
            return max((s for s in sides if s is not None), default=None)
        return None

    def _rows_of_call(self, node: ast.Call, depth: int) -> int | None:
        found = self._array_of(node)
        if found is not None:
            return math.prod(found[0][1:]) * found[1]
        name = (self.source.dotted(node.func) or "").rsplit(".", 1)[-1]
        if name in ("arange", "randperm"):
            return _LABEL_BYTES
        if name in _TRANSPARENT and node.args:
            return self.rows(node.args[0], depth + 1)
        if not isinstance(node.func, ast.Attribute):
            return None
        cast = _CASTS.get(node.func.attr)
        inner = self._array_of(self._follow(node.func.value))
        if cast is not None and inner:
            return math.prod(inner[0][1:]) * cast
        return self.rows(node.func.value, depth + 1) if node.func.attr in _SHAPE_KEEPING else None

    def _array_of(self, node: ast.expr | None) -> tuple[tuple[int, ...], int] | None:
        return array(self.source, node)

    # -- transforms -----------------------------------------------------------------------------------------

    def _transformed(self, call: ast.Call, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """The shape after the data set's transform: its last crop or two-sided resize, where it ends in a tensor."""
        steps = list(self._steps(call))
        names = {name for name, _ in steps}
        if not steps:
            return shape if shape is not None and call is not None and _is_fake(call, self.source) else None
        if not names & _TO_TENSOR:
            return None
        channels = 1 if "Grayscale" in names else (shape[0] if shape else 3)
        for name, step in reversed(steps):
            if name in _CROPS:
                side = self._side(name, step)
                if side is not None:
                    return (channels, *side)
                return None
        return None if shape is None else (channels, *shape[1:])

    def _steps(self, call: ast.Call) -> Iterator[tuple[str, ast.Call]]:
        given = [k.value for k in call.keywords if k.arg in ("transform", "transforms")] or list(call.args[1:])
        for node in given:
            found = self._follow(node)
            if not isinstance(found, ast.Call):
                continue
            for inner in ast.walk(found):
                if isinstance(inner, ast.Call):
                    yield (self.source.dotted(inner.func) or "").rsplit(".", 1)[-1], inner

    def _side(self, name: str, step: ast.Call) -> tuple[int, int] | None:
        given = next((k.value for k in step.keywords if k.arg == "size"), step.args[0] if step.args else None)
        value = self.source.value(given)
        if isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, int) for v in value):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and name != "Resize":
            return (value, value)  # Resize(int) fixes the shorter side only
        return None

    def _follow(self, node: ast.expr | None) -> ast.expr | None:
        for _ in range(_DEEPEST):
            if isinstance(node, ast.Name):
                found = self.source.definition(node)
                if found is None:
                    return node
                node = found
            elif isinstance(node, ast.Attribute) and node.attr in self.source.attributes:
                found_all = self.source.attributes[node.attr]
                if len(found_all) != 1:
                    return node
                node = found_all[0]
            else:
                break
        return node


_CASTS = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "byte": 1, "bool": 1}
_SHAPE_KEEPING = frozenset(
    {"contiguous", "clone", "detach", "share_memory_", "cpu", "requires_grad_", "pin_memory", "normal_", "uniform_",
     "zero_", "fill_", "copy", "flip", "permute", "view_as"}
)  # fmt: skip


def returned(function: ast.AST) -> Iterator[ast.expr]:
    """What a function returns or yields, its inner functions left out."""
    pending: list[ast.AST] = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            yield node.value
        pending.extend(ast.iter_child_nodes(node))


def _total(sizes: Iterator[int | None]) -> int | None:
    found = list(sizes)
    return None if not found or any(s is None for s in found) else sum(s for s in found if s is not None)


def _is_fake(call: ast.Call, source: Source) -> bool:
    return (source.dotted(call.func) or "").endswith("FakeData")

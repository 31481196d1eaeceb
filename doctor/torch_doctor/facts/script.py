"""A source file, read and parsed: what the lint rules judge."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch_doctor.facts.code_index import Index

#: the words without which no rule has anything to say
TRIGGERS = ("torch", "lightning", "accelerate", "fastai", "deepspeed", "transformers", "DataLoader")

#: packages whose training code looks like PyTorch's
OTHER_FRAMEWORKS = frozenset({"mxnet", "tensorflow", "keras", "paddle", "mindspore", "oneflow", "jittor", "chainer"})
#: training steps in one file from which on it is no code that a person wrote: the flow analysis is not linear in them
MOST_STEPS = 300


@dataclass(frozen=True)
class SourceLine:
    """Where a line of ``Script.text`` comes from: a notebook cell (from 1) and the line within it."""

    cell: int
    line: int


@dataclass(frozen=True)
class Launch:
    """A compose service or docker run line beside the script; sizes are bytes, None where not given."""

    path: str
    line: int
    what: str
    shm_bytes: int | None
    host_ipc: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Script:
    """One Python file or notebook.

    Args:
        path: as the user gave it.
        text: the source with ``\\n`` line ends and no BOM; for a notebook, its code cells one after another.
        tree: the syntax tree.
        cells: for a notebook, where each line of ``text`` comes from; empty for a file.
        unparsed: where the cells of a notebook that are no Python fail; they are blank in ``text``.
        neighbours: dotted module name -> the module beside this one that an import of it means.
        launches: what starts containers in the same folder.
        original: the text with its own line ends, where they differ from ``text``'s.
        encoding: as Python names it; ``utf-8-sig`` where the file has a BOM.
    """

    path: str
    text: str
    tree: ast.Module
    cells: tuple[SourceLine, ...] = ()
    unparsed: tuple[SourceLine, ...] = ()
    neighbours: Mapping[str, Script] = field(default_factory=dict)
    launches: Sequence[Launch] = ()
    original: str = ""
    encoding: str = "utf-8"
    memo: dict[Any, Any] = field(default_factory=dict)  # what the rules derived, so that it is derived once

    @cached_property
    def index(self) -> Index:
        """Scopes, bindings and calls."""
        return Index(self.tree)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends. Form feeds do not end a line: the tree counts as tokenize does."""
        return self.text.split("\n")

    @cached_property
    def relevant(self) -> bool:
        """False where the file mentions nothing that a rule could judge, or is written for another framework."""
        return any(word in self.text for word in TRIGGERS) and not self._is_of_another_framework

    @property
    def _is_of_another_framework(self) -> bool:
        if not any(name in self.text for name in OTHER_FRAMEWORKS):
            return False
        roots = set()
        for node in self.index.import_nodes:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            roots |= {n.split(".")[0] for n in names}
        return bool(roots & OTHER_FRAMEWORKS) and not any(word in root for root in roots for word in TRIGGERS)

    @property
    def generated(self) -> bool:
        """Whether it has more training steps than a person would write; such a file is not analysed."""
        return len(self.index.by_tail.get("backward", ())) > MOST_STEPS

    def segment(self, node: ast.AST) -> str:
        """The source text of a node."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        if not 0 < first <= last <= len(self.lines):
            return ""
        start, stop = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
        rows = [line.encode() for line in self.lines[first - 1 : last]]
        rows[-1] = rows[-1][:stop]
        rows[0] = rows[0][start:]
        return b"\n".join(rows).decode(errors="replace")


def parse(path: str, text: str, **more: Any) -> Script:
    """Parse normalised source text.

    Raises:
        SyntaxError: where it is no valid Python for this interpreter; ValueError, RecursionError and
            MemoryError for what the parser gives up on.
    """
    return Script(path, text, ast.parse(text, path, type_comments=False), **more)

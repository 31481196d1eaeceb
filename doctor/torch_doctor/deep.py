"""Room for deep recursion: a generated expression can be nested deeper than the interpreter's own limit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_STACK_BYTES = 256 << 20
_RECURSION = 20_000


def with_large_stack(work: Callable[[], T], *failures: type[Exception]) -> T:
    """Run ``work`` in a thread with room for a deep tree; what it raises of ``failures`` is raised here."""
    result: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            result.append(work())
        except failures as error:
            failure.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if failure:
        raise failure[0]
    return result[0]

"""Shares a probe's result among the probes of one request: NVML and torch are asked once, whoever needs them."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch_doctor.facts.request import Request

T = TypeVar("T")


@dataclass
class _Slot(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    values: list[T] = field(default_factory=list)


def once(probe: Callable[[Request], T]) -> Callable[[Request], T]:
    """The probe, run once per Request object; concurrent callers wait for the first one's result."""
    # by identity: a Request holds a dictionary, so it has no hash
    slots: dict[int, _Slot[T]] = {}
    guard = threading.Lock()

    def slot_of(request: Request) -> _Slot[T]:
        with guard:
            if id(request) not in slots:
                slots[id(request)] = _Slot()
                weakref.finalize(request, slots.pop, id(request), None)
            return slots[id(request)]

    @functools.wraps(probe)
    def shared(request: Request) -> T:
        slot = slot_of(request)
        with slot.lock:
            if not slot.values:
                slot.values.append(probe(request))
            return slot.values[0]

    return shared

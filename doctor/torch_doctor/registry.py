"""Registers checks and validates them at import, so that a wrong one never reaches a user."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from torch_doctor.errors import DoctorError
from torch_doctor.model import COMMAND_OF_HUNDRED, FAMILIES, HEADINGS, Check, Finding, ProbeFailure

#: Package that holds the checks of a command.
PACKAGES = {
    "check": "torch_doctor.checks",
    "lint": "torch_doctor.lint.rules",
    "explain": "torch_doctor.diagnose.causes",
}

_ID = re.compile(r"([A-Z]{2,4})([012])\d\d")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_OPINIONS = ("check-", "-ok", "-check")

F = TypeVar("F", bound=Callable[..., Iterable[Finding]])

_checks: dict[str, Check] = {}
_named: dict[tuple[str, str], Check] = {}


class RegistrationError(TypeError):
    """A check that breaks a rule of the registry: a programming error, seen at import."""


def check(id: str, name: str, *, tags: Iterable[str] = ()) -> Callable[[F], F]:
    """Register the decorated function as a check and return it unchanged.

    The parameter types are the facts it needs; ``Facts | ProbeFailure`` says that it judges the
    failure itself. The docstring is the documentation, under HEADINGS.

    Raises:
        RegistrationError: for a malformed or repeated ID or name, unannotated parameters, or a
            docstring without the headings.
    """

    def decorate(function: F) -> F:
        add(build(id, name, function, tags=tags))
        return function

    return decorate


def build(
    id: str,
    name: str,
    function: Callable[..., Iterable[Finding]],
    *,
    tags: Iterable[str] = (),
    doc: str | Callable[[], str] = "",
) -> Check:
    """A validated Check that is not registered yet.

    ``doc`` stands in for the function's docstring; one that is made from a table when it is asked for is not
    validated here (a test does).
    """
    match = _ID.fullmatch(id)
    if not match or match[1] not in FAMILIES:
        raise RegistrationError(f"{id}: an ID is one of {', '.join(FAMILIES)} and three digits from 000 to 299")
    if not _NAME.fullmatch(name) or name.startswith(_OPINIONS[0]) or name.endswith(_OPINIONS[1:]):
        raise RegistrationError(f"{id}: {name!r} must be kebab-case and name the fault")
    if isinstance(doc, str):
        doc = doc.strip() or inspect.cleandoc(function.__doc__ or "")
        _require_headings(id, doc)
    needs, judges = _needs(id, function)
    return Check(id, name, match[1], frozenset(tags), needs, function, doc, judges)


def add(item: Check) -> None:
    """Register a built check.

    Raises:
        RegistrationError: where its ID is taken, or its name within the same command: a fault that is seen
            before, in and after a run may keep its name over the three.
    """
    other = _checks.get(item.id) or _named.get((item.command, item.name))
    if other is not None:
        raise RegistrationError(f"{item.id} {item.name}: already taken by {other.id} {other.name}")
    _checks[item.id] = _named[item.command, item.name] = item


def _require_headings(id: str, text: str) -> None:
    lines = text.splitlines()
    found = [line.rstrip(":") for line in lines if line.rstrip(":") in HEADINGS]
    if found != list(HEADINGS):
        raise RegistrationError(f"{id}: the docstring's headings are {found}, not {list(HEADINGS)}")
    if not lines or lines[0].rstrip(":") in HEADINGS:
        raise RegistrationError(f"{id}: the docstring starts with one line that says what the fault is")


#: of functions that share their code, as the closures of the causes do
_needs_of: dict[types.CodeType, tuple[tuple[type, ...], frozenset[type]]] = {}


def _needs(id: str, function: Callable[..., Any]) -> tuple[tuple[type, ...], frozenset[type]]:
    code = function.__code__
    if code in _needs_of:
        return _needs_of[code]
    needs: list[type] = []
    judges: set[type] = set()
    for parameter in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        if parameter not in function.__annotations__:
            raise RegistrationError(f"{id}: parameter {parameter!r} has no annotation")
        members = _members(function.__annotations__[parameter], function.__globals__)
        facts = [m for m in members if m is not ProbeFailure]
        if len(facts) != 1 or not isinstance(facts[0], type):
            raise RegistrationError(f"{id}: {parameter!r} must be one facts type, or that | ProbeFailure")
        needs.append(facts[0])
        if ProbeFailure in members:
            judges.add(facts[0])
    _needs_of[code] = tuple(needs), frozenset(judges)
    return _needs_of[code]


_evaluated: dict[tuple[str, int], Any] = {}


def _members(hint: Any, namespace: dict[str, Any]) -> tuple[Any, ...]:
    # typing.get_type_hints compiles every annotation anew: 40 ms for the causes of `explain`
    if isinstance(hint, str):
        key = (hint, id(namespace))
        if key not in _evaluated:
            _evaluated[key] = eval(hint, namespace)
        hint = _evaluated[key]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def load(*commands: str) -> tuple[Check, ...]:
    """Import the checks of the commands (all without one) and return them by ID."""
    for command in commands or tuple(PACKAGES):
        _import_all(PACKAGES[command])
    wanted = set(commands or PACKAGES)
    return tuple(sorted((c for c in _checks.values() if c.command in wanted), key=lambda c: c.id))


def _import_all(package_name: str) -> None:
    package = importlib.import_module(package_name)
    for module in pkgutil.iter_modules(package.__path__, package_name + "."):
        importlib.import_module(module.name)


def find(reference: str) -> tuple[Check, ...]:
    """The check with this ID, or those with this name (one a command at most).

    Raises:
        DoctorError: where there is none.
    """
    wanted = reference.strip().lower()
    found = tuple(item for item in load() if wanted in (item.id.lower(), item.name))
    if not found:
        raise DoctorError(reference, "no such rule", "torch-doctor rule lists them all")
    return found


def select(checks: Sequence[Check], chosen: Iterable[str] = (), ignored: Iterable[str] = ()) -> tuple[Check, ...]:
    """The checks that ``chosen`` names (all without one) less those that ``ignored`` names.

    Each token is an ID, a name, a family or a tag, in any case; a token may hold several, with commas.

    Raises:
        DoctorError: for a token that names nothing in any command.
    """
    wanted, unwanted = _tokens(chosen), _tokens(ignored)
    known = _vocabulary(checks)
    for token in [*wanted, *unwanted]:
        if token not in known and token not in _vocabulary(load()):
            raise DoctorError(token, "not an ID, name, family or tag of a rule", "torch-doctor rule lists them all")
    picked = [c for c in checks if not wanted or _words(c) & set(wanted)]
    return tuple(c for c in picked if not _words(c) & set(unwanted))


def _tokens(values: Iterable[str]) -> list[str]:
    return [token for value in values for token in value.replace(",", " ").lower().split()]


def _words(item: Check) -> set[str]:
    return {item.id.lower(), item.name, item.family.lower(), *(t.lower() for t in item.tags)}


def _vocabulary(checks: Iterable[Check]) -> set[str]:
    return {f.lower() for f in FAMILIES}.union(*(_words(c) for c in checks), set())


__all__ = [
    "COMMAND_OF_HUNDRED",
    "FAMILIES",
    "HEADINGS",
    "RegistrationError",
    "check",
    "find",
    "load",
    "select",
]

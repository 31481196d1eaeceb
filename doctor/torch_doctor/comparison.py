"""Compares two JSON reports: findings that came and went, outcomes and facts that changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_doctor.errors import DoctorError
from torch_doctor.model import SCHEMA_VERSION

_ABSENT = "(absent)"


@dataclass(frozen=True)
class Change:
    """A value that differs. ``key`` is dotted (``gpu.devices.0.name``); an absent side is ``(absent)``."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Comparison:
    """What differs between two reports: findings as ``ID name: message``, outcomes by ID, facts by key."""

    appeared: tuple[str, ...]
    gone: tuple[str, ...]
    outcomes: tuple[Change, ...]
    facts: tuple[Change, ...]

    @property
    def differs(self) -> bool:
        """True where anything differs."""
        return bool(self.appeared or self.gone or self.outcomes or self.facts)


def load(path: Path) -> Mapping[str, Any]:
    """A report from a file of ``--format json``.

    Raises:
        DoctorError: where it cannot be read, is not JSON, or is no report of a known schema version.
    """
    hint = "write one with: torch-doctor check --format json --output report.json"
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise DoctorError(str(path), f"cannot be read: {error.strerror}", hint) from error
    except (ValueError, RecursionError) as error:
        raise DoctorError(str(path), f"is not JSON: {error}", hint) from error
    if not isinstance(value, dict) or not _is_report(value):
        raise DoctorError(str(path), "is not a torch-doctor report", hint)
    if value["schema_version"] != SCHEMA_VERSION:
        message = f"has schema version {value['schema_version']}, this torch-doctor reads {SCHEMA_VERSION}"
        raise DoctorError(str(path), message, "write it anew with this version of torch-doctor")
    return value


def _is_report(value: Mapping[str, Any]) -> bool:
    shapes = {"schema_version": int, "findings": list, "checks": list, "facts": dict}
    return all(isinstance(value.get(key), kind) for key, kind in shapes.items())


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """What differs from ``old`` to ``new``."""
    before, after = _findings(old), _findings(new)
    return Comparison(
        tuple(text for key, text in after.items() if key not in before),
        tuple(text for key, text in before.items() if key not in after),
        tuple(_changes(_outcomes(old), _outcomes(new))),
        tuple(_changes(dict(_flat(old["facts"])), dict(_flat(new["facts"])))),
    )


def _findings(report: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    # a message carries measured numbers: the same fault in another size is a changed fact, no new finding
    found = {}
    for item in report["findings"]:
        place = item.get("location") or {}
        key = (str(item.get("id")), f"{place.get('path')}:{place.get('line')}")
        found[key] = f"{item.get('severity')} {item.get('id')} {item.get('name')}: {item.get('message')}"
    return found


def _outcomes(report: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{item.get('id')} {item.get('name')}": item.get("outcome") for item in report["checks"]}


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{prefix}.{number}")
    else:
        yield prefix, value


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted({*old, *new}):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before != after:
            yield Change(key, before, after)


def render(found: Comparison, format: str) -> str:
    """The comparison as ``table`` (``+`` and ``-`` lines, as a diff has) or ``json``."""
    if format == "json":
        return json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n"
    if not found.differs:
        return "no difference\n"
    lines = [f"- {text}" for text in found.gone] + [f"+ {text}" for text in found.appeared]
    lines += _section("checks", found.outcomes) + _section("facts", found.facts)
    return "".join(f"{line}\n" for line in lines)


def _section(title: str, changes: Sequence[Change]) -> list[str]:
    return [f"{title}:", *(f"  {c.key}: {_short(c.old)} -> {_short(c.new)}" for c in changes)] if changes else []


def _short(value: Any) -> str:
    text = value if value == _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."

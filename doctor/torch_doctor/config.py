"""Configuration files: ``[tool.torch-doctor]`` in pyproject.toml, or torch-doctor.toml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_doctor.errors import DoctorError

OWN_FILE = "torch-doctor.toml"
SECTION = "torch-doctor"


@dataclass(frozen=True)
class Config:
    """The options of a configuration file, keys in snake_case; tables of commands under their names."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def for_command(self, command: str) -> dict[str, Any]:
        """The values that hold for ``command``: the common ones, overridden by those of its own table."""
        common = {k: v for k, v in self.values.items() if not isinstance(v, Mapping)}
        own = self.values.get(command, {})
        return {**common, **own}


def load(start: Path) -> Config:
    """The nearest configuration at ``start`` or above it, up to the root of a git checkout.

    Raises:
        DoctorError: where a file cannot be read as TOML, or its section is not a table.
    """
    for folder in [start, *start.parents]:
        for path, section in ((folder / OWN_FILE, ()), (folder / "pyproject.toml", ("tool", SECTION))):
            values = _read(path, section)
            if values is not None:
                return Config(path, _snake(values))
        if (folder / ".git").exists():
            break
    return Config()


def per_file_ignores(found: Config) -> dict[str, list[str]]:
    """``[tool.torch-doctor.lint.per-file-ignores]``: pattern -> IDs, names, families or tags.

    Raises:
        DoctorError: where it is not a table of lists.
    """
    section = found.values.get("lint", {})
    value = section.get("per_file_ignores", {}) if isinstance(section, Mapping) else {}
    if not isinstance(value, Mapping) or not all(isinstance(v, list) for v in value.values()):
        raise DoctorError(str(found.path), "per-file-ignores is a table of pattern = [IDs]")
    return {str(k): [str(t) for t in v] for k, v in value.items()}


def _read(path: Path, section: tuple[str, ...]) -> Mapping[str, Any] | None:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise DoctorError(str(path), f"cannot be read: {error.strerror}") from error
    if section and SECTION.encode() not in data:
        return None
    value: Any = _parse(path, data)
    for key in section:
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is not None and not isinstance(value, Mapping):
        raise DoctorError(str(path), f"[{'.'.join(section)}] is not a table")
    return value


def _parse(path: Path, data: bytes) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DoctorError(str(path), f"is not valid TOML: {error}", "correct the file, or remove it") from error


def _snake(values: Mapping[str, Any]) -> dict[str, Any]:
    # keys below a command's table stay as written where they are data (per-file-ignores)
    return {
        key.replace("-", "_"): {k.replace("-", "_"): v for k, v in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in values.items()
    }

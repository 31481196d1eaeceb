"""What every command has: options from the environment and the configuration, and one way to end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from torch_doctor import config
from torch_doctor.errors import DoctorError

ENVIRONMENT_PREFIX = "TORCH_DOCTOR_"


class DoctorCommand(TyperCommand):
    """A command whose every option can come from TORCH_DOCTOR_<OPTION> or a configuration file.

    The command line wins over the environment, and the environment over the file.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.param_type_name == "option" and not parameter.envvar and parameter.name != "help":
                parameter.envvar = ENVIRONMENT_PREFIX + str(parameter.name).upper()

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of one run, with the configuration file as its defaults."""
        if not {"-h", "--help"} & set(args):
            found = config.load(Path.cwd())
            extra["default_map"] = self._defaults(found, str(info_name))
        return super().make_context(info_name, args, parent, **extra)

    def _defaults(self, found: config.Config, command: str) -> dict[str, Any]:
        own = found.values.get(command, {})
        names = {str(p.name): p for p in self.params}
        for key in own if isinstance(own, Mapping) else ():
            if key not in names and key not in FILE_ONLY:
                raise DoctorError(
                    str(found.path), f"{command} has no option {key!r}", f"torch-doctor {command} --help"
                )
        values = {k: v for k, v in found.for_command(command).items() if k in names}
        return {k: _as_option(v, bool(getattr(names[k], "multiple", False))) for k, v in values.items()}


#: keys of a command's table that have no option: read from the file only
FILE_ONLY = frozenset({"per_file_ignores"})


def _as_option(value: Any, multiple: bool) -> Any:
    if isinstance(value, Mapping):
        value = [f"{k}={v}" for k, v in value.items()]
    if multiple:
        return value if isinstance(value, list) else [str(value)]
    return ",".join(map(str, value)) if isinstance(value, list) else value

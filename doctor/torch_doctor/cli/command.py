"""What every command has: options from the environment and the configuration; and where commands are found."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from torch_doctor import config
from torch_doctor.errors import DoctorError

ENVIRONMENT_PREFIX = "TORCH_DOCTOR_"

#: module in torch_doctor.cli, its command and its function, all of one name; the order of ``--help``
COMMANDS = (
    "check",
    "lint",
    "explain",
    "run",
    "ps",
    "attach",
    "logs",
    "stop",
    "wait",
    "rm",
    "rule",
    "diff",
    "health",
)


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


class DoctorGroup(TyperGroup):
    """The commands, each imported where it is asked for: all thirteen would cost a third of the start."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of ``--help``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; None where there is none (all are then known, for what was meant)."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = _command(name)
        return self.commands.get(cmd_name)


def _command(name: str) -> Any:
    module = importlib.import_module(f"torch_doctor.cli.{name}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = getattr(module, "CONTEXT_SETTINGS", None)
    alone.command(name, cls=DoctorCommand, context_settings=settings)(getattr(module, name))
    return typer.main.get_command(alone)

"""``torch-doctor run``: the order in which a session comes to be."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import commands, environment, launch, preflight, store, terminal, views
from torch_doctor.sessions.spec import Spec


@dataclass(frozen=True)
class Wanted:
    """What the user asked for; see the options of ``run``. ``log_size`` in bytes, 0 for no rotation."""

    command: tuple[str, ...]
    name: str | None = None
    backend: str = "auto"
    check: str = "warn"
    restarts: int = 0
    grace: float = 30.0
    environment: tuple[str, ...] = ()
    cwd: Path | None = None
    log_bytes: int = 0
    postmortem: bool = True


class Refused(DoctorError):
    """The preflight found an error, and --check strict was asked for."""

    exit_status = 1


class CommandMissing(DoctorError):
    """The command could not be started; ends with the status that a shell gives for that."""

    def __init__(self, name: str, status: int, reason: str) -> None:
        super().__init__(name, f"cannot be started: {reason}")
        self.exit_status = status


def begin(wanted: Wanted) -> Path:
    """Start a session; its folder, once the command runs.

    Raises:
        DoctorError: wrong input, a name that runs already, a preflight that forbids the launch (Refused), a
            command that is not there (CommandMissing).
    """
    cwd = (wanted.cwd or Path.cwd()).absolute()
    if not cwd.is_dir():
        raise DoctorError(f"--cwd {wanted.cwd}", "is not a folder")
    added = environment.parse(list(wanted.environment), os.environ)
    backend = views.choose(wanted.backend, os.environ)
    script = commands.find_script(wanted.command, cwd)
    place = launch.reserve(wanted.name, wanted.command, script)
    with contextlib.ExitStack() as unless_started:
        unless_started.callback(place.release)
        report = _preflight(wanted.check, script, cwd)
        launch.keep_previous(place)
        unless_started.pop_all()
    if report:
        store.write_private(place.folder / store.PREFLIGHT, report)
    term = terminal.inner_term(backend, os.environ)
    settings = environment.for_command(os.environ, added, place.name, place.folder, term)
    failure = launch.start(_spec(wanted, place, cwd, backend), place, settings)
    if failure is not None:
        raise CommandMissing(place.name, failure.status, failure.reason)
    return place.folder


def _preflight(wish: str, script: Path | None, cwd: Path) -> str:
    if wish == "off":
        return ""
    found = preflight.run(script, cwd)
    print("\n".join(preflight.lines(found)), file=sys.stderr)
    if wish == "strict" and (found.errors or found.failure):
        raise Refused("--check strict", "not started: the preflight found an error", "--check warn starts it anyway")
    return found.text


def _spec(wanted: Wanted, place: launch.Place, cwd: Path, backend: str) -> Spec:
    rows, columns = terminal.size_of(1) or (terminal.DEFAULT_ROWS, terminal.DEFAULT_COLUMNS)
    explain = ("explain", "--session", place.name, "--format", "json")
    output = ("--output", str(place.folder / store.POSTMORTEM))
    return Spec(
        name=place.name,
        folder=str(place.folder),
        command=wanted.command,
        cwd=str(cwd),
        backend=backend,
        grace=wanted.grace,
        restarts=wanted.restarts,
        rows=rows,
        columns=columns,
        log_limit_bytes=wanted.log_bytes,
        sockets=launch.sockets(place),
        spill=str(store.fallback_to(place.folder).with_suffix(".log-tail")),
        postmortem=tuple(launch.doctor_command(*explain, *output)) if wanted.postmortem else (),
    )


def restarts(text: str) -> int:
    """``on-failure:3`` as 3, ``no`` as 0; as docker writes it.

    Raises:
        DoctorError: where it is neither.
    """
    if text == "no":
        return 0
    word, _, number = text.partition(":")
    if word == "on-failure" and number.isdigit():
        return int(number)
    raise DoctorError(f"--restart {text}", "is not 'no' or 'on-failure:N'", "--restart on-failure:3")


def size(text: str) -> int:
    """``100m`` as bytes; b, k, m, g as docker writes them, ``0`` for none.

    Raises:
        DoctorError: where it is no size.
    """
    units = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    digits = text.rstrip("bBkKmMgG")
    unit = text[len(digits) :].lower()
    if digits.isdigit() and unit in units:
        return int(digits) * units[unit]
    raise DoctorError(f"--log-size {text}", "is not a size", "--log-size 100m")

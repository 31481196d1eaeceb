"""Starts a session: takes its name, keeps what an earlier run of that name left, starts the supervisor."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_doctor.errors import CannotRun, DoctorError
from torch_doctor.sessions import child, lock, names, places, proc, spec, state, store
from torch_doctor.sessions.spec import Spec

#: what the supervisor itself complains about: empty unless it has a bug
ERRORS = "supervisor.err"
_ROOT = Path(__file__).resolve().parents[2]
#: isolated, so that neither the user's folder nor PYTHON* variables reach it; no site-packages, so that it starts
#: at once
_LIGHT = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torch_doctor.sessions.{module} import main; main(*sys.argv[1:])"
)
_WHOLE = (
    "import sys; sys.path[0:1] = []; sys.path.append(sys.argv.pop(1)); from torch_doctor.cli.app import main; main()"
)


@dataclass(frozen=True)
class Place:
    """A name that is ours: its folder and the descriptor that holds its lock."""

    name: str
    folder: Path
    lock: int

    def release(self) -> None:
        """Give the name up, and the folder where nothing is in it but the lock."""
        with contextlib.suppress(OSError):
            if {p.name for p in self.folder.iterdir()} <= {store.LOCK}:
                shutil.rmtree(self.folder)
        os.close(self.lock)


def light_command(module: str, *arguments: str, site: bool = False) -> list[str]:
    """A command that runs ``main`` of a module of this package; without ``site``, on the standard library only."""
    options = ["-I"] if site else ["-I", "-S"]
    return [sys.executable, *options, "-c", _LIGHT.format(module=module), str(_ROOT), *arguments]


def doctor_command(*arguments: str) -> list[str]:
    """``torch-doctor ARGUMENTS`` under this interpreter, unmoved by modules in the working directory."""
    return [sys.executable, "-c", _WHOLE, str(_ROOT), *arguments]


def reserve(name: str | None, command: Sequence[str], script: Path | None) -> Place:
    """Take a name; without one the first that is free for this command.

    Raises:
        DoctorError: where the name is not valid, or a session of it is running.
        CannotRun: where no state folder can be written.
    """
    root = places.writable_root()
    if name is not None:
        return _named(root, names.validated(name))
    for proposal in names.proposals(command, str(script) if script else None):
        folder = root / "sessions" / proposal
        if (folder / store.STATE).exists():
            continue
        held = _acquire(folder, patience=0.0)
        if held is not None and not (folder / store.STATE).exists():
            return Place(proposal, folder, held)
        if held is not None:
            os.close(held)
    raise CannotRun(str(root), "holds too many sessions", "torch-doctor rm --ended")


def _named(root: Path, name: str) -> Place:
    folder = root / "sessions" / name
    for other in places.roots():
        if other != root and lock.is_held(other / "sessions" / name):
            raise _running(name)
    held = _acquire(folder, lock.READER_SECONDS)
    if held is None:
        raise _running(name)
    leftovers = proc.of_session(name, str(folder), proc.all_processes())
    if leftovers:
        os.close(held)
        listed = ", ".join(map(str, leftovers[:5]))
        raise DoctorError(name, f"processes of an earlier run still live: {listed}", f"torch-doctor stop {name}")
    return Place(name, folder, held)


def _running(name: str) -> DoctorError:
    hint = f"torch-doctor attach {name}, torch-doctor stop {name}, or another --name"
    return DoctorError(name, "a session of this name is already running", hint)


def _acquire(folder: Path, patience: float) -> int | None:
    try:
        return lock.acquire(folder, patience)
    except OSError as error:
        raise CannotRun(str(folder), f"cannot be written: {error.strerror}") from error


def keep_previous(place: Place) -> None:
    """Move what an earlier run of this name left to ``previous/N``."""
    left = [p for p in place.folder.iterdir() if p.name not in (store.LOCK, store.PREVIOUS)]
    with contextlib.suppress(OSError, DoctorError):
        store.fallback_to(place.folder).unlink(missing_ok=True)
    if not left:
        return
    before = place.folder / store.PREVIOUS
    before.mkdir(mode=0o700, exist_ok=True)
    number = 1 + max((int(p.name) for p in before.iterdir() if p.name.isdigit()), default=0)
    target = before / str(number)
    target.mkdir(mode=0o700)
    for path in left:
        path.replace(target / path.name)


def sockets(place: Place) -> tuple[str, ...]:
    """Where the supervisor may put its socket: beside the state, else in the runtime folder."""
    found = [str(place.folder / "sock")]
    with contextlib.suppress(OSError, DoctorError):
        found.append(str(places.runtime_folder(place.folder.parent.parent) / f"{place.name}.sock"))
    return tuple(found)


def start(wanted: Spec, place: Place, environment: Mapping[str, str]) -> child.CannotStart | None:
    """Start the supervisor and wait until the command runs.

    Returns:
        None, or why the command could not be started.

    Raises:
        CannotRun: where the supervisor itself did not come up.
    """
    ready, told = os.pipe2(os.O_CLOEXEC)
    path = place.folder / spec.FILE
    dataclasses.replace(wanted, lock=place.lock, ready=told).save(path)
    store.write_private(place.folder / ERRORS, "")
    with (place.folder / ERRORS).open("wb") as errors:
        supervisor = subprocess.Popen(
            light_command("supervisor", str(path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=dict(environment),
            start_new_session=True,
            pass_fds=(place.lock, told),
        )
    os.close(told)
    os.close(place.lock)
    with os.fdopen(ready, "rb") as stream:
        answer = stream.read()
    if not answer:
        text = (place.folder / ERRORS).read_text(encoding="utf-8", errors="replace").strip()
        raise CannotRun(wanted.name, f"the supervisor ended ({supervisor.wait()}): {text.splitlines()[-1:]}")
    values = json.loads(answer)
    supervisor.returncode = 0  # it outlives this process on purpose: no warning about that
    return None if "pid" in values else child.CannotStart(**values)


def in_preflight() -> list[Path]:
    """Folders of the sessions that are taken and not started yet: their preflight is going on."""
    return [place for place in store.unstarted_folders() if lock.is_held(place)]


def current(place: Path) -> state.State:
    """The state of a session as it is: ``lost`` where its supervisor is gone and did not record the end.

    Raises:
        DoctorError: where it cannot be read.
    """
    known = store.read(place)
    if not known.live:
        return known
    held = lock.is_held(place)
    if held is None:
        held = proc.alive(known.supervisor) or proc.elsewhere(known.supervisor)
    if held:
        return known
    known = store.read(place)  # it may have ended between the two looks
    return dataclasses.replace(known, status=state.LOST) if known.live else known

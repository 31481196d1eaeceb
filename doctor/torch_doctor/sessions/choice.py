"""Which session a command means when its name may be left out."""

from __future__ import annotations

from pathlib import Path

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import launch, store


def one(name: str | None, *, running: bool = False) -> Path:
    """The folder of the session named, or of the only one there is.

    Args:
        name: as the user gave it.
        running: the command makes sense for a running session: the only running one is meant, too.

    Raises:
        DoctorError: where there is none, or more than one could be meant.
    """
    if name is not None:
        if name in (p.name for p in launch.in_preflight()):
            raise _not_started(name)
        return store.folder(name)
    places = sorted(store.session_folders())
    if len(places) > 1 and running:
        live = [p for p in places if launch.current(p).live]
        places = live if len(live) == 1 else places
    if not places:
        for beginning in launch.in_preflight():
            raise _not_started(beginning.name)
        raise DoctorError("session", "there is none", "torch-doctor run -- python train.py")
    if len(places) > 1:
        listed = ", ".join(p.name for p in places[:8])
        raise DoctorError("session", f"there are several ({listed}{', ...' if len(places) > 8 else ''})", "name one")
    return places[0]


def _not_started(name: str) -> DoctorError:
    return DoctorError(name, "is in its preflight and has not started yet", "try again in a moment: torch-doctor ps")

"""``rm``: takes the folders of ended sessions away."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch_doctor.errors import CannotRun, DoctorError
from torch_doctor.sessions import choice, launch, lock, proc, store


def remove(names: Sequence[str], ended: bool) -> Iterator[str]:
    """Remove sessions; yields the name of each that is gone.

    Args:
        names: which; none for the only one there is.
        ended: all that have ended.

    Raises:
        DoctorError: where one of them still runs.
    """
    if ended:
        places = [p for p in sorted(store.session_folders()) if not _current_live(p)]
    else:
        places = [store.folder(n) for n in names] or [choice.one(None)]
    for place in places:
        _remove(place)
        yield place.name


def _current_live(place: Path) -> bool:
    try:
        return launch.current(place).live
    except DoctorError:
        return False


def _remove(place: Path) -> None:
    held = lock.acquire(place)
    if held is None:
        raise DoctorError(place.name, "is running", f"torch-doctor stop {place.name}")
    try:
        if proc.of_session(place.name, str(place), proc.all_processes()):
            raise DoctorError(place.name, "processes of it still run", f"torch-doctor stop {place.name}")
        with contextlib.suppress(OSError, DoctorError):
            store.fallback_to(place).unlink(missing_ok=True)
            store.fallback_to(place).with_suffix(".log-tail").unlink(missing_ok=True)
        # away under another name first: a run of this name must not meet half a folder
        gone = place.with_name(f".{place.name}.{os.getpid()}")
        place.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise CannotRun(str(place), f"cannot be removed: {error.strerror}") from error
    finally:
        os.close(held)

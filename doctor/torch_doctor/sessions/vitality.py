"""``health``: a lost GPU and a dead session, at once, and nothing else."""

from __future__ import annotations

from torch_doctor.errors import DoctorError
from torch_doctor.sessions import gpu, launch, proc, state, store
from torch_doctor.sessions.state import State


def look() -> tuple[bool, str]:
    """Whether all is well, and one line that says what is not."""
    gpus = gpu.health()
    dead, running = [], 0
    for place in sorted(store.session_folders()):
        try:
            known = launch.current(place)
        except DoctorError:
            continue  # half removed; rm tells
        running += known.live
        if died(known):
            dead.append(f"session {known.name} {known.status}{_why(known)}")
    faults = ([gpus.fault] if gpus.fault else []) + dead
    if faults:
        return False, "; ".join(faults)
    return True, f"ok: {running} running, {f'{gpus.gpus} GPUs answer' if gpus.gpus else 'no GPU'}"


def died(known: State) -> bool:
    """True where a session of this container, or of this boot of the machine, died without being asked to.

    What an earlier container left in a volume says nothing about this one.
    """
    if known.status not in (state.FAILED, state.LOST):
        return False
    return not proc.elsewhere(known.supervisor)


def _why(known: State) -> str:
    return f" ({known.exit.reason})" if known.exit and known.status == state.FAILED else ""

"""``attach``, and what ``run`` does after the start: show the session, and end with its status where it ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torch_doctor.sessions import client, foreground, launch, log, proc, store, views
from torch_doctor.sessions.state import State
from torch_doctor.sessions.views import Subject

#: of a session that has ended, shown by ``attach``
LAST_LINES = 20


def attach(place: Path, user_config: bool = False) -> int:
    """Show a session; the exit status: the child's where it ended, 0 where the user detached."""
    known = launch.current(place)
    if not known.live:
        _show_end_of_log(place)
        return end(known)
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _attach_terminal(place, known, user_config)
    try:
        return end(foreground.stream(place, _stdout()))
    except KeyboardInterrupt:
        return detached(known)


def after_start(place: Path, detach: bool, user_config: bool = False) -> int:
    """What ``run`` does once the command runs; its exit status."""
    known = launch.current(place)
    main = proc.is_container_main()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if detach and not main:
        print(place.name)
        _tell([f"{place.name}: running; torch-doctor attach {place.name}"])
        return 0
    if terminal and not main:
        return _attach_terminal(place, known, user_config)
    with foreground.passing_signals(place, main):
        if terminal and not detach:
            status = _attach_terminal(place, known, user_config)
            if launch.current(place).live:
                _tell(["the container lives on with the run; Ctrl-p Ctrl-q leaves it"])
                status = end(foreground.stream(place, _stdout()))
        else:
            status = end(foreground.stream(place, _stdout(), offset=log.BEGINNING))
        if main:
            foreground.let_others_end()
        return status


def end(known: State) -> int:
    """Tell how a session ended; its exit status."""
    _tell(client.ended_lines(known))
    return client.ended_status(known)


def detached(known: State) -> int:
    """Tell that it goes on."""
    _tell([f"{known.name}: detached, it goes on; torch-doctor attach {known.name}"])
    return 0


def _attach_terminal(place: Path, known: State, user_config: bool) -> int:
    order = [known.backend, *(b for b in views.BACKENDS if b != known.backend)]
    for name in order:
        backend = views.backend(name)
        reason = backend.unusable(os.environ) or backend.attach(Subject(place.name, place, user_config), os.environ)
        if not reason:
            break
        _tell([f"{place.name}: no view by {name}: {reason}"])
    now = launch.current(place)
    if now.live:
        return detached(now)
    _show_end_of_log(place)
    return end(now)


def _show_end_of_log(place: Path) -> None:
    path = place / store.LOG
    try:
        for block in log.chunks(path, log.tail_offset(path, LAST_LINES)):
            os.write(_stdout(), block)
    except OSError:
        return


def _stdout() -> int:
    sys.stdout.flush()
    return sys.stdout.fileno()


def _tell(lines: list[str]) -> None:
    for line in lines:
        print(line.encode(sys.stderr.encoding or "ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)

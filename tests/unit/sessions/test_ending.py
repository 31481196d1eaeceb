"""What a command leaves behind: a moment, SIGTERM, SIGKILL, and an end that always comes."""

from __future__ import annotations

import signal
import time

from torch_doctor.sessions.ending import GIVE_UP_SECONDS, NATURAL_SECONDS, SURVIVORS_SECONDS, Ending, Stop
from torch_doctor.sessions.state import Exit


def test_nothing_left_is_the_end() -> None:
    assert Ending(Exit(0), 30, False).next_signal(False, time.monotonic()) is None


def test_a_moment_then_sigterm_then_sigkill_then_the_end() -> None:
    ending, now = Ending(Exit(0), 30, stopped=False), time.monotonic()
    assert ending.next_signal(True, now) == 0
    assert ending.next_signal(True, now + NATURAL_SECONDS + 0.1) == signal.SIGTERM
    assert ending.next_signal(True, now + NATURAL_SECONDS + 0.2) == 0, "once"
    late = now + NATURAL_SECONDS + SURVIVORS_SECONDS + 0.1
    assert ending.next_signal(True, late) == ending.next_signal(True, late + 1) == signal.SIGKILL
    assert ending.next_signal(True, late + GIVE_UP_SECONDS) is None, "uninterruptible sleep"


def test_a_stop_gives_what_is_left_the_rest_of_its_grace() -> None:
    ending, now = Ending(Exit(0), 20, stopped=True), time.monotonic()
    assert ending.next_signal(True, now + 15) == signal.SIGTERM
    assert ending.next_signal(True, now + 19) == 0
    assert ending.next_signal(True, now + 21) == signal.SIGKILL


def test_a_stop_during_the_end_brings_it_nearer() -> None:
    ending, now = Ending(Exit(0), 30, stopped=False), time.monotonic()
    ending.hurry(0, now)
    assert ending.next_signal(True, now) == signal.SIGKILL


def test_a_second_stop_shortens_and_never_lengthens() -> None:
    first = Stop("stop", signal.SIGTERM, 30)
    assert first.shortened(1).left(time.monotonic()) <= 1
    assert first.shortened(600).left(time.monotonic()) <= 30

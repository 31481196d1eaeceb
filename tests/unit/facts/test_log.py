"""What a log is asked before its lines are looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torch_doctor.facts.log import Line, LogFacts

LINES = st.lists(st.text(alphabet="ab 137\t:", max_size=9), max_size=6)


def log(lines: list[str]) -> LogFacts:
    return LogFacts("train.log", 0, len(lines), tuple(Line(i, text) for i, text in enumerate(lines, 1)))


@given(LINES, st.data())
def test_what_is_in_the_text_may_be_held(lines: list[str], data: st.DataObject) -> None:
    facts = log(lines)
    start = data.draw(st.integers(0, len(facts.text)))
    end = data.draw(st.integers(start, len(facts.text)))
    assert facts.may_hold(facts.text[start:end])


@given(LINES, st.text(alphabet="ab 137\n", min_size=1, max_size=4))
def test_what_is_not_in_the_text_is_not_held_but_for_a_zero(lines: list[str], needle: str) -> None:
    facts = log(lines)
    assert facts.may_hold(needle) == (needle in facts.text)

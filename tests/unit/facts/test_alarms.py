"""Which lines are worth keeping: words of failure, not names of metrics."""

from __future__ import annotations

from torch_doctor.facts.alarms import alarming


def test_a_word_counts_at_the_end_of_the_last_line() -> None:
    assert alarming([b"step 3", b"loss nan"]) == {1}


def test_a_path_after_the_colon_is_no_figure() -> None:
    assert alarming([b"OSError: ./runs/exp1 is gone"]) == {0}


def test_a_metric_with_a_frightening_name_does_not_count() -> None:
    assert alarming([b"it=3 error: .25 loss=2.5 val_err = 1e-3"]) == set()

"""The error that ended a run: which line it is, and where what led to it begins."""

from __future__ import annotations

import io

from torch_doctor.diagnose.endings import Ending, ending, uncaught
from torch_doctor.facts.log import LogFacts
from torch_doctor.probes.log import read

RANKS = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/app/train.py", line 3, in <module>\n'
    "[rank1]:     shard.check()\n"
    "[rank1]: ValueError: bad sample 17 in shard 3\n"
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/app/train.py", line 9, in <module>\n'
    "[rank0]:     dist.all_reduce(x)\n"
    "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:47331\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 5)\n"
)
TRACE = 'Traceback (most recent call last):\n  File "/app/a.py", line 1, in f\n    g()\n'
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"


def log(text: str) -> LogFacts:
    return read(io.BytesIO(text.encode()), "train.log")


def shown(text: str) -> str:
    facts = log(text)
    index = uncaught(facts)
    return "" if index is None else facts.lines[index].text


def test_the_rank_that_failed_first_not_the_one_that_lost_its_peer() -> None:
    assert shown(RANKS) == "ValueError: bad sample 17 in shard 3"


def test_the_first_of_a_chain_of_causes() -> None:
    assert shown(f"{TRACE}WidgetError: not aligned\n{CHAIN}{TRACE}PipelineError: step failed\n") == (
        "WidgetError: not aligned"
    )


def test_an_exception_whose_name_does_not_end_in_error() -> None:
    assert shown(f"{TRACE}mylib.TooBig: 7 of 5\n") == "mylib.TooBig: 7 of 5"


def test_an_error_line_outside_of_a_traceback_is_none() -> None:
    assert shown("ERROR could not send metrics\nepoch 1 loss 0.3\n") == ""


def test_the_last_line_of_a_traceback_alone_is_one_where_only_echoes_have_theirs() -> None:
    echo = f"{TRACE}BrokenPipeError: [Errno 32] Broken pipe\n"
    assert shown(f"KeyError: 'mask'\n{echo}") == "KeyError: 'mask'"
    assert shown(f"KeyError: 'mask'\n{TRACE}WidgetError: not aligned\n") == "WidgetError: not aligned"


def test_an_echo_alone_is_none() -> None:
    assert shown(f"{TRACE}BrokenPipeError: [Errno 32] Broken pipe\n") == ""


def test_the_error_of_a_notebook_whose_frames_are_not_indented() -> None:
    text = (
        "WidgetError                               Traceback (most recent call last)\n"
        "Cell In[14], line 3\n      1 for epoch in range(10):\n----> 3     train(x)\n\n"
        "File ~/model.py:12, in train(x)\n---> 12     check(x)\n\nWidgetError: not aligned\n"
    )
    assert shown(text) == "WidgetError: not aligned"


def test_the_error_under_a_box_of_rich() -> None:
    text = (
        "╭───────── Traceback (most recent call last) ─────────╮\n│ /w/train.py:88 in main       │\n"
        "╰─────────────────────────────────────────────────────╯\nmylib.TooBig: 7 of 5\n"
    )
    assert shown(text) == "mylib.TooBig: 7 of 5"


def test_a_traceback_whose_indents_a_collector_took_off() -> None:
    flat = "\n".join(line.strip() for line in TRACE.splitlines())
    assert (
        shown(f"{flat}\nWidgetError: not aligned\ncomm 0x7f rank 0 - Abort COMPLETE\n") == "WidgetError: not aligned"
    )


def test_the_traceback_that_torchrun_repeats_in_its_summary() -> None:
    text = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 993)\n"
        '  traceback : Traceback (most recent call last):\n    File "/ws/t.py", line 70, in main\n      load()\n'
        "  OSError: /models/x has no config.json\n"
    )
    assert shown(text) == "  OSError: /models/x has no config.json"


def test_an_error_of_the_store_is_an_echo_of_the_rank_that_failed() -> None:
    lost = "[rank0]: torch.distributed.DistBackendError: watchdog thread terminated\n"
    ranks = "".join(f"[rank{r}]: {line}\n" for r in (0, 1) for line in TRACE.splitlines()[:1])
    assert shown(f"{ranks}{lost}[rank1]: WidgetError: not aligned\n") == "WidgetError: not aligned"


DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def end_of(text: str) -> Ending:
    found = ending(log(text))
    assert found is not None
    return found


def test_an_ending_begins_with_the_first_traceback_of_its_chain() -> None:
    end = end_of(f"step 1\n{TRACE}OSError: gone\n{DURING}{TRACE}KeyError: 'mask'\n")
    assert (end.first, end.handled, end.last, end.of_program) == (1, 8, 11, True)
    assert not end.holds(0)
    assert end.holds(1)


def test_a_traceback_that_was_logged_before_is_not_of_the_chain() -> None:
    end = end_of(f"{TRACE}OSError: gone\nretrying\n{TRACE}WidgetError: not aligned\n")
    assert (end.first, end.handled, end.of_program) == (5, 5, False)


def test_what_a_worker_raised_belongs_to_what_the_loader_raised_of_it() -> None:
    text = f"{TRACE}KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal {TRACE}KeyError: 'mask'\n"
    end = end_of(f"step 1\n{text}")
    assert (end.first, end.handled, end.last) == (1, 1, 8)


def test_another_ranks_lines_between_do_not_cut_a_chain() -> None:
    mine = "".join(f"[rank1]: {x}\n[rank0]: step 1\n" for x in f"{TRACE}OSError: gone{DURING}{TRACE}".splitlines())
    end = end_of(f"{mine}[rank1]: WidgetError: not aligned\n")
    assert (end.first, end.rank) == (0, 1)
    assert end.handled > end.first


def test_a_run_that_raised_nothing_has_no_ending() -> None:
    assert ending(log("step 1 loss 2.1\nKilled\n")) is None

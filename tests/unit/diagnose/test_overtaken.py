"""What a run got over is not what ended it."""

from __future__ import annotations

from pathlib import Path

from torch_doctor import postmortem
from torch_doctor.facts.request import Request

NO_MODULE = (
    'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n    import einops\n'
    "ModuleNotFoundError: No module named 'einops'\n"
)
UNKNOWN = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in step\n    self.align()\n'
    "WidgetError: the widget is not aligned\n"
)


def first(text: str, folder: Path) -> tuple[str, str]:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    check, finding = postmortem.explain(Request(log=path)).findings()[0]
    return check.id, finding.message


def test_an_option_that_was_missed_is_not_what_ended_the_run(tmp_path: Path) -> None:
    text = "No module named 'apex'\nModuleNotFoundError: No module named 'apex' (optional)\nstep 1 loss 2.1\n"
    assert first(text + NO_MODULE, tmp_path) == (
        "PKG206",
        "the module einops is not installed in the Python that ran",
    )


def test_a_warning_gives_way_to_a_sure_cause_in_the_traceback(tmp_path: Path) -> None:
    text = "mkdir -p failed for path /.config/matplotlib: [Errno 13] Permission denied: '/.config'\n"
    assert first(text + NO_MODULE, tmp_path)[0] == "PKG206"


def test_what_training_got_over_does_not_explain_an_unknown_error(tmp_path: Path) -> None:
    text = "could not resume: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    assert first(text + "step 1 loss 2.1\n" + UNKNOWN, tmp_path)[0] == "SES299"
    assert first(text + UNKNOWN, tmp_path)[0] == "CKP205"


def test_a_full_disk_stays_behind_what_nobody_knows(tmp_path: Path) -> None:
    text = "tee: train.log: No space left on device\nstep 1 loss 2.1\n"
    assert first(text + UNKNOWN, tmp_path)[0] == "FS206"


def test_what_explains_the_traceback_stays_first(tmp_path: Path) -> None:
    text = "tee: train.log: No space left on device\nstep 1 loss 2.1\nTraceback (most recent call last):\n"
    text += '  File "train.py", line 7, in save\nRuntimeError: [enforce fail at inline_container.cc:471] . '
    text += "PytorchStreamWriter failed writing file data/807: file write failed\n"
    assert first(text, tmp_path)[0] in ("FS206", "CKP206")


def test_the_last_word_of_several_files_that_are_missed(tmp_path: Path) -> None:
    text = "warning: FileNotFoundError: [Errno 2] No such file or directory: 'local.yaml'\nstep 1 loss 2.1\n"
    text += "Traceback (most recent call last):\n"
    text += "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'\n"
    identity, message = first(text, tmp_path)
    assert identity == "FS208"
    assert "data/train.csv" in message


HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"


def test_what_was_handled_gives_way_to_a_sure_cause_that_was_raised_meanwhile(tmp_path: Path) -> None:
    text = NO_MODULE.replace("einops", "apex") + HANDLED + NO_MODULE
    assert "einops" in first(text, tmp_path)[1]


def test_what_was_handled_stays_behind_what_nobody_knows(tmp_path: Path) -> None:
    assert first(NO_MODULE + HANDLED + UNKNOWN, tmp_path)[0] == "PKG206"


def test_the_direct_cause_of_an_exception_is_not_handled(tmp_path: Path) -> None:
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = NO_MODULE + direct + NO_MODULE.replace("einops", "apex")
    assert "einops" in first(text, tmp_path)[1]


def test_an_echo_of_another_rank_does_not_outweigh_the_rank_that_failed(tmp_path: Path) -> None:
    lost = 'Traceback (most recent call last):\n  File "train.py", line 9, in send\n'
    lost += "BrokenPipeError: [Errno 32] Broken pipe\n"
    text = "".join(f"[rank1]: {line}\n" for line in lost.splitlines())
    text += "".join(f"[rank0]: {line}\n" for line in UNKNOWN.splitlines())
    assert first(text, tmp_path)[0] == "SES299"


def test_an_echo_after_the_error_does_not_outweigh_it(tmp_path: Path) -> None:
    text = UNKNOWN + "BrokenPipeError: [Errno 32] Broken pipe\n"
    assert first(text, tmp_path)[0] == "SES299"


def test_an_exception_that_was_shown_before_stays_behind_a_sure_cause(tmp_path: Path) -> None:
    shown = 'Traceback (most recent call last):\n  File "train.py", line 5, in load\nRuntimeError: '
    shown += "PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    assert first(f"{shown}cleaning up\n{NO_MODULE}", tmp_path)[0] == "CKP205"


def test_a_damaged_file_that_was_logged_stays_behind_another_fault_of_checkpoints(tmp_path: Path) -> None:
    text = "ERROR in a.pt: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    text += 'Traceback (most recent call last):\n  File "train.py", line 5, in load\nRuntimeError: '
    text += 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". \n'
    assert first(text, tmp_path)[0] == "CKP205"

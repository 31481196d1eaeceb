"""``explain --session``: the log of a session with what its supervisor saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import torch_doctor

from torch_doctor.sessions import state, store
from torch_doctor.sessions.state import Attempt, Exit, State


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


def session(root: Path, log: str, how: Exit, status: str = state.FAILED, offset: int = 0, **files: Any) -> None:
    folder = root / "sessions" / "exp1"
    folder.mkdir(parents=True)
    (folder / store.LOG).write_text(log)
    for name, values in files.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    known = State(
        "exp1", ("python", "train.py"), cwd=str(root), status=status, attempts=(Attempt(log_offset=offset),), exit=how
    )
    store.write(folder, known)


def explain(root: Path) -> dict[str, Any]:
    done = torch_doctor("explain", "--session", "exp1", "--format", "json", env={"TORCH_DOCTOR_STATE_DIR": str(root)})
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


STEPS = "epoch 0 step 0 loss 2.1\nepoch 0 step 50 loss 1.9\n"


def test_an_oom_kill_without_a_word_in_the_log(root: Path) -> None:
    session(root, STEPS, Exit(137, "SIGKILL", oom_kills=1, memory_limit_bytes=8 << 30))
    finding = explain(root)["findings"][0]
    assert finding["id"] == "MEM207"
    assert "8 GiB" in finding["message"]


def test_an_end_on_request_is_no_failure(root: Path) -> None:
    log = STEPS + "Received 15 death signal, shutting down workers\n"
    session(root, log, Exit(143, "SIGTERM", stopped_by="stop", oom_kills=0), state.STOPPED)
    report = explain(root)
    assert report["exit_code"] == 0
    assert [(f["id"], f["severity"]) for f in report["findings"]] == [("SES231", "note")]


def test_a_crash_without_a_word_in_the_log(root: Path) -> None:
    session(root, STEPS, Exit(139, "SIGSEGV", oom_kills=0))
    finding = explain(root)["findings"][0]
    assert finding["id"] == "SES232"
    assert "SIGSEGV" in finding["message"]


def test_the_log_names_the_cause_and_the_record_proves_it(root: Path) -> None:
    log = STEPS + "RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed.\n"
    session(root, log, Exit(1, oom_kills=2))
    findings = explain(root)["findings"]
    assert findings[0]["id"] == "MEM203"
    assert "counted 2 OOM kills" in findings[0]["message"]


def test_only_the_last_attempt_is_meant(root: Path) -> None:
    first = STEPS + "RuntimeError: Trying to backward through the graph a second time\n"
    second = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    session(root, first + second, Exit(1), offset=len(first))
    assert explain(root)["findings"][0]["id"] == "GPU206"


def test_what_the_preflight_saw_decides(root: Path) -> None:
    log = STEPS + "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.\n"
    session(root, log, Exit(1, shm_size_bytes=64 << 20, shm_free_bytes=60 << 20), preflight={"facts": {}})
    assert "it has 64 MiB" in explain(root)["findings"][0]["message"]


def test_a_session_that_ended_well_has_nothing_red(root: Path) -> None:
    session(root, STEPS + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n", Exit(0), state.DONE)
    report = explain(root)
    assert (report["exit_code"], report["findings"]) == (0, [])


def test_run_explains_a_failure_by_itself(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "print('step 1 loss 2.0')\nraise RuntimeError('Trying to backward through the graph a second time')\n"
    )
    env = {"TORCH_DOCTOR_STATE_DIR": str(root), "TORCH_DOCTOR_PREFLIGHT": "off"}
    done = torch_doctor("run", "--name", "exp1", "--", sys.executable, script, env=env, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads((root / "sessions" / "exp1" / "postmortem.json").read_text())
    assert found["findings"][0]["id"] == "GRD201"
    assert found["findings"][0]["evidence"]["frame"]["line"] == 2

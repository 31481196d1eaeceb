"""``torch-doctor explain`` as a user types it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.command import environment, torch_doctor

CORPUS = Path(__file__).parents[1] / "corpus" / "explain"
KILLED = "RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed.\n"
BUS = (
    "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit.\n"
)


def explain(*args: str | Path, **how: object) -> tuple[int, dict[str, object]]:
    done = torch_doctor("explain", *args, "--format", "json", **how)  # type: ignore[arg-type]
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_root_cause_is_first_and_its_echoes_after() -> None:
    status, report = explain(CORPUS / "logs" / "c01-bus-shm.log")
    findings = report["findings"]
    assert status == report["exit_code"] == 1
    assert report["command"] == "explain"
    assert findings[0]["id"] == "SHM201"
    assert "role" not in findings[0]
    assert [f["role"] for f in findings[1:]] == ["consequence"] * (len(findings) - 1)
    assert findings[0]["location"]["line"] == 7
    assert findings[0]["evidence"]["text"][0].startswith("ERROR: Unexpected bus error")


def test_a_log_on_standard_input() -> None:
    for args in ((), ("-",)):
        status, report = explain(*args, input=KILLED)
        assert (status, report["findings"][0]["id"]) == (1, "MEM203")
        assert report["findings"][0]["location"]["path"] == "<stdin>"


def test_a_healthy_log_gives_nothing(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("epoch 0 step 0 loss 2.1\nepoch 0 step 50 loss 1.9\nTraining complete\n")
    status, report = explain(log)
    assert (status, report["findings"]) == (0, [])


def test_an_unknown_failure_is_said_to_be_one(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        'step 1 loss 2\nTraceback (most recent call last):\n  File "a.py", line 1\nWidgetError: not aligned\n'
    )
    status, report = explain(log)
    assert status == 0
    assert [f["severity"] for f in report["findings"]] == ["note"]
    assert "WidgetError: not aligned" in report["findings"][0]["message"]
    assert "no known cause" in report["findings"][0]["message"]


def test_facts_of_the_machine_decide(tmp_path: Path) -> None:
    log, facts = tmp_path / "train.log", tmp_path / "facts.json"
    log.write_text(BUS)
    facts.write_text(json.dumps({"facts": {"shm": {"size_bytes": 24 << 30, "free_bytes": 24 << 30}}}))
    _, report = explain(log, "--facts", facts)
    assert "memory-mapped file" in report["findings"][0]["message"]
    assert "24 GiB" in report["findings"][0]["message"]
    assert "/dev/shm, the shared memory" not in report["findings"][0]["message"]
    facts.write_text(json.dumps({"facts": {"shm": {"size_bytes": 64 << 20, "free_bytes": 64 << 20}}}))
    _, report = explain(log, "--facts", facts)
    assert "it has 64 MiB" in report["findings"][0]["message"]


def test_the_count_of_kills_decides_about_137(tmp_path: Path) -> None:
    log, facts = tmp_path / "train.log", tmp_path / "facts.json"
    log.write_text("epoch 0 step 0 loss 2.1\nrun.sh: line 3:  4242 Killed                  python train.py\n")
    facts.write_text(json.dumps({"facts": {"memory": {"oom_kills": 2}}}))
    assert "counted 2 OOM kills" in explain(log, "--facts", facts)[1]["findings"][0]["message"]
    facts.write_text(json.dumps({"facts": {"memory": {"oom_kills": 0}}}))
    assert "counted no OOM kill" in explain(log, "--facts", facts)[1]["findings"][0]["message"]


def test_what_check_measures_can_be_given_as_facts(tmp_path: Path) -> None:
    facts, log = tmp_path / "facts.json", tmp_path / "train.log"
    log.write_text(BUS)
    torch_doctor("check", "--select", "shm,mem", "--format", "json", "--output", facts)
    status, report = explain(log, "--facts", facts)
    assert status == 1
    assert report["facts"]["machine"]["shm"]["size_bytes"] > 0


def test_live_facts_are_taken_only_when_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(BUS)
    assert "machine" not in explain(log)[1]["facts"]
    assert explain(log, "--live")[1]["facts"]["machine"]["origin"] == "live"


def test_the_script_beside_the_log_is_linted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\nx = torch.ones(1, 2)\nx.cuda()\nmodel(x)\n"
    )
    log = tmp_path / "train.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "/workspace/train.py", line 5, in <module>\n    x.cuda()\n'
        '  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward\n'
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cpu!\n"
    )
    _, report = explain(log)
    evidence = report["findings"][0]["evidence"]
    assert evidence["frame"] == {"path": "/workspace/train.py", "line": 5, "function": "<module>"}
    assert evidence["lint"][0]["line"] == 5
    assert evidence["lint"][0]["id"] in report["findings"][0]["remediation"]["text"]


def test_a_bundle_holds_the_report_and_no_secrets(tmp_path: Path) -> None:
    log, out = tmp_path / "train.log", tmp_path / "out.tar.gz"
    log.write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx loading /home/jane/data\n" + KILLED)
    status, _ = explain(log, "--bundle", out)
    assert status == 1
    with tarfile.open(out) as archive:
        names = sorted(archive.getnames())
        texts = {n: archive.extractfile(n).read().decode() for n in names}  # type: ignore[union-attr]
    assert names == ["torch-doctor-bundle/log-excerpt.txt", "torch-doctor-bundle/report.json"]
    assert "hf_abcdefghij" not in "".join(texts.values())
    assert "jane" not in "".join(texts.values())
    assert json.loads(texts["torch-doctor-bundle/report.json"])["findings"][0]["id"] == "MEM203"
    assert "2 RuntimeError: DataLoader worker" in texts["torch-doctor-bundle/log-excerpt.txt"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("missing.log",), "there is no such file"),
        ((".",), "is a folder"),
        (("--session", "nobody"), "no session"),
        (("x.log", "--facts", "missing.json"), "no such file"),
        (("x.log", "--facts", "cut.json"), "cut.json: is no JSON"),
        (("x.log", "--facts", "list.json"), "list.json: is no report"),
        (("empty.log",), "empty.log: is empty"),
        (("-",), "<stdin>: is empty"),
        (("model.pt",), "model.pt: is no log"),
        ((sys.executable,), "is no log"),
    ],
)
def test_wrong_use_ends_with_2(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("a\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "cut.json").write_text("[1, 2")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + random.Random(1).randbytes(5000))
    done = torch_doctor("explain", *args, cwd=tmp_path, env={"TORCH_DOCTOR_STATE_DIR": str(tmp_path)})
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("noise", [b"\0" * 9000, bytes(range(128, 256)) * 9, b"epoch\b\b\b\b\b\x1b[2K" * 400])
def test_a_log_with_odd_bytes_is_still_a_log(noise: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_bytes(noise + b"\n" + KILLED.encode())
    status, report = explain(tmp_path / "odd.log")
    assert (status, report["findings"][0]["id"]) == (1, "MEM203")


def test_the_table_shows_the_line_that_proves_it() -> None:
    done = torch_doctor("explain", CORPUS / "logs" / "c06-other-proc.log")
    assert done.returncode == 1
    assert "MEM201 cuda-out-of-memory" in done.stdout
    assert "another process holds 15.3 GiB" in " ".join(done.stdout.split())
    assert "5 | torch.OutOfMemoryError: CUDA out of memory." in done.stdout


def test_every_cause_has_a_page(tmp_path: Path) -> None:
    done = torch_doctor("rule", "SHM201")
    assert done.returncode == 0
    for heading in ("What it checks", "Why it matters", "Example", "Fix", "References"):
        assert heading in done.stdout


def test_it_works_at_the_end_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(KILLED)
    command = f"cat train.log | {sys.executable} -m torch_doctor explain --fail-on never"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "MEM203" in done.stdout

"""``torch-doctor check`` as a user runs it: options, scripts, exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import torch_doctor

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.zeros(100, {row}))
loader = DataLoader(data, batch_size=64, num_workers=8)
"""


def report(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    done = torch_doctor("check", "--format", "json", *arguments, **options)
    assert done.stdout, done.stderr
    value = json.loads(done.stdout)
    assert isinstance(value, dict) and value["exit_code"] == done.returncode
    return value


def shm_bytes() -> int:
    space = os.statvfs("/dev/shm")
    return space.f_blocks * space.f_frsize


def test_a_script_that_needs_more_shared_memory_than_there_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADER.format(row=shm_bytes() // (4 * 64 * 2 * 8) * 2))
    found = report(script, "--select", "SHM001")
    (finding,) = found["findings"]
    assert (finding["id"], finding["severity"], found["exit_code"]) == ("SHM001", "error", 1)
    assert f"{script}:6: 8 workers x 2 batches x 64 samples" in finding["message"]
    script.write_text(LOADER.format(row=10))
    assert report(script, "--select", "SHM001")["findings"] == []


def test_the_size_of_a_sample_can_be_given(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from torch.utils.data import DataLoader\nDataLoader(d, batch_size=64, num_workers=8)\n")
    size = shm_bytes() // (64 * 2 * 8) * 2
    assert report(script, "--select", "SHM001", "--sample-bytes", str(size))["exit_code"] == 1
    assert report(script, "--select", "SHM001", "--sample-bytes", "1k")["exit_code"] == 0


def test_a_need_can_be_stated_on_the_command_line_and_in_the_environment() -> None:
    too_much = f"shm={shm_bytes() * 2}"
    assert report("--select", "SHM001", "--need", too_much)["exit_code"] == 1
    environment = {"TORCH_DOCTOR_NEED": f"gpus=1,{too_much}"}
    found = report("--select", "SHM001", env=environment)
    assert found["exit_code"] == 1 and found["facts"]["requirements"]["gpus"] == 1


def test_needs_in_a_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "torch-doctor.toml").write_text(f"[check.need]\nshm = '{shm_bytes() * 2}'\n")
    assert report("--select", "SHM001", cwd=tmp_path)["exit_code"] == 1


def test_options_arrive_as_facts(tmp_path: Path) -> None:
    found = report("--select", "SHM001", "--gpus", "all", "--need", "cpus=2", "--python", sys.executable)
    assert found["facts"]["requirements"]["gpus_asked"] == "--gpus all"
    assert found["facts"]["requirements"]["cpus"] == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.py"], "missing.py: no such file"),
        (["."], "is a folder"),
        (["--need", "bogus=1"], "unknown need 'bogus'"),
        (["--need", "shm=lots"], "'lots' is not a size"),
        (["--gpus", "many"], "'many' is not a number of GPUs"),
        (["--sample-bytes", "-1"], "'-1' is not a size"),
        (["--python", "/no/python"], "--python /no/python"),
        (["--data", "/no/data"], "/no/data"),
    ],
)
def test_wrong_usage_ends_with_2_and_names_the_input(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = torch_doctor("check", "--select", "SHM001", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    assert told in done.stderr


def test_a_script_that_does_not_parse_still_gets_the_machine_judged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def (\n")
    found = report(script, "--select", "SHM001")
    assert [c["id"] for c in found["checks"]][:1] == ["SHM001"]
    assert found["exit_code"] == 3 and "cannot be parsed" in json.dumps(found)


def test_a_script_is_parsed_and_never_executed(tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    script = tmp_path / "train.py"
    script.write_text(f"open({str(proof)!r}, 'w')\n")
    (tmp_path / "helper.py").write_text(f"open({str(proof)!r}, 'w')\n")
    report(script, "--select", "SHM,HDF")
    assert not proof.exists()


def test_lint_findings_stand_beside(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport torch.nn as nn\nx = torch.zeros(3)\nx.cuda()\nloss = nn.MSELoss(size_average=False)\n"
    )
    found = report(script, "--select", "SHM001,LOS,DEV")
    ids = {finding["id"] for finding in found["findings"]}
    assert any(i.startswith("LOS1") for i in ids), ids
    assert all(f["location"]["path"] == str(script) for f in found["findings"] if f["id"].startswith("LOS1"))
    alone = report("--select", "SHM001")
    assert [c["id"] for c in alone["checks"]] == ["SHM001"]


def test_workers_are_tried_under_every_start_method_when_they_are_asked_for() -> None:
    found = report("--select", "WRK001", "--timeout", "60")
    methods = found["facts"]["worker"]["methods"]
    assert {name: result["ok"] for name, result in methods.items()} == {
        "fork": True,
        "forkserver": True,
        "spawn": True,
    }


def test_a_broken_torch_is_a_result_and_not_the_end(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    code = (
        "import sys; sys.argv = ['torch-doctor', 'check', '--select', 'SHM001,WRK001', '--format', 'json'];"
        "from torch_doctor.cli.app import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    outcomes = {c["id"]: c["outcome"] for c in json.loads(done.stdout)["checks"]}
    assert outcomes["SHM001"] != "crashed" and outcomes["WRK001"] == "crashed"

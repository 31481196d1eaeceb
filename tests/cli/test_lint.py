"""``torch-doctor lint`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import torch_doctor

ERROR = "import torch\nx = torch.zeros(1)\nx.cuda()\n"
WARNING = "from torch import nn\nloss = nn.MSELoss(size_average=False)\n"
NOTE = "from torch.autograd import Variable\ny = Variable(x)\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(ERROR)
    return path


def report(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    done = torch_doctor("lint", "--format", "json", *arguments, **options)
    value: dict[str, Any] = json.loads(done.stdout)
    assert value["exit_code"] == done.returncode
    return value


def test_json(script: Path) -> None:
    found = report(script)
    (finding,) = found["findings"]
    assert (finding["id"], finding["severity"]) == ("DEV101", "error")
    assert (finding["location"]["path"], finding["location"]["line"]) == (str(script), 3)
    assert found["exit_code"] == 1 and found["command"] == "lint"


def test_the_table_shows_the_line(script: Path) -> None:
    done = torch_doctor("lint", script)
    assert "3 | x.cuda()\n" in done.stdout and "^^^^^^^^" in done.stdout and done.returncode == 1


@pytest.mark.parametrize(
    ("source", "fail_on", "status"),
    [
        (ERROR, "error", 1),
        (ERROR, "never", 0),
        (WARNING, "error", 0),
        (WARNING, "warning", 1),
        (NOTE, "warning", 0),
        (NOTE, "note", 1),
        ("x = 1\n", "note", 0),
        ("def f(:\n", "error", 3),
    ],
)
def test_exit_status(tmp_path: Path, source: str, fail_on: str, status: int) -> None:
    (tmp_path / "a.py").write_text(source)
    assert torch_doctor("lint", tmp_path / "a.py", "--fail-on", fail_on).returncode == status


@pytest.mark.parametrize("format", ["sarif", "github", "junit", "json", "table"])
def test_every_format_names_the_rule_and_the_file(script: Path, format: str) -> None:
    done = torch_doctor("lint", "--format", format, script)
    assert "DEV101" in done.stdout and "train.py" in done.stdout and done.returncode == 1


def test_sarif_has_the_fix_and_what_is_suppressed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(ERROR + "x.half()  # torch-doctor: ignore[DEV101] on purpose\n")
    done = torch_doctor("lint", "--format", "sarif", "a.py", cwd=tmp_path)
    run = json.loads(done.stdout)["runs"][0]
    first, second = sorted(run["results"], key=lambda r: r["locations"][0]["physicalLocation"]["region"]["startLine"])
    assert first["fixes"] and not first.get("suppressions")
    assert second["suppressions"][0]["kind"] == "inSource"


def test_diff_changes_nothing_and_says_so_by_its_status(script: Path) -> None:
    done = torch_doctor("lint", "--diff", "train.py", cwd=script.parent)
    assert "-x.cuda()\n+x = x.cuda()\n" in done.stdout and done.returncode == 1
    assert "would fix 1 finding in 1 file" in done.stderr
    assert script.read_text() == ERROR
    (script.parent / "train.py").write_text("x = 1\n")
    assert torch_doctor("lint", "--diff", "train.py", cwd=script.parent).returncode == 0


def test_fix_writes_and_reports_what_is_left(script: Path) -> None:
    script.write_text(ERROR + "from torch.nn import LSTM\n")
    done = torch_doctor("lint", "--fix", script)
    assert done.returncode == 0 and "fixed 1 finding in 1 file" in done.stderr
    assert "x = x.cuda()\n" in script.read_text()
    again = torch_doctor("lint", "--fix", script)
    assert "fixed" not in again.stderr


def test_select_and_ignore(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(ERROR + WARNING)
    assert [f["id"] for f in report(tmp_path, "--select", "LOS")["findings"]] == ["LOS101"]
    assert [f["id"] for f in report(tmp_path, "--ignore", "LOS101")["findings"]] == ["DEV101"]


def test_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.py").write_text(ERROR)
    (tmp_path / "b.py").write_text(ERROR)
    (tmp_path / "torch-doctor.toml").write_text('[lint.per-file-ignores]\n"old/*" = ["DEV101"]\n')
    assert [f["location"]["path"] for f in report(cwd=tmp_path)["findings"]] == ["b.py"]
    (tmp_path / "torch-doctor.toml").write_text('[lint]\nexclude = ["old"]\nfail-on = "never"\n')
    found = report(cwd=tmp_path)
    assert [f["location"]["path"] for f in found["findings"]] == ["b.py"] and found["exit_code"] == 0


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    done = torch_doctor("lint", tmp_path / "nothing.py")
    assert done.returncode == 2 and "no such file or folder" in done.stderr and "Traceback" not in done.stderr


def test_a_notebook_names_the_cell(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "source": [s]} for s in ("import torch\n", "%time\nx = torch.zeros(1)\nx.cuda()\n")
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    (finding,) = report(tmp_path)["findings"]
    assert (finding["location"]["cell"], finding["location"]["line"]) == (2, 3)
    assert torch_doctor("lint", "--fix", tmp_path).returncode == 0
    assert json.loads((tmp_path / "a.ipynb").read_text())["cells"][1]["source"][-1] == "x = x.cuda()\n"


def test_a_file_that_does_not_parse_does_not_cost_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print 'x'\n")
    (tmp_path / "b.py").write_text(ERROR)
    found = report(tmp_path)
    assert [f["location"]["line"] for f in found["findings"]] == [3]
    assert [n["location"]["path"] for n in found["notifications"]] == [str(tmp_path / "a.py")]

"""Which script a command line trains with."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from torch_doctor.sessions.commands import find_script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "conf.py", "train", "pkg/fit.py", "pkg/__main__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --config conf.py", "train.py"),
        ("python3.11 -u -X dev -W error train.py", "train.py"),
        ("/usr/bin/python -Wd train", "train"),
        ("python -m pkg.fit --x", "pkg/fit.py"),
        ("python -um pkg.fit", "pkg/fit.py"),
        ("python -m pkg", "pkg/__main__.py"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "train.py"),
        ("python -m json.tool conf.py", None),
        ("python -c 'train.py'", None),
        ("python", None),
        ("python missing.py", None),
        ("torchrun --standalone --nproc-per-node=8 train.py --lr 1", "train.py"),
        ("accelerate launch --config_file a.yaml train.py", "train.py"),
        ("deepspeed train.py", "train.py"),
        ("uv run train.py", "train.py"),
        ("env A=1 python train.py conf.py", "train.py"),
        ("srun -n 4 python -u train.py", "train.py"),
        ("./train.py", "train.py"),
        ("bash -c 'python train.py'", None),
        ("echo hello", None),
        ("echo " + "x" * 5000 + ".py", None),
    ],
)
def test_the_script_of_a_command(folder: Path, command: str, script: str | None) -> None:
    found = find_script(shlex.split(command), folder)
    assert found == (None if script is None else folder / script)


def test_no_command_has_no_script(folder: Path) -> None:
    assert find_script([], folder) is None
    assert find_script(["echo", "a\0.py"], folder) is None

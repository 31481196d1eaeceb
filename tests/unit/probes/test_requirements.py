"""Reading a script and what stands beside it: nothing is executed, nothing surprises."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.probes.requirements import read

LOADER = "from torch.utils.data import DataLoader\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_script_is_never_executed(tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    script = write(tmp_path / "train.py", f"open({str(proof)!r}, 'w').close()\nimport h5py\n")
    needs, notes = read(script)
    assert needs.uses == {"h5py"} and notes == () and not proof.exists()


def test_modules_beside_the_script_count(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", "from data import make\nimport lib.model\nimport numpy\n")
    write(tmp_path / "data.py", LOADER + "def make():\n    return DataLoader(d, num_workers=3)\n")
    write(tmp_path / "lib" / "__init__.py", "")
    write(tmp_path / "lib" / "model.py", "from . import extra\n")
    write(tmp_path / "lib" / "extra.py", "import torch\ntorch.compile(m)\n")
    write(tmp_path / "other.py", "import h5py\n")  # not imported
    needs, _ = read(script)
    assert needs.workers == 3 and needs.uses == {"compile"}
    assert needs.loaders[0].path == str(tmp_path / "data.py")


def test_a_data_set_in_another_module_gives_the_size(tmp_path: Path) -> None:
    script = write(
        tmp_path / "train.py", LOADER + "from data import Images\nDataLoader(Images(), 4, num_workers=2)\n"
    )
    write(
        tmp_path / "data.py",
        "import torch\nclass Images:\n    def __getitem__(self, i):\n        return torch.zeros(8)\n",
    )
    assert read(script)[0].shm_bytes == 32 * 4 * 2 * 2


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    script = write(tmp_path / "a.py", "import b\n")
    write(tmp_path / "b.py", "import a\nimport h5py\n")
    assert read(script)[0].uses == {"h5py"}


def test_what_is_above_the_script_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "secret.py", "import h5py\n")
    script = write(tmp_path / "job" / "train.py", "from .. import secret\nfrom ... import x\n")
    assert read(script)[0].uses == frozenset()


def test_a_module_beside_it_that_does_not_parse_is_left_out(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", "import broken\nimport h5py\n")
    write(tmp_path / "broken.py", "def (\n")
    needs, notes = read(script)
    assert needs.uses == {"h5py"} and notes == ()


def test_a_syntax_error_is_a_notification_with_its_place(tmp_path: Path) -> None:
    script = write(tmp_path / "train.py", "import h5py\nx = (\n")
    needs, (note,) = read(script)
    assert needs.uses == frozenset() and needs.script == str(script) and needs.compiles is None
    assert note.location is not None and note.location.line == 2 and "cannot be parsed" in note.message


@pytest.mark.parametrize(
    "data", [b"\x00\x01", b"# coding: utf-8\n\xff\xfe", b"# coding: nonsense\n", b"x" * (3 << 20)]
)
def test_what_is_no_text_is_a_notification(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    _, (note,) = read(path)
    assert note.incomplete


def test_the_encoding_line_is_honoured(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("# coding: latin-1\nimport h5py\nn = 'träin'\n".encode("latin-1"))
    assert read(path)[0].uses == {"h5py"}


def test_a_bom_and_windows_line_ends_are_python(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("\ufeffimport h5py\r\nimport lmdb\r\n".encode())
    assert read(path)[0].uses == {"h5py", "lmdb"}


def test_a_notebook_is_read_without_its_magics(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# import lmdb"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install h5py\n", "import h5py"]},
        {"cell_type": "code", "source": "%%bash\nimport zarr\n"},
    ]
    path = write(tmp_path / "train.ipynb", json.dumps({"cells": cells}))
    assert read(path)[0].uses == {"h5py"}


def test_a_deep_file_is_a_notification_or_is_read(tmp_path: Path) -> None:
    needs, notes = read(write(tmp_path / "train.py", "x = " + "(" * 5000 + ")" * 5000))
    assert needs.uses == frozenset() and len(notes) <= 1


@pytest.mark.parametrize(("name", "told"), [("missing.py", "no such file"), (".", "is a folder")])
def test_a_script_that_is_not_there_is_wrong_usage(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(DoctorError) as caught:
        read(tmp_path / name)
    assert told in str(caught.value) and caught.value.exit_status == 2


def test_a_pipe_is_no_script(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DoctorError, match="is not a regular file"):
        read(tmp_path / "pipe")


def test_options_alone_are_requirements() -> None:
    needs, _ = read(None, need=["shm=8g"], gpus="all", sample_bytes="1m")
    assert (needs.shm_bytes, needs.gpus, needs.gpus_asked) == (8 << 30, None, "--gpus all")


def test_a_stated_number_of_workers_and_a_sample_size_give_a_need() -> None:
    assert read(None, need=["workers=8"], sample_bytes="1m")[0].shm_bytes == 8 * 2 << 20

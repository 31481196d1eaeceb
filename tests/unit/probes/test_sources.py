"""Which files are found, and what each becomes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.facts.script import Script
from torch_doctor.probes import sources
from torch_doctor.probes.sources import Unread


def found(folder: Path, *exclude: str) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in sources.find([folder], exclude)]


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")


def test_python_files_and_notebooks_in_order(tmp_path: Path) -> None:
    write(
        tmp_path,
        "b.py",
        "a.ipynb",
        "sub/c.py",
        "d.txt",
        "e.pyc",
        ".venv/f.py",
        "node_modules/g.py",
        "__pycache__/h.py",
    )
    assert found(tmp_path) == ["a.ipynb", "b.py", "sub/c.py"]


def test_a_named_file_is_read_in_any_case_and_once(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "b.py")
    listed = list(sources.find([tmp_path / "a.txt", tmp_path / "b.py", tmp_path], ["b.py"]))
    assert listed == [tmp_path / "a.txt", tmp_path / "b.py"]


@pytest.mark.parametrize("pattern", ["sub", "sub/", "sub/*", "c.py", "*/c.py", "**/c.py"])
def test_exclude(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "b.py", "sub/c.py")
    assert found(tmp_path, pattern) == ["b.py"]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("*.py\n", []),
        ("b.py\n", ["sub/c.py", "sub/deep/b2.py"]),
        ("/b.py\n", ["sub/c.py", "sub/deep/b2.py"]),
        ("sub/\n", ["b.py"]),
        ("sub\n", ["b.py"]),
        ("/sub/*.py\n", ["b.py", "sub/deep/b2.py"]),
        ("sub/**/b2.py\n", ["b.py", "sub/c.py"]),
        ("*.py\n!b.py\n", ["b.py"]),
        ("# b.py\n\n", ["b.py", "sub/c.py", "sub/deep/b2.py"]),
        ("[bc].py\n", ["sub/deep/b2.py"]),
    ],
)
def test_gitignore(tmp_path: Path, rules: str, left: list[str]) -> None:
    write(tmp_path, "b.py", "sub/c.py", "sub/deep/b2.py")
    (tmp_path / ".gitignore").write_text(rules)
    assert found(tmp_path) == left


def test_the_gitignore_above_within_a_checkout(tmp_path: Path) -> None:
    write(tmp_path, "pkg/a.py", "pkg/gen/b.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("gen/\n")
    assert found(tmp_path / "pkg") == ["a.py"]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match=r"nothing\.py: no such file"):
        list(sources.find([tmp_path / "nothing.py"]))


def read(tmp_path: Path, data: bytes, name: str = "a.py") -> Script | Unread:
    (tmp_path / name).write_bytes(data)
    return sources.read(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"x = 1\n", "x = 1\n", "utf-8"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n", "utf-8-sig"),
        (b"x = 1\r\ny = 2\r", "x = 1\ny = 2\n", "utf-8"),
        (b"# coding: latin-1\ns = '\xe9'\n", "# coding: latin-1\ns = 'é'\n", "iso-8859-1"),
        ("s = 'é'\n".encode(), "s = 'é'\n", "utf-8"),
        (b"", "", "utf-8"),
        (b"x = 1\x0cy = 2\n".replace(b"y", b"\ny"), "x = 1\x0c\ny = 2\n", "utf-8"),
    ],
)
def test_text(tmp_path: Path, data: bytes, text: str, encoding: str) -> None:
    script = read(tmp_path, data)
    assert isinstance(script, Script)
    assert (script.text, script.encoding) == (text, encoding)
    assert (script.original or script.text).encode(script.encoding) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"print 'hello'\n", "cannot be parsed: Missing parentheses"),
        (b"x = \x00\n", "is a binary file"),
        (b"s = '\xe9'\n", "cannot be parsed"),
        (b"# coding: nonsense\nx = 1\n", "cannot be parsed: unknown encoding"),
        (b"def f(:\n", "cannot be parsed: invalid syntax"),
        (b"exec 'a' in b\n", "cannot be parsed"),
        (b"\xff\xfex\x00", "is a binary file"),
    ],
)
def test_what_is_no_source_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    unread = read(tmp_path, data)
    assert isinstance(unread, Unread)
    note = unread.notification
    assert note.location and note.location.path == str(tmp_path / "a.py") and message in note.message


def test_a_folder_or_a_lost_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    unread = sources.read(tmp_path / "gone.py")
    assert isinstance(unread, Unread) and "cannot be read" in unread.notification.message


def notebook(*cells: str, kind: str = "code") -> bytes:
    made = [{"cell_type": kind, "source": c.splitlines(keepends=True), "metadata": {}, "outputs": []} for c in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def test_a_notebook(tmp_path: Path) -> None:
    cells = [
        "import torch\n%matplotlib inline\n!pip install x\nx = 1",
        "%%bash\necho a",
        "files = !ls\ny = 2\nx?",
        "await f()",
    ]
    script = read(tmp_path, notebook(*cells), "a.ipynb")
    assert isinstance(script, Script)
    assert script.text.split("\n")[:4] == ["import torch", "pass", "pass", "x = 1"]
    assert "echo" not in script.text and "y = 2" in script.text
    assert [(c.cell, c.line) for c in script.cells[:5]] == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1)]


def test_a_broken_cell_does_not_cost_the_others(tmp_path: Path) -> None:
    script = read(tmp_path, notebook("x = (", "y = 2"), "a.ipynb")
    assert isinstance(script, Script) and "y = 2" in script.text


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"not json", b'{"cells": 3}', b"[" * 100_000])
def test_no_notebook(tmp_path: Path, data: bytes) -> None:
    assert isinstance(read(tmp_path, data, "a.ipynb"), Unread)


def test_an_old_notebook_and_odd_cells(tmp_path: Path) -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1\n"]}]}]}
    script = read(tmp_path, json.dumps(old).encode(), "a.ipynb")
    assert isinstance(script, Script) and script.text.startswith("x = 1")
    odd = {"cells": [3, None, {"cell_type": "markdown", "source": "# x"}, {"cell_type": "code", "source": None}]}
    assert isinstance(read(tmp_path, json.dumps(odd).encode(), "b.ipynb"), Script)


def test_modules_beside(tmp_path: Path) -> None:
    write(tmp_path, "helpers.py", "pkg/__init__.py", "pkg/net.py", "pkg/train.py")
    beside = sources.Neighbours(tmp_path / "pkg")
    assert beside[".net"].path.endswith("pkg/net.py")
    assert beside["pkg.net"].path.endswith("pkg/net.py")
    assert beside["helpers"].path.endswith("helpers.py")
    assert "torch.nn" not in beside and "" not in beside and "..." not in beside


def test_a_cell_that_was_left_out_is_known(tmp_path: Path) -> None:
    script = read(tmp_path, notebook("y = 2", "x = 1\nz = (\n"), "a.ipynb")
    assert isinstance(script, Script)
    assert [(at.cell, at.line) for at in script.unparsed] == [(2, 2)]


@pytest.mark.timeout(20)
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    unread = sources.read(tmp_path / "pipe.py")
    assert isinstance(unread, Unread) and unread.notification.message == "is no regular file"


def test_a_link_that_leads_to_itself_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "train.py").write_text("import torch\n")
    assert [p.name for p in sources.find([tmp_path])] == ["train.py"]

"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_doctor.files import write_atomic


def test_the_new_file_has_the_mode_of_the_umask_or_the_given_one(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"x")
    finally:
        os.umask(mask)
    write_atomic(tmp_path / "b", b"y", 0o755)
    assert [(p.stat().st_mode & 0o777, p.read_bytes()) for p in (tmp_path / "a", tmp_path / "b")] == [
        (0o640, b"x"),
        (0o755, b"y"),
    ]


def test_a_refused_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"old")
    code = (
        "import resource, signal, sys; from pathlib import Path; from torch_doctor.files import write_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))\n"
        "write_atomic(Path(sys.argv[1]), b'new' * 100)\n"
    )
    package = Path(sys.modules["torch_doctor"].__path__[0]).parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)],
        env={"PYTHONPATH": str(package), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "File too large" in done.stderr
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("report.json", b"old")]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "no" / "a", b"x")

"""multiprocessing's locks where /dev/shm cannot hold them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from .conftest import PRELUDE, Run, output

LOCKS = """
import multiprocessing
def hold(lock, counter):
    for _ in range(200):
        with lock:
            counter.value += 1
def work(method):
    context = multiprocessing.get_context(method)
    lock, queue = context.Lock(), context.SimpleQueue()
    workers = [context.Process(target=put, args=(lock, queue)) for _ in range(3)]
    for worker in workers: worker.start()
    print(sorted(queue.get() for _ in workers), flush=True)
    for worker in workers: worker.join()
    print([worker.exitcode for worker in workers])
def put(lock, queue):
    with lock:
        queue.put(1)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("shm", ["16m", "absent", "read-only", "full"])
def test_locks(run: Run, shm: str, method: str, tmp_path: Path) -> None:
    code = (PRELUDE + LOCKS).replace("from _posixshmem", "# from _posixshmem") + textwrap.dedent(
        f"""
        if __name__ == "__main__":
            if {shm == "full"}:
                with open("/dev/shm/full", "wb", buffering=0) as full:
                    while error_of(full.write, bytes(4096)) == "ok": pass
            work("{method}")
        """
    )
    program = tmp_path / "locks.py"
    program.write_text(code)
    result = run("", "16m" if shm == "full" else shm, argv=[sys.executable, "/mnt/work/locks.py"])
    assert output(result).splitlines() == ["[1, 1, 1]", "[0, 0, 0]"]


def test_locks_without_the_fallback_fail_there(run: Run) -> None:
    """What the test above would be worth nothing without."""
    code = "import multiprocessing\nprint(error_of(multiprocessing.get_context('spawn').Lock))"
    assert [output(run(code, shm, preload=False)) for shm in ("absent", "read-only")] == ["ENOENT", "EROFS"]

"""DataLoader workers under every small, missing or read-only /dev/shm, in real containers.

Where the fallback is what makes a program work, the same program is run without it and has to fail.
Pinned memory needs a GPU to be pinned, and is tested in tests/gpu.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import containers

from .conftest import HARDENED, IMAGE, OFF, SHM, VARIANT, Result, docker, run

pytestmark = pytest.mark.engine

SMALL = ["64m", "1m", "absent", "read-only"]
METHODS = ["fork", "spawn", "forkserver"]
STRATEGIES = ["file_descriptor", "file_system"]
DONE = "6 batches, 0 memfds left\n"

# What torch and Python say without the fallback; a bus error where nobody reserves.
STOCK_ERRORS = (
    "No space left on device",
    "Read-only file system",
    "No such file or directory",
    "Bus error",
    "bus error",
    "Empty",  # a queue swallows what its feeder thread could not send
)


def assert_done(result: Result, expected: str) -> None:
    assert (result.returncode, result.stdout) == (0, expected), result.stderr
    assert result.stderr == ""


def assert_stock_failure(result: Result) -> None:
    told = result.stdout + result.stderr
    assert result.returncode != 0, told
    assert any(error in told for error in STOCK_ERRORS) or result.returncode == 128 + 7, told


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shm", SMALL)
def test_loader(shm: str, strategy: str, method: str) -> None:
    assert_done(run("loader.py", strategy, method, options=SHM[shm]), DONE)
    assert_stock_failure(run("loader.py", strategy, method, options=[*SHM[shm], *OFF]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("user", ["0:0", "1000:1000", "31337:31337"])
@pytest.mark.parametrize("shm", ["64m", "absent"])
def test_loader_hardened_for_any_user(shm: str, user: str, strategy: str) -> None:
    options = [*SHM[shm], *HARDENED, f"--user={user}"]
    assert_done(run("loader.py", strategy, "fork", options=options), DONE)
    assert_stock_failure(run("loader.py", strategy, "fork", options=[*options, *OFF]))


def test_loader_with_room_enough_is_left_to_libc() -> None:
    for options in (SHM["8g"], [*SHM["8g"], *OFF]):
        assert_done(run("loader.py", "file_descriptor", "fork", options=options), DONE)


def test_forced_on_with_room_enough() -> None:
    for strategy in STRATEGIES:
        options = [*SHM["8g"], "--env=TORCH_DOCTOR_SHM=on"]
        assert_done(run("loader.py", strategy, "fork", options=options), DONE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", [name for name in containers.variants() if name != VARIANT])
def test_loader_of_the_other_variants(other: str, method: str) -> None:
    image = containers.image(other)
    for strategy in STRATEGIES:
        assert_done(run("loader.py", strategy, method, image=image), DONE)
    assert_stock_failure(run("loader.py", "file_descriptor", method, image=image, options=OFF))


@pytest.mark.parametrize("variant", containers.variants())
def test_the_interpreter_ends_though_torchs_manager_lives_on(variant: str) -> None:
    """Python 3.13's resource tracker is waited for, and the manager must not hold its pipe: whatever /dev/shm is."""
    for options in (SHM["8g"], [*SHM["8g"], *OFF]):
        result = run("loader.py", "file_system", "spawn", image=containers.image(variant), options=options)
        assert_done(result, DONE)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("shm", SMALL)
def test_shared_memory(shm: str, method: str) -> None:
    assert_done(run("shared_memory.py", method, "100", options=SHM[shm]), "100 MiB read, [] left\n")
    assert_stock_failure(run("shared_memory.py", method, "100", options=[*SHM[shm], *OFF]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shm", ["64m", "absent"])
def test_queues(shm: str, strategy: str, method: str) -> None:
    assert_done(run("queues.py", strategy, method, options=SHM[shm]), "queues done\n")
    assert_stock_failure(run("queues.py", strategy, method, options=[*SHM[shm], *OFF], timeout=60))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_worker_killed_in_a_batch(strategy: str) -> None:
    result = run("killed.py", strategy)
    assert result.stdout == "the loader names the dead worker\n12 batches after it\n", result.stderr


STATUS = "import ctypes; print(ctypes.CDLL(None).torch_doctor_shm_status())"
ACTIVE_AND_SMALL = "35\n"


def test_active_however_a_process_is_started(keep: Callable[..., str]) -> None:
    python = "/opt/venv/bin/python"
    name = keep()
    started = {
        "entrypoint": run("python", "-c", STATUS),
        "--entrypoint": run("-c", STATUS, options=["--entrypoint=python"]),
        "docker exec": docker("exec", name, "python", "-c", STATUS),
        "docker exec as another user": docker("exec", "--user=4242", name, "python", "-c", STATUS),
        "empty environment": run("env", "-i", python, "-c", STATUS),
        "another LD_PRELOAD": run("env", "LD_PRELOAD=libc.so.6", python, "-c", STATUS),
        "isolated": run("python", "-I", "-S", "-c", STATUS),
    }
    assert {how: result.stdout for how, result in started.items()} == dict.fromkeys(started, ACTIVE_AND_SMALL)
    assert {how: result.stderr for how, result in started.items()} == dict.fromkeys(started, "")


def test_containers_that_share_dev_shm(keep: Callable[..., str]) -> None:
    """Each serves its own workers; small objects of shared_memory are still found by the other."""
    first = keep("--ipc=shareable")
    shared = [f"--ipc=container:{first}"]
    make = (
        "from multiprocessing import shared_memory, resource_tracker as tracker;"
        "s = shared_memory.SharedMemory(create=True, size=4096); s.buf[:4] = b'here';"
        "tracker.unregister(s._name, 'shared_memory'); print(s.name, end='')"
    )
    name = docker("exec", first, "python", "-c", make).stdout
    read = f"from multiprocessing import shared_memory as m; s = m.SharedMemory('{name}'); print(bytes(s.buf[:4]))"
    assert run("python", "-W", "ignore", "-c", read, options=shared).stdout == "b'here'\n"
    for strategy in STRATEGIES:
        assert_done(run("loader.py", strategy, "fork", options=shared), DONE)
        again = docker("exec", first, "python", "-W", "ignore", "/programs/loader.py", strategy, "fork")
        assert_done(again, DONE)


HOLD = """
import torch, pathlib
v1, v2 = (pathlib.Path('/sys/fs/cgroup/' + n) for n in ('memory/memory.usage_in_bytes', 'memory.current'))
used = lambda: int((v1 if v1.exists() else v2).read_text())
before = used()
held = [torch.ones(40 << 18).share_memory_() for _ in range({count})]
print(used() - before >= {count} * (40 << 20))
"""


def test_memory_is_charged_to_the_container() -> None:
    limit = ["--memory=1g", "--memory-swap=1g"]
    assert run("python", "-c", HOLD.format(count=8), options=limit).stdout == "True\n"
    assert run("python", "-c", HOLD.format(count=40), options=limit).returncode == 128 + 9


GLOO = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
loader = DataLoader(TensorDataset(torch.ones(8, 10 << 18)), batch_size=4, num_workers=1)
total = sum((batch.sum() for batch, in loader), torch.zeros(()))
dist.all_reduce(total)
dist.destroy_process_group()
assert total.item() == 2 * 8 * (10 << 18), total
"""


def test_two_ranks_with_workers_each() -> None:
    command = "printf '%s' \"$1\" >/tmp/ranks.py; exec torchrun --nproc-per-node=2 /tmp/ranks.py"
    options = ["--env=OMP_NUM_THREADS=1", "--env=PYTHONWARNINGS=ignore"]
    assert run("sh", "-c", command, "sh", GLOO, options=options).returncode == 0
    assert run("sh", "-c", command, "sh", GLOO, options=[*options, *OFF]).returncode != 0


def test_image_names_the_library_that_it_has() -> None:
    """A name in ld.so.preload without its file would print a line for every process."""
    result = docker("run", "--rm", "--entrypoint=sh", IMAGE, "-c", 'test -r "$(cat /etc/ld.so.preload)"')
    assert (result.returncode, result.stderr) == (0, "")

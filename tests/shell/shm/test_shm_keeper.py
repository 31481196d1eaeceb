"""Names that outlive their maker, and the process that keeps them."""

from __future__ import annotations

import textwrap

import pytest

from .conftest import BOTH, OTHER_PROCESS, Run, output, run_either


@BOTH
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_named_object_outlives_its_maker(run: Run, fallback: bool, end: str) -> None:
    """As with the file_system strategy: the maker has closed it, and is gone before it is opened."""
    code = f"""
    pid = os.fork()
    if pid == 0:
        os.close(make(NAME, BIG, 7))
        {end}
    os.waitpid(pid, 0)
    elsewhere(NAME)
    elsewhere(NAME, "unlink")
    print(error_of(shm_open, NAME, RW, 0))
    """
    assert run_either(run, fallback, OTHER_PROCESS + textwrap.dedent(code)) == f"{64 << 20} 7 {64 << 20} 8 ENOENT"


def test_keeper_lets_go_when_another_process_unlinks_and_ends_with_its_process(run: Run) -> None:
    code = """
    pid = os.fork()
    if pid == 0:
        for number in range(3):
            os.close(make(f"/torch_{os.getpid()}_1_{number}", BIG, 7))
        os.write(1, f"{os.getpid()}\\n".encode())
        signal.pause()
    until(lambda: keepers() and len(held(keepers()[0])) == 3)
    keeper, = keepers()
    os.unlink(f"/dev/shm/torch_{pid}_1_1")   # not even through the library
    until(lambda: len(held(keeper)) == 2, 3)  # told, not found at the next look round
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print(read(f"/torch_{pid}_1_0"), read(f"/torch_{pid}_1_2"))
    shm_unlink(f"/torch_{pid}_1_0")
    shm_unlink(f"/torch_{pid}_1_2")
    until(lambda: keepers() == [])
    """
    assert output(run(code)).splitlines()[1] == f"({64 << 20}, 7, 7) ({64 << 20}, 7, 7)"


def test_killed_keeper_is_replaced_and_its_names_are_gone(run: Run) -> None:
    code = """
    os.close(make(NAME, 4096, 7))
    keeper, = keepers()
    os.kill(keeper, signal.SIGKILL)
    def gone():  # a process that is killed loses its command line first, and then its descriptors
        try:
            return keepers() == [] and not os.listdir(f"/proc/{keeper}/fd")
        except OSError:
            return True
    until(gone)
    print(error_of(shm_open, NAME, RW, 0))
    os.close(make(NAME + "1", 4096, 9))
    print(read(NAME + "1"), len(keepers()))
    """
    assert output(run(code)).splitlines() == ["ENOENT", "(4096, 9, 9) 1"]


def test_keeper_keeps_nothing_of_its_maker_open(run: Run) -> None:
    """A pipe that stays open would hang `docker run IMAGE ... | cat` and every subprocess.run."""
    code = """
    os.close(make(NAME, 4096, 7))
    keeper, = keepers()
    print([os.readlink(f"/proc/{keeper}/fd/{n}") for n in "012"], os.readlink(f"/proc/{keeper}/cwd"))
    print(os.getsid(keeper) == keeper, error_of(os.waitpid, -1, 0))
    """
    assert output(run(code)).splitlines() == ["['/dev/null', '/dev/null', '/dev/null'] /dev/shm", "True ECHILD"]


def test_no_keeper_where_names_are_unlinked_at_once(run: Run) -> None:
    """torch's default strategy: no process, no descriptor, no name is left behind."""
    code = """
    before = os.listdir("/proc/self/fd")
    for number in range(2000):
        name = f"/torch_{os.getpid()}_5_{number}"
        fd = shm_open(name, NEW, 0o600)
        os.ftruncate(fd, 4096)
        shm_unlink(name)
        os.close(fd)
    print(os.listdir("/proc/self/fd") == before, keepers(), os.listdir("/dev/shm"))
    """
    assert output(run(code)) == "True [] []"


def test_threads(run: Run) -> None:
    code = """
    import threading
    before = len(os.listdir("/proc/self/fd"))
    failures = []
    def work(thread):
        try:
            for number in range(300):
                name = f"/torch_{os.getpid()}_{thread}_{number}"
                fd = make(name, 4096, thread)
                if number % 3 == 0:
                    shm_unlink(name)
                    os.close(fd)
                else:
                    os.close(fd)
                    assert read(name) == (4096, thread, thread)
                    shm_unlink(name)
        except BaseException as error:
            failures.append(repr(error))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    until(lambda: all(held(keeper) == [] for keeper in keepers()))
    print(failures, os.listdir("/dev/shm"), len(os.listdir("/proc/self/fd")) - before)
    """
    assert output(run(code)) == "[] [] 1"  # the socket to the keeper


def test_many_live_names(run: Run) -> None:
    """More than the slots for names that are just being made; the maker pays no descriptor for any."""
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    names = [f"/torch_{os.getpid()}_3_{number}" for number in range(500)]
    for number, name in enumerate(names):
        os.close(make(name, 4096, number % 256))
    print(all(read(name) == (4096, number % 256, number % 256) for number, name in enumerate(names)))
    for name in names:
        shm_unlink(name)
    until(lambda: held(keepers()[0]) == [])
    """
    assert output(run(code)) == "True"

"""multiprocessing.shared_memory, and NCCL's segments: real while they fit, moved where they do not."""

from __future__ import annotations

import textwrap

import pytest

from .conftest import Run, output

PSM = """
from multiprocessing import resource_tracker, shared_memory
"""


OUTLIVES = """
resource_tracker.ensure_running()   # a tracker of the child's own would unlink at its death
pid = os.fork()
if pid == 0:
    shared = shared_memory.SharedMemory(create=True, size=SIZE)
    shared.buf[0] = shared.buf[SIZE - 1] = 7
    open("/tmp/name", "w").write(shared.name)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(pid, 0)
shared = shared_memory.SharedMemory(open("/tmp/name").read())
print(shared.size, shared.buf[0], shared.buf[SIZE - 1])
shared.close(); shared.unlink()
print(error_of(shared_memory.SharedMemory, shared.name), error_of(shm_unlink, shared.name))
"""


@pytest.mark.parametrize("size", [4096, 64 << 20], ids=["small", "large"])
@pytest.mark.parametrize("shm", ["16m", "absent", "read-only", "libc"])
def test_shared_memory_outlives_its_maker(run: Run, shm: str, size: int) -> None:
    code = PSM + OUTLIVES.replace("SIZE", str(size))
    result = run(code, "2g", preload=False) if shm == "libc" else run(code, shm)
    assert output(result).splitlines() == [f"{size} 7 7", "ENOENT ENOENT"]


def test_shared_memory_that_fits_stays_in_dev_shm(run: Run) -> None:
    """So that containers which share /dev/shm still find each other's small objects."""
    code = """
    small = shared_memory.SharedMemory(create=True, size=1 << 20)
    large = shared_memory.SharedMemory(create=True, size=64 << 20)
    kinds = [stat.S_ISREG(os.lstat("/dev/shm/" + s.name).st_mode) for s in (small, large)]
    reserved = os.stat("/dev/shm/" + small.name).st_blocks * 512
    large.buf[:] = bytes(64 << 20)
    print(kinds, reserved)
    small.unlink(); large.unlink()
    """
    assert output(run(PSM + textwrap.dedent(code))) == f"[True, False] {1 << 20}"


def test_shared_memory_beyond_what_is_left(run: Run) -> None:
    """Two objects that fit alone but not together: no bus error for the second."""
    code = """
    both = [shared_memory.SharedMemory(create=True, size=12 << 20) for _ in range(2)]
    for shared in both:
        shared.buf[:] = b"x" * (12 << 20)
    print([stat.S_ISREG(os.lstat("/dev/shm/" + s.name).st_mode) for s in both])
    for shared in both:
        shared.unlink()
    """
    assert output(run(PSM + textwrap.dedent(code))) == "[True, False]"


@pytest.mark.parametrize("shm", ["absent", "read-only"])
def test_shared_memory_without_a_usable_dev_shm(run: Run, shm: str) -> None:
    code = """
    shared = shared_memory.SharedMemory(create=True, size=64 << 20)
    shared.buf[:4] = b"here"
    other = shared_memory.SharedMemory(shared.name)
    print(bytes(other.buf[:4]))
    shared.unlink()
    print(error_of(shared_memory.SharedMemory, shared.name))
    """
    assert output(run(PSM + textwrap.dedent(code), shm)).split() == ["b'here'", "ENOENT"]


def test_nccl_segments(run: Run) -> None:
    """NCCL's own calls, without a GPU: mkstemp, fallocate, and open by path from another rank."""
    code = """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    paths = []
    for number in range(8):                             # 8 x 9.2 MiB, as between eight ranks
        path = ctypes.create_string_buffer(b"/dev/shm/nccl-XXXXXX")
        fd = libc.mkstemp(path)
        assert libc.fallocate(fd, 0, 0, 9637892) == 0, ctypes.get_errno()
        mmap.mmap(fd, 9637892)[:] = bytes([number]) * 9637892
        paths.append(path.value.decode())
    child = "import os,sys;d=[os.pread(os.open(p,os.O_RDWR),1,9637891)[0] for p in sys.argv[1:]];" \\
            "[os.unlink(p) for p in sys.argv[1:]];print(d)"
    subprocess.run([sys.executable, "-c", child, *paths], check=True)
    until(lambda: held(keepers()[0]) == [])
    print(os.listdir("/dev/shm"))
    """
    assert output(run(code)).splitlines() == ["[0, 1, 2, 3, 4, 5, 6, 7]", "[]"]
    assert "AssertionError: 28" in run(code, TORCH_DOCTOR_SHM="off").stderr

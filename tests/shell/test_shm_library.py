"""The shared-memory fallback on its own: no container, no torch.

Each test runs a small program in mount and PID namespaces of its own, with the /dev/shm it names.
Where both can be asked, the same program runs under the fallback in 16 MiB and under plain libc
with room enough, and has to see the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "images" / "shm"

# What ld.so and Python need of /dev, without /dev/shm: what `docker run --ipc none` gives.
WITHOUT_SHM = """
d=/mnt/dev; mkdir "$d"; mount -t tmpfs tmpfs "$d"
for n in null zero full random urandom; do : >"$d/$n"; mount --bind "/dev/$n" "$d/$n"; done
ln -s /proc/self/fd "$d/fd"; mount --rbind "$d" /dev
"""

MOUNTS = {
    "16m": "mount -t tmpfs -o size=16m,mode=1777 tmpfs /dev/shm",
    "2g": "mount -t tmpfs -o size=2g,mode=1777 tmpfs /dev/shm",
    "unwritable": "mount -t tmpfs -o size=16m,mode=0755 tmpfs /dev/shm",
    "read-only": "mount -t tmpfs -o size=16m,mode=1777,ro tmpfs /dev/shm",
    "absent": WITHOUT_SHM,
}

ROOT = os.geteuid() == 0
AS_USER = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
NEEDS_ROOT = pytest.mark.skipif(
    not ROOT, reason="only root has a second user to become; the container matrix has one too"
)

PRELUDE = """
import ctypes, errno, fcntl, mmap, os, signal, stat, subprocess, sys, time
from _posixshmem import shm_open, shm_unlink
RW = os.O_RDWR
NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR
NAME = f"/torch_{os.getpid()}_123456_0"
BIG = 64 << 20

def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)

def make(name, size, byte):
    fd = shm_open(name, NEW, 0o600)
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as view:
        view[0] = view[size - 1] = byte
    return fd

def read(name):
    fd = shm_open(name, RW, 0)
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size) as view:
        seen = (size, view[0], view[size - 1])
    os.close(fd)
    return seen

def keepers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{pid}/cmdline").read().startswith("torch-doctor-shm-keeper"):
                found.append(int(pid))
        except OSError:
            pass
    return found

def held(pid):
    # it may be closing some just now
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            pass
    return [link for link in links if link.startswith("/memfd:")]
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


# The library and the program's own folder, where any user sees them, and an empty /tmp.
ROOMS = """
mount -t tmpfs tmpfs /mnt; mkdir -p /mnt/work /mnt/lib; cp "$BUILD"/lib*.so "$BUILD"/*-keeper /mnt/lib
mount --bind "$WORK" /mnt/work; mount -t tmpfs -o mode=1777 tmpfs /tmp
"""


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library and its keeper, built with the repository's own flags."""
    folder = tmp_path_factory.mktemp("shm-build")
    command = ["make", "-s", "-C", str(SOURCE), f"BUILD={folder}"]
    subprocess.run(command, check=True, timeout=120, text=True, capture_output=True)
    return folder


@pytest.fixture
def run(build: Path, tmp_path: Path) -> Run:
    """Runs code, or argv, in a mount namespace of its own, under the fallback unless told otherwise."""

    def run(
        code: str,
        shm: str = "16m",
        preload: bool = True,
        prefix: tuple[str, ...] = (),
        argv: list[str] | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        command = argv or [*prefix, sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
        load = "LD_PRELOAD=/mnt/lib/libtorch_doctor_shm.so" if preload else "LD_PRELOAD="
        # the shell stays as the first process of the namespace, so that the last one to go takes all with it
        script = f'set -e\n{ROOMS}\n{MOUNTS[shm]}\nset +e\nenv {load} "$@"\nexit $?'
        clean = {"PATH": os.environ["PATH"], "BUILD": str(build), "WORK": str(tmp_path), **environment}
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        namespace = own if ROOT else [*own, "--map-root-user"]
        return subprocess.run(
            [*namespace, "sh", "-c", script, "sh", *command], env=clean, timeout=90, text=True, capture_output=True
        )

    return run


def output(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


STATUS = "print(ctypes.CDLL(None).torch_doctor_shm_status())"
LOADED, ACTIVE, FORCED, OFF, LARGE, SMALL, MISSING, UNWRITABLE = 1, 2, 4, 8, 16, 32, 64, 128
BAD_SETTING = 1024


@pytest.mark.parametrize(
    ("shm", "environment", "expected"),
    [
        ("16m", {}, ACTIVE | SMALL),
        ("2g", {}, LARGE),
        ("absent", {}, ACTIVE | MISSING),
        ("read-only", {}, ACTIVE | UNWRITABLE),
        ("16m", {"TORCH_DOCTOR_SHM": "auto"}, ACTIVE | SMALL),
        ("16m", {"TORCH_DOCTOR_SHM": "off"}, OFF),
        ("2g", {"TORCH_DOCTOR_SHM": "on"}, ACTIVE | FORCED),
        ("16m", {"TORCH_DOCTOR_SHM": "yes"}, ACTIVE | SMALL | BAD_SETTING),
        ("16m", {"TORCH_DOCTOR_SHM_MIN": "16m"}, LARGE),
        ("16m", {"TORCH_DOCTOR_SHM_MIN": "16777217"}, ACTIVE | SMALL),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "3G"}, ACTIVE | SMALL),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "lots"}, LARGE | BAD_SETTING),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "99999999999g"}, LARGE | BAD_SETTING),
    ],
)
def test_status(run: Run, shm: str, environment: dict[str, str], expected: int) -> None:
    assert int(output(run(STATUS, shm, **environment))) == LOADED | expected


@NEEDS_ROOT
def test_status_where_only_root_may_write(run: Run) -> None:
    assert int(output(run(STATUS, "unwritable", prefix=AS_USER))) == LOADED | ACTIVE | UNWRITABLE


BOTH = pytest.mark.parametrize("fallback", [True, False], ids=["fallback", "libc"])


def run_either(run: Run, fallback: bool, code: str) -> str:
    """The fallback in 16 MiB, or libc with room enough."""
    return output(run(code, "16m" if fallback else "2g", preload=fallback))


@BOTH
def test_create_use_unlink(run: Run, fallback: bool) -> None:
    code = """
    fd = make(NAME, BIG, 7)
    print(read(NAME), oct(stat.S_IMODE(os.fstat(fd).st_mode)), stat.S_ISREG(os.fstat(fd).st_mode))
    print(bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)
    print(error_of(shm_open, NAME, NEW, 0o600), error_of(shm_open, NAME, os.O_CREAT | RW, 0o600))
    shm_unlink(NAME)
    print(error_of(shm_open, NAME, RW, 0), error_of(shm_unlink, NAME), os.fstat(fd).st_size)
    os.posix_fallocate(fd, 0, 2 * BIG)
    print(os.fstat(fd).st_size, os.pread(fd, 1, 0), os.listdir("/dev/shm"))
    """
    assert run_either(run, fallback, code).splitlines() == [
        "(67108864, 7, 7) 0o600 True",
        f"True {os.O_RDWR}",
        "EEXIST ok",
        "ENOENT ENOENT 67108864",
        "134217728 b'\\x07' []",
    ]


@BOTH
def test_flags_on_an_existing_object(run: Run, fallback: bool) -> None:
    code = """
    fd = make(NAME, 4096, 7)
    reader = shm_open(NAME, os.O_RDONLY, 0)
    print(error_of(os.write, reader, b"x"), os.read(reader, 1))
    os.close(shm_open(NAME, RW | os.O_TRUNC, 0))
    print(os.fstat(fd).st_size, error_of(shm_open, NAME, NEW, 0o600))
    """
    assert run_either(run, fallback, code).split() == ["EBADF", "b'\\x07'", "0", "EEXIST"]


@BOTH
def test_errno_is_kept_on_success_and_told_on_failure(run: Run, fallback: bool) -> None:
    code = """
    libc = ctypes.CDLL(None, use_errno=True)
    name = NAME.encode()
    ctypes.set_errno(77)
    fd = libc.shm_open(name, NEW, 0o600)
    print(fd > 2, ctypes.get_errno())
    print(libc.shm_open(name, NEW, 0o600), errno.errorcode[ctypes.get_errno()])
    ctypes.set_errno(77)
    print(libc.close(fd), ctypes.get_errno(), libc.shm_unlink(name), ctypes.get_errno())
    print(libc.close(fd), errno.errorcode[ctypes.get_errno()])
    """
    assert run_either(run, fallback, code).splitlines() == ["True 77", "-1 EEXIST", "0 77 0 77", "-1 EBADF"]


OTHER_PROCESS = """
child = r'''
import mmap, os, sys
from _posixshmem import shm_open, shm_unlink
fd = shm_open(sys.argv[1], os.O_RDWR, 0)
with mmap.mmap(fd, 0) as view:
    print(len(view), view[0], end=" ", flush=True)
    view[0] = 8
if "unlink" in sys.argv:
    shm_unlink(sys.argv[1])
'''
def elsewhere(*arguments):
    return subprocess.run([sys.executable, "-c", child, *arguments], check=True, text=True)
"""


@BOTH
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_name_opened_by_another_process(run: Run, fallback: bool, closed: bool) -> None:
    code = f"""
    fd = make(NAME, BIG, 7)
    view = mmap.mmap(fd, 0)
    if {closed}:
        os.close(fd)
    elsewhere(NAME, "unlink")
    print(view[0], error_of(shm_open, NAME, RW, 0), os.listdir("/dev/shm"))
    """
    assert run_either(run, fallback, OTHER_PROCESS + textwrap.dedent(code)) == f"{64 << 20} 7 8 ENOENT []"


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
    os.kill(keepers()[0], signal.SIGKILL)
    until(lambda: keepers() == [])
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


def test_other_names_are_left_alone(run: Run) -> None:
    code = """
    names = ["/mine", "/torch_cache", "/torch_1_x", "/torch_1_2_3_4", "/psm_short", "/sem.x", "/torchvision_1_2"]
    for name in names:
        os.close(make(name, 4096, 7))
        path = "/dev/shm" + name
        print(stat.S_ISREG(os.lstat(path).st_mode), os.stat(path).st_dev == os.stat("/dev/shm").st_dev)
    print(keepers())
    """
    assert output(run(code)).split() == ["True", "True"] * 7 + ["[]"]


def test_off_is_libc(run: Run) -> None:
    code = """
    fd = make(NAME, 4096, 7)
    print(stat.S_ISREG(os.lstat("/dev/shm" + NAME).st_mode), error_of(os.posix_fallocate, fd, 0, BIG))
    """
    assert output(run(code, TORCH_DOCTOR_SHM="off")) == "True ENOSPC"
    assert output(run(code)) == "False ok"


def test_real_object_of_a_process_without_the_fallback_is_opened(run: Run) -> None:
    code = """
    os.environ["TORCH_DOCTOR_SHM"] = "off"
    subprocess.run([sys.executable, "-c", f'''
    import os; from _posixshmem import shm_open
    os.write(shm_open("{NAME}", {NEW}, 0o600), b"real")'''.replace("\\n    ", "\\n")], check=True)
    os.environ["TORCH_DOCTOR_SHM"] = "auto"
    print(os.read(shm_open(NAME, RW, 0), 9), error_of(shm_open, NAME, NEW, 0o600))
    shm_unlink(NAME)
    print(os.listdir("/dev/shm"))
    """
    assert output(run(code)).splitlines() == ["b'real' EEXIST", "[]"]


@pytest.mark.parametrize("target", ["/proc/1/fd/0", "/proc/self/fd/0", "/etc/passwd", "/proc/{pid}/fd/{fd}"])
def test_a_link_that_leads_elsewhere_is_not_followed(run: Run, target: str) -> None:
    """A reused pid, another container's pid, or somebody's malice."""
    code = f"""
    fd = os.open("/etc/hostname", os.O_RDONLY)
    os.symlink("{target}".format(pid=os.getpid(), fd=fd), "/dev/shm" + NAME)
    print(error_of(shm_open, NAME, os.O_RDONLY, 0))
    """
    assert output(run(code)) in ("ENOENT", "EACCES", "ELOOP")


def test_descriptor_closed_behind_our_back_is_not_mistaken(run: Run) -> None:
    code = """
    fd = shm_open(NAME, NEW, 0o600)
    libc = ctypes.CDLL(None)
    libc.syscall(3, fd)                       # close, not through libc
    again = os.open("/etc/hostname", os.O_RDONLY)
    assert again == fd
    os.close(again)
    print(keepers(), error_of(shm_open, NAME, RW, 0))
    """
    assert output(run(code)) == "[] ENOENT"


def test_forked_child_and_spawned_program_leave_the_parents_object_alone(run: Run) -> None:
    """subprocess closes descriptors in a child that shares the parent's memory (vfork)."""
    code = """
    fd = make(NAME, BIG, 7)
    subprocess.run(["true"], check=True, close_fds=True)
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        os.close(make(f"/torch_{os.getpid()}_2_0", 4096, 5))   # the child serves names of its own
        print(read(f"/torch_{os.getpid()}_2_0"), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(os.readlink("/dev/shm" + NAME) == f"/proc/{os.getpid()}/fd/{fd}")
    os.close(fd)
    print(read(NAME))
    """
    assert output(run(code)).splitlines() == ["(4096, 5, 5)", "True", f"({64 << 20}, 7, 7)"]


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


@NEEDS_ROOT
@BOTH
def test_other_user_may_not_open(run: Run, fallback: bool) -> None:
    code = """
    fd = make(NAME, 4096, 7)
    pid = os.fork()
    if pid == 0:
        os.setgroups([]); os.setgid(12345); os.setuid(12345)
        print(error_of(shm_open, NAME, RW, 0), error_of(shm_unlink, NAME), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    """
    assert run_either(run, fallback, code) == "EACCES EACCES"


@pytest.mark.parametrize("shm", ["absent", "read-only"])
def test_without_a_usable_dev_shm(run: Run, shm: str) -> None:
    code = """
    fd = make(NAME, BIG, 7)
    os.close(fd)
    elsewhere(NAME, "unlink")
    print(error_of(shm_open, NAME, RW, 0), error_of(shm_unlink, NAME))
    """
    assert output(run(OTHER_PROCESS + textwrap.dedent(code), shm)) == f"{64 << 20} 7 ENOENT ENOENT"


@pytest.mark.parametrize(
    "trap",
    ["os.mkdir(path, 0o777); os.chmod(path, 0o777)", "os.mkdir('/mnt/own', 0o700); os.symlink('/mnt/own', path)"],
)
def test_a_folder_open_to_others_is_not_used(run: Run, trap: str) -> None:
    code = f"""
    path = f"/mnt/work/.torch-doctor-shm-{{os.geteuid()}}"
    {trap}
    status = ctypes.CDLL(None).torch_doctor_shm_status()
    fd = shm_open(NAME, NEW, 0o600)
    print(os.path.lexists(path + NAME), bool(status & {ACTIVE}))
    """
    result = output(run(code, "absent", TORCH_DOCTOR_SHM_DIR="/mnt/work", TMPDIR="/nonexistent"))
    assert result == "False True"


# --- multiprocessing.shared_memory -----------------------------------------------------------

PSM = """
from multiprocessing import resource_tracker, shared_memory
"""


@BOTH
@pytest.mark.parametrize("size", [4096, 64 << 20], ids=["small", "large"])
def test_shared_memory_outlives_its_maker(run: Run, fallback: bool, size: int) -> None:
    code = f"""
    resource_tracker.ensure_running()   # a tracker of the child's own would unlink at its death
    pid = os.fork()
    if pid == 0:
        shared = shared_memory.SharedMemory(create=True, size={size})
        shared.buf[0] = shared.buf[{size} - 1] = 7
        open("/tmp/name", "w").write(shared.name)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    shared = shared_memory.SharedMemory(open("/tmp/name").read())
    print(shared.size, shared.buf[0], shared.buf[{size} - 1])
    shared.close(); shared.unlink()
    print(os.listdir("/dev/shm"), error_of(shared_memory.SharedMemory, shared.name))
    """
    assert run_either(run, fallback, PSM + textwrap.dedent(code)).splitlines() == [f"{size} 7 7", "[] ENOENT"]


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


# --- named semaphores ------------------------------------------------------------------------

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


# --- NCCL ------------------------------------------------------------------------------------


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


# --- the process itself ----------------------------------------------------------------------


def test_nothing_is_printed_and_the_status_is_kept(run: Run) -> None:
    result = run("", argv=["sh", "-c", "env -i true && exit 7"])
    assert (result.returncode, result.stdout, result.stderr) == (7, "", "")


PROGRAM = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(void) {
    struct stat name;
    int fd = shm_open("/torch_1_2_3", O_CREAT | O_EXCL | O_RDWR, 0600);
    return printf("%d %d\\n", fd >= 0, lstat("/dev/shm/torch_1_2_3", &name) == 0 && S_ISLNK(name.st_mode)) < 0;
}
"""


@pytest.mark.parametrize(("flag", "served"), [("-static", 0), ("-O1", 1)])
def test_a_static_program_is_not_served(run: Run, tmp_path: Path, flag: str, served: int) -> None:
    """As README.md and the check say."""
    compiler = ["gcc", flag, "-x", "c", "-", "-o", str(tmp_path / "program")]
    subprocess.run(compiler, input=PROGRAM, check=True, timeout=60, text=True)
    assert output(run("", argv=["/mnt/work/program"])) == f"1 {served}"


def test_prove_refuses_a_library_that_does_not_load(build: Path, tmp_path: Path) -> None:
    broken = tmp_path / "libtorch_doctor_shm.so"
    broken.write_bytes(b"\x7fELF")
    good, bad = (
        subprocess.run(
            ["make", "-s", "-C", str(SOURCE), "prove", f"LIBRARY={path}"], timeout=60, capture_output=True
        ).returncode
        for path in (build / "libtorch_doctor_shm.so", broken)
    )
    assert (good, bad) == (0, 2)


def test_install_lays_out_what_the_image_copies(build: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["make", "-s", "-C", str(SOURCE), "install", f"BUILD={build}", f"DESTDIR={tmp_path}"], check=True, timeout=60
    )
    files = {str(path.relative_to(tmp_path)): oct(path.stat().st_mode & 0o7777) for path in tmp_path.rglob("*.*")}
    assert (tmp_path / "etc/ld.so.preload").read_text() == "/usr/local/lib/torch-doctor/libtorch_doctor_shm.so\n"
    assert files["usr/local/lib/torch-doctor/libtorch_doctor_shm.so"] == "0o644"
    assert os.access(tmp_path / "usr/local/lib/torch-doctor/torch-doctor-shm-keeper", os.X_OK)

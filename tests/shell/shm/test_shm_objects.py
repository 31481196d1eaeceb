"""Objects as shm_open has them, compared with libc wherever libc can be asked."""

from __future__ import annotations

import os
import textwrap

import pytest

from .conftest import BOTH, NEEDS_ROOT, OTHER_PROCESS, Run, output, run_either


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

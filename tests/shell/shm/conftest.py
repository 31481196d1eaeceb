"""Runs small programs in mount and PID namespaces of their own, with the /dev/shm they name: no container, no torch.

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

SOURCE = Path(__file__).resolve().parents[3] / "images" / "shm"

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


BOTH = pytest.mark.parametrize("fallback", [True, False], ids=["fallback", "libc"])


def run_either(run: Run, fallback: bool, code: str) -> str:
    """The fallback in 16 MiB, or libc with room enough."""
    return output(run(code, "16m" if fallback else "2g", preload=fallback))


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

"""What every process of the image gets: nothing to see, and what the image copies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import SOURCE, Run, output


def test_nothing_is_printed_and_the_status_is_kept(run: Run) -> None:
    result = run("", argv=["sh", "-c", "env -i true && exit 7"])
    assert (result.returncode, result.stdout, result.stderr) == (7, "", "")


MANAGER = """
import shutil, signal
shutil.copy("/bin/sleep", "/mnt/work/NAME")
reader, writer = os.pipe()
os.set_inheritable(writer, True)
answer, answered = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, answered, 1)]
child = os.posix_spawn("/mnt/work/NAME", ["NAME", "60"], os.environ, file_actions=actions)
os.close(writer)
os.close(answered)
os.set_blocking(reader, False)
def ended():
    try:
        return os.read(reader, 1) == b""
    except BlockingIOError:
        return False
until(lambda: os.readlink(f"/proc/{child}/exe").endswith("/NAME"))
until(lambda: "clock_nanosleep" in open(f"/proc/{child}/wchan").read() or " S " in open(f"/proc/{child}/stat").read())
until(lambda: ended() == EXPECTED)
print(os.waitpid(child, os.WNOHANG), sorted(os.listdir(f"/proc/{child}/fd"), key=int)[:3])
os.kill(child, signal.SIGKILL)
"""


@pytest.mark.parametrize(("name", "ends"), [("torch_shm_manager", True), ("torch_shm_other", False)])
def test_torchs_manager_holds_nothing_of_the_worker_that_starts_it(run: Run, name: str, ends: bool) -> None:
    code = MANAGER.replace("NAME", name).replace("EXPECTED", str(ends))
    assert output(run(code)) == "(0, 0) ['0', '1', '2']"


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

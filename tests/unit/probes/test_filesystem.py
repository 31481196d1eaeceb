"""The folder probe on real mounts, other users, and a file system that never answers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import torch_doctor
from torch_doctor.facts.filesystem import FsFacts, Place
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import ProbeFailure
from torch_doctor.probes import filesystem, isolated

GIB = 1 << 30
REQUEST = Request(timeout=60)
# others may not enter where this interpreter lies, if it lies in root's home
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
# a mount namespace of one's own: root makes one, others by a user namespace
UNSHARE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
SHOW = """
import dataclasses, json, sys
from torch_doctor.facts.request import Request
from torch_doctor.probes import filesystem
found = filesystem.probe(Request(timeout=60))
print(json.dumps(dataclasses.asdict(found)))
"""


def probe(request: Request = REQUEST, **environment: str) -> FsFacts:
    found = filesystem.probe(request, {"HOME": "/", **environment})
    assert isinstance(found, FsFacts)
    return found


def mounted(folder: Path, options: str, then: str = "true") -> dict[str, Place]:
    """Places by role, with a tmpfs mounted at ``folder`` that is the working folder and TMPDIR."""
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && cd "$1" && {then} && exec "$2" -c "$3"'
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", script, "sh", str(folder), sys.executable, SHOW],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(torch_doctor.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {item["role"]: Place(**item) for item in json.loads(done.stdout)["places"]}


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (place,) = probe(TMPDIR=str(tmp_path)).of("workspace")
    assert (place.exists, place.error, place.executable, place.readable) == (True, "", True, True)
    assert place.owner_uid == os.geteuid()
    assert place.free_bytes > 0 and place.kind
    assert list(tmp_path.iterdir()) == []


def test_a_missing_cache_is_judged_where_it_would_be_made(tmp_path: Path) -> None:
    (place,) = probe(HF_HOME=str(tmp_path / "a" / "b")).of("cache")
    assert (place.origin, place.exists, place.nearest, place.error) == ("HF_HOME", False, str(tmp_path), "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (place,) = probe(HF_HOME=str(tmp_path / "file" / "hub")).of("cache")
    assert place.error == "ENOTDIR"


def test_a_link_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (place,) = probe(HF_HOME=str(tmp_path / "loop")).of("cache")
    assert place.error == "ELOOP"


def test_a_dead_link_is_what_it_points_at(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (place,) = probe(HF_HOME=str(tmp_path / "link")).of("cache")
    assert (place.exists, place.nearest) == (False, str(tmp_path))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=1m,mode=1777", ("", True)),
        ("size=1m,mode=1777,noexec", ("", False)),
        ("size=1m,mode=1777,ro", ("EROFS", None)),
    ],
)
def test_options_of_a_mount(tmp_path: Path, options: str, expected: tuple[str, bool | None]) -> None:
    place = mounted(tmp_path, options)["tmp"]
    assert (place.error, place.executable) == expected
    assert (place.kind, place.mount_point, place.total_bytes) == ("tmpfs", str(tmp_path), 1 << 20)


def test_a_full_disk(tmp_path: Path) -> None:
    place = mounted(tmp_path, "size=64k,mode=1777", then="{ head -c 64k /dev/zero > fill; true; }")["workspace"]
    assert (place.error, place.free_bytes) == ("ENOSPC", 0)


def test_no_inode_left(tmp_path: Path) -> None:
    place = mounted(tmp_path, "size=64k,mode=1777,nr_inodes=3", then="touch a b")["workspace"]
    assert (place.error, place.free_inodes, place.free_bytes > 0) == ("ENOSPC", 0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_without_a_name_meets_a_foreign_folder(tmp_path: Path) -> None:
    # a folder that every user can reach, unlike pytest's own
    done = subprocess.run(
        ["mktemp", "-d", "/var/tmp/torch-doctor-test.XXXXXX"], capture_output=True, text=True, timeout=30, check=True
    )
    folder = Path(done.stdout.strip())
    try:
        folder.chmod(0o755)
        os.chown(folder, 1001, 100)
        (folder / "secret.h5").touch(mode=0o600)
        payload = {
            "places": [{"role": "workspace", "path": str(folder)}, {"role": "data", "path": f"{folder}/secret.h5"}]
        }
        script = isolated.HERE / "places.py"
        done = subprocess.run(
            ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", PYTHON, "-I", "-", "1"],
            input=f"import io, sys\nsys.stdin = io.StringIO({json.dumps({**payload, 'slow': [], 'limit_s': 1})!r})\n"
            + script.read_text().replace("from __future__ import annotations\n", ""),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        (folder / "secret.h5").unlink()
        folder.rmdir()
    workspace, data = json.loads(done.stdout)["places"]
    assert (workspace["error"], workspace["owner_uid"], workspace["owner_gid"]) == ("EACCES", 1001, 100)
    assert (data["exists"], data["readable"]) == (True, False)


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    """A library that makes statvfs() wait for ever on paths with "dead-server" in them, as a lost NFS does."""
    source = tmp_path / "hang.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n#include <sys/statvfs.h>\n"
        "#include <unistd.h>\n"
        "int statvfs(const char *path, struct statvfs *out) {\n"
        '  if (strstr(path, "dead-server")) for (;;) pause();\n'
        '  return ((int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs"))(path, out);\n}\n'
        "int statvfs64(const char *path, struct statvfs64 *out) {\n"
        '  if (strstr(path, "dead-server")) for (;;) pause();\n'
        '  return ((int (*)(const char *, struct statvfs64 *))dlsym(RTLD_NEXT, "statvfs64"))(path, out);\n}\n'
    )
    library = tmp_path / "hang.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], timeout=60, check=True)
    return str(library)


def test_a_silent_server_costs_one_place_and_not_the_report(tmp_path: Path, hanging: str) -> None:
    dead = tmp_path / "dead-server"
    dead.mkdir()
    started = time.monotonic()
    found = isolated.call(
        "places",
        {
            "places": [{"role": "cache", "path": str(dead)}, {"role": "tmp", "path": str(tmp_path)}],
            "slow": [0],
            "limit_s": 1.0,
        },
        python=sys.executable,
        timeout=60,
        env={**os.environ, "LD_PRELOAD": hanging},
        flags=isolated.ALONE,
    )
    assert not isinstance(found, ProbeFailure)
    silent, local = found["places"]
    assert (silent["error"], local["error"], local["executable"]) == ("TIMEOUT", "", True)
    assert time.monotonic() - started < 30


def test_places_are_absolute_and_each_comes_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    needs = Requirements(checkpoint_paths=("out", "out", "~/runs"), data_paths=("data/x.h5",), disk_bytes=GIB)
    places = list(filesystem.wanted(needs, {"HOME": "/home/u", "TMPDIR": "", "TORCHINDUCTOR_CACHE_DIR": "/c/../i"}))
    assert [(p.role, p.path, p.origin) for p in places] == [
        ("workspace", str(tmp_path), ""),
        ("home", "/home/u", "HOME"),
        ("tmp", "/tmp", ""),
        ("compile-cache", "/i", "TORCHINDUCTOR_CACHE_DIR"),
        ("checkpoints", str(tmp_path / "out"), ""),
        ("checkpoints", "/home/u/runs", ""),
        ("data", str(tmp_path / "data/x.h5"), ""),
    ]


def test_names_come_as_getpass_takes_them() -> None:
    assert probe(USER="u").named_by == "USER"
    assert probe(USER="u", LOGNAME="l").named_by == "LOGNAME"
    assert probe().named_by == ""


def test_facts_are_plain_values() -> None:
    json.dumps(dataclasses.asdict(probe()))

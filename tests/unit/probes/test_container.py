"""What is a container and what only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor.probes import container

MACHINE = {"pid": 4026531836, "uts": 4026531838, "ipc": 4026531839}
OWN = {"pid": 4026532300, "uts": 4026532301, "ipc": 4026532302}


def root(folder: Path, namespaces: dict[str, int], *files: str, release: str = "6.1.0-amd64") -> Path:
    (folder / "proc/self/ns").mkdir(parents=True)
    for name, number in namespaces.items():
        (folder / "proc/self/ns" / name).symlink_to(f"{name}:[{number}]")
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "proc/sys/kernel").mkdir(parents=True)
    (folder / "proc/sys/kernel/osrelease").write_text(release + "\n")
    return folder


@pytest.mark.parametrize(
    ("namespaces", "files", "environment", "expected"),
    [
        (OWN, [".dockerenv"], {}, "docker"),
        (OWN, ["run/.containerenv"], {}, "docker"),
        # containerd leaves no marker
        (OWN, [], {}, "docker"),
        (OWN, [], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        (OWN, [".dockerenv"], {"SLURM_JOB_ID": "7"}, "docker"),
        # docker run --pid=host
        ({**OWN, "pid": MACHINE["pid"]}, [".dockerenv"], {}, "docker"),
        (MACHINE, [], {}, ""),
        # a virtual machine made from an image
        (MACHINE, [".dockerenv"], {}, ""),
        (MACHINE, [], {"SLURM_JOB_ID": "7"}, "slurm"),
        # unshare --uts alone
        ({**MACHINE, "uts": 1}, [], {}, ""),
        ({}, [], {}, ""),
    ],
)
def test_what_manages_this_process(
    tmp_path: Path, namespaces: dict[str, int], files: list[str], environment: dict[str, str], expected: str
) -> None:
    assert container.manager(environment, root(tmp_path, namespaces, *files)) == expected


def test_processes_of_ones_own(tmp_path: Path) -> None:
    assert container.has_own_processes(root(tmp_path / "a", OWN))
    assert not container.has_own_processes(root(tmp_path / "b", {**OWN, "pid": MACHINE["pid"]}, ".dockerenv"))


def test_wsl_is_a_machine(tmp_path: Path) -> None:
    found = root(tmp_path, OWN, release="5.15.153.1-microsoft-standard-WSL2")
    assert container.manager({}, found) == ""

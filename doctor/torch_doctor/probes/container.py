"""Says what started this process: a container engine, Kubernetes, a batch scheduler, or nothing of the kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

KUBERNETES, SLURM, DOCKER, HOST = "kubernetes", "slurm", "docker", ""

_MARKERS = (".dockerenv", "run/.containerenv")

# namespaces of a machine itself have fixed numbers:
# https://github.com/torvalds/linux/blob/master/include/linux/proc_ns.h
_OF_THE_MACHINE = {"pid": "pid:[4026531836]", "uts": "uts:[4026531838]", "ipc": "ipc:[4026531839]"}


def manager(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> str:
    """KUBERNETES, SLURM or DOCKER (any other engine, too); HOST outside of all of them.

    A Slurm job in a container is DOCKER: its limits are the container's first.
    """
    environment = os.environ if environment is None else environment
    if is_container(environment, root):
        return KUBERNETES if environment.get("KUBERNETES_SERVICE_HOST") else DOCKER
    return SLURM if environment.get("SLURM_JOB_ID") else HOST


def is_container(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> bool:
    """True in a container, whichever engine made it.

    A marker file alone proves nothing: a virtual machine made from an image has /.dockerenv, too. What tells is
    a namespace of one's own; with ``--pid=host`` the marker and another namespace.
    """
    environment = os.environ if environment is None else environment
    own = _own_namespaces(root)
    marked = bool(environment.get("container")) or any((root / marker).exists() for marker in _MARKERS)
    return bool(own) if marked else "pid" in own and not _is_wsl(root)


def has_own_processes(root: Path = Path("/")) -> bool:
    """True where process 1 is this container's, and not the machine's (``--pid=host``)."""
    return "pid" in _own_namespaces(root)


def _own_namespaces(root: Path) -> set[str]:
    return {name for name, machine in _OF_THE_MACHINE.items() if _namespace(root, name) not in ("", machine)}


def _namespace(root: Path, name: str) -> str:
    try:
        return str((root / "proc/self/ns" / name).readlink())
    except OSError:
        return ""


def _is_wsl(root: Path) -> bool:
    # a WSL distribution has a PID namespace of its own, yet is what its user calls the machine
    try:
        return "microsoft" in (root / "proc/sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False

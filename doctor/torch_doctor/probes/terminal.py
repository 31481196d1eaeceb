"""Looks at what keeps a run alive and readable; starts no process."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from torch_doctor.facts.request import Request
from torch_doctor.facts.terminal import Locale, PidOne, SessionFacts, SocketFolder
from torch_doctor.probes import cgroup, container, mounts

#: where ncurses looks, on Debian, Red Hat, Alpine and self-built: https://man7.org/linux/man-pages/man5/terminfo.5.html
TERMINFO_FOLDERS = (
    "/etc/terminfo",
    "/lib/terminfo",
    "/usr/share/terminfo",
    "/usr/lib/terminfo",
    "/usr/local/share/terminfo",
)

#: what tmux takes where the environment names no UTF-8 locale
TMUX_LOCALES = ("en_US.UTF-8", "C.UTF-8")

# the interpreter ignores these from its start: https://docs.python.org/3/library/signal.html
_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}


def probe(request: Request) -> SessionFacts:
    """Multiplexers, locale, terminal, PID 1 and signals of this process."""
    environment = started_with()
    term = environment.get("TERM") or None
    manager = container.manager(environment)
    in_container = manager in (container.DOCKER, container.KUBERNETES)
    table = mounts.read()
    programs = {name: path for name in ("tmux", "screen", "nohup") if (path := shutil.which(name))}
    status = cgroup.text(Path("/proc/self/status"))
    return SessionFacts(
        programs=programs,
        sockets=tuple(sockets(programs, environment, table)),
        inside="tmux" if environment.get("TMUX") else "screen" if environment.get("STY") else "",
        over_ssh=bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY")),
        uid=os.geteuid(),
        locale=character_locale(environment),
        term=term,
        terminfo_found=find_terminfo(term, environment, table) if term else None,
        terminal=_is_terminal(0) or _is_terminal(1),
        stdout_terminal=_is_terminal(1),
        pid_one=pid_one() if in_container and container.has_own_processes() else None,
        unbuffered=bool(environment.get("PYTHONUNBUFFERED")),
        ignored=signals(status, "SigIgn") - _BY_PYTHON,
        blocked=signals(status, "SigBlk"),
        logout_kills=logout_kills(),
        manager=manager,
    )


def started_with() -> Mapping[str, str]:
    """The environment as it was given to this process: Python itself changes LC_CTYPE in a C locale (PEP 538)."""
    pairs = cgroup.text(Path("/proc/self/environ")).split("\0")
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return found or os.environ


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def character_locale(environment: Mapping[str, str]) -> Locale:
    """The locale that decides how characters are encoded, and whether it is installed."""
    for variable in ("LC_ALL", "LC_CTYPE", "LANG"):
        name = environment.get(variable, "")
        if name:
            return _with_others(Locale(variable, name, _is_installed(name)))
    return _with_others(Locale())


def _with_others(found: Locale) -> Locale:
    if found.is_utf8 and found.installed:
        return found
    return dataclasses.replace(found, other_utf8=any(map(_is_installed, TMUX_LOCALES)))


def _is_installed(name: str) -> bool | None:
    if name in ("C", "POSIX"):
        return True
    import ctypes

    library = ctypes.CDLL(None)
    # unlike setlocale() this changes nothing for the other threads
    library.newlocale.restype = ctypes.c_void_p
    library.freelocale.argtypes = [ctypes.c_void_p]
    only_characters = 1  # LC_CTYPE_MASK
    found = library.newlocale(only_characters, name.encode(), None)
    if not found:
        return False
    library.freelocale(found)
    return True


def find_terminfo(term: str, environment: Mapping[str, str], table: tuple[mounts.Mount, ...]) -> bool | None:
    """Whether the terminal database describes ``term``; None where there is no database."""
    folders = [environment.get("TERMINFO", ""), *environment.get("TERMINFO_DIRS", "").split(":")]
    if environment.get("HOME"):
        folders.append(environment["HOME"] + "/.terminfo")
    if environment.get("CONDA_PREFIX"):
        folders.append(environment["CONDA_PREFIX"] + "/share/terminfo")
    usable = [Path(f) for f in (*folders, *TERMINFO_FOLDERS) if f and not mounts.can_hang(f, table)]
    databases = [folder for folder in usable if folder.is_dir()]
    if not databases or "/" in term:
        return None if not databases else False
    # a letter's folder, or on file systems that ignore case its code
    return any((folder / first / term).is_file() for folder in databases for first in (term[0], f"{ord(term[0]):x}"))


def sockets(
    programs: Mapping[str, str], environment: Mapping[str, str], table: tuple[mounts.Mount, ...]
) -> list[SocketFolder]:
    """The folders that tmux and screen keep their sockets in."""
    uid, found = os.geteuid(), []
    if "tmux" in programs:
        # tmux falls back to /tmp where TMUX_TMPDIR is not there
        named = environment.get("TMUX_TMPDIR", "")
        base = named if named and not mounts.can_hang(named, table) and Path(named).is_dir() else "/tmp"
        found.append(socket_folder("tmux", base, f"{base}/tmux-{uid}"))
    if "screen" in programs:
        named = environment.get("SCREENDIR", "")
        name = environment.get("USER") or environment.get("LOGNAME") or "root"
        if named and not mounts.can_hang(named, table):
            found.append(socket_folder("screen", str(Path(named).parent), named))
        elif not named:
            found.append(socket_folder("screen", "/run/screen", f"/run/screen/S-{name}"))
    return found


def socket_folder(program: str, base: str, path: str) -> SocketFolder:
    """What ``path`` is now, or whether it can be made in ``base``."""
    try:
        seen = Path(path).lstat()
    except OSError:
        return SocketFolder(program, base, path, os.access(base, os.W_OK | os.X_OK))
    usable = os.access(path, os.W_OK | os.X_OK)
    return SocketFolder(program, base, path, usable, True, seen.st_uid, seen.st_mode & 0o777)


def pid_one(proc: Path = Path("/proc")) -> PidOne | None:
    """Process 1 and the zombies it has left; None where it is hidden."""
    name = cgroup.text(proc / "1/comm").strip()
    words = tuple(cgroup.text(proc / "1/cmdline").rstrip("\0").split("\0"))
    if not name:
        return None
    zombies = 0
    for folder in proc.iterdir():
        if folder.name.isdigit():
            # the name in parentheses may hold anything: what follows the last one counts
            rest = cgroup.text(folder / "stat").rpartition(")")[2].split()
            zombies += rest[:2] == ["Z", "1"]
    return PidOne(name, words, zombies)


def signals(status: str, field: str) -> frozenset[str]:
    """Names of the signals in a mask of /proc/PID/status (``SigIgn``, ``SigBlk``)."""
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            mask = int(line.split()[1], 16)
            return frozenset(s.name for s in signal.Signals if mask >> (s.value - 1) & 1)
    return frozenset()


def logout_kills(root: Path = Path("/"), uid: int | None = None) -> bool:
    """Whether systemd-logind ends all of this user's processes at logout (KillUserProcesses=yes)."""
    uid = os.geteuid() if uid is None else uid
    # root is excluded by default
    if uid == 0 or not (root / "run/systemd/system").is_dir():
        return False
    folders = [root / base / "systemd" for base in ("usr/lib", "etc", "run")]
    files = [folder / "logind.conf" for folder in folders]
    files += [path for folder in folders for path in sorted((folder / "logind.conf.d").glob("*.conf"))]
    value = "no"
    for path in files:
        for line in cgroup.text(path).splitlines():
            key, _, setting = line.partition("=")
            if key.strip() == "KillUserProcesses":
                value = setting.strip().lower()
    return value in ("yes", "true", "1", "on")


PROBES = {SessionFacts: probe}

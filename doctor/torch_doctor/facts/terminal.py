"""What keeps a run alive and readable: multiplexers, locale, terminal, PID 1, signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: programs that, as PID 1, reap every orphan and pass signals on
INITS = frozenset(
    {
        "tini", "tini-static", "docker-init", "podman-init", "dumb-init", "catatonit", "init", "systemd", "pause",
        "s6-svscan", "runit", "runit-init", "runsvdir", "my_init", "openrc-init", "busybox-init", "supervisord",
        "launchd", "bwrap",
    }
)  # fmt: skip
SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh", "busybox"})


@dataclass(frozen=True)
class SocketFolder:
    """Where a multiplexer keeps its sockets: ``path`` in ``base``. ``usable``: it can be written to, or made."""

    program: str
    base: str
    path: str
    usable: bool = True
    exists: bool = False
    owner_uid: int = 0
    mode: int = 0o700


@dataclass(frozen=True)
class Locale:
    """The locale of characters, as LC_ALL, LC_CTYPE and LANG set it.

    Args:
        variable: the one that counts; empty where none is set.
        name: its value.
        installed: whether the C library has it; None where nobody looked.
        other_utf8: whether a UTF-8 locale that tmux falls back to is installed; None where nobody looked.
    """

    variable: str = ""
    name: str = ""
    installed: bool | None = None
    other_utf8: bool | None = None

    @property
    def is_utf8(self) -> bool:
        """True for ``C.UTF-8`` and ``en_US.utf8``."""
        return "utf8" in self.name.lower().replace("-", "")


@dataclass(frozen=True)
class PidOne:
    """Process 1 of this PID namespace. ``name`` is its program's; ``zombies`` are dead children it has left."""

    name: str
    command: tuple[str, ...] = ()
    zombies: int = 0

    @property
    def reaps(self) -> bool:
        """True for an init, and for the supervisor of ``torch-doctor run``."""
        own = (
            any(word.rsplit("/", 1)[-1] == "torch-doctor" for word in self.command[:3]) and "run" in self.command[1:4]
        )
        return self.name in INITS or own


@dataclass(frozen=True)
class SessionFacts:
    """What a long run over SSH, or in a container, stands on.

    Args:
        programs: of tmux, screen and nohup those on PATH, with their paths.
        sockets: socket folders of tmux and screen, where those are there.
        inside: "tmux" or "screen" where this process runs in one.
        over_ssh: whether it was started in an SSH session.
        uid: effective user.
        term: TERM; None where it is not set.
        terminfo_found: whether the terminal database has it; None where TERM is not set or nobody could look.
        terminal: whether stdin or stdout is a terminal.
        stdout_terminal: whether stdout is.
        unbuffered: whether PYTHONUNBUFFERED is set.
        ignored: signals that this process was started with as ignored, less those that Python ignores.
        blocked: signals that it was started with as blocked.
        logout_kills: whether systemd-logind ends all processes of this user at logout.
        manager: "docker", "kubernetes", "slurm" or "" on a host.
    """

    programs: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[SocketFolder, ...] = ()
    inside: str = ""
    over_ssh: bool = False
    uid: int = 0
    locale: Locale = field(default_factory=Locale)
    term: str | None = None
    terminfo_found: bool | None = None
    terminal: bool = False
    stdout_terminal: bool = False
    pid_one: PidOne | None = None
    unbuffered: bool = False
    ignored: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    logout_kills: bool = False
    manager: str = ""

    @property
    def in_container(self) -> bool:
        """True in a container."""
        return self.manager in ("docker", "kubernetes")

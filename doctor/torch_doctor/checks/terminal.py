"""Sessions and terminals: multiplexers, locale, terminfo, PID 1, buffering, signals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from torch_doctor.facts.terminal import SHELLS, SessionFacts, SocketFolder
from torch_doctor.model import Finding, Remediation, Severity, counted
from torch_doctor.registry import check

#: others may do nothing there: tmux checks exactly these bits
OTHERS = 0o007

#: a run must be able to be stopped, and to see its children end
_NOT_IGNORED = ("SIGTERM", "SIGCHLD")
_NOT_BLOCKED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD", "SIGUSR1")


def set_variable(ses: SessionFacts, setting: str, text: str) -> Remediation:
    """``NAME=value`` where the environment is made."""
    if ses.manager == "kubernetes":
        return Remediation(f"{text}, in the container's env", (f"kubectl set env deployment NAME {setting}",))
    command = f"docker run -e {setting} ..." if ses.in_container else f"export {setting}"
    return Remediation(text, (command,))


@check("SES001", "terminal-multiplexer-missing", tags={"session"})
def terminal_multiplexer_missing(ses: SessionFacts) -> Iterator[Finding]:
    """Neither tmux nor screen is installed: nothing to come back to after a lost connection.

    What it checks:
        tmux and screen on PATH. A warning in an SSH session, a note elsewhere.
    Why it matters:
        A run in the foreground gets SIGHUP when the connection drops. nohup does not protect torchrun, which
        installs a SIGHUP handler of its own.
    Example:
        ssh gpu-box, python train.py, and a closed lid
    Fix:
        Install tmux; torch-doctor run -- python train.py then keeps the run in it.
    References:
        https://man7.org/linux/man-pages/man1/tmux.1.html
    """
    if "tmux" in ses.programs or "screen" in ses.programs:
        return
    yield Finding(
        Severity.WARNING if ses.over_ssh else Severity.NOTE,
        "neither tmux nor screen is installed",
        Remediation("Install one of them", ("apt-get install -y tmux",)),
        evidence={"programs": sorted(ses.programs), "over_ssh": ses.over_ssh},
    )


@check("SES002", "multiplexer-sockets-unusable", tags={"session", "permissions"})
def multiplexer_sockets_unusable(ses: SessionFacts) -> Iterator[Finding]:
    """tmux is there and cannot start: its socket folder is open to others, belongs to another user or cannot be made.

    What it checks:
        The folder tmux-UID in TMUX_TMPDIR or /tmp: owner, mode (nothing for others), and that it can be written to,
        or made.
        The same for screen's, where there is no tmux.
    Why it matters:
        "directory /tmp/tmux-1000 has unsafe permissions": no session starts, and none can be attached.
    Example:
        chmod -R 777 /tmp
    Fix:
        chmod 700 the folder, or TMUX_TMPDIR in a folder of one's own.
    References:
        https://man7.org/linux/man-pages/man1/tmux.1.html
    """
    used = "tmux" if "tmux" in ses.programs else "screen"
    for folder in ses.sockets:
        fault = _fault(folder, ses) if folder.program == used else None
        if fault is not None:
            message, remedy = fault
            evidence = {"path": folder.path, "owner_uid": folder.owner_uid, "mode": f"{folder.mode:04o}"}
            yield Finding(Severity.WARNING, message, remedy, evidence={**evidence, "uid": ses.uid})


def _fault(folder: SocketFolder, ses: SessionFacts) -> tuple[str, Remediation] | None:
    variable = "TMUX_TMPDIR" if folder.program == "tmux" else "SCREENDIR"
    path = shlex.quote(folder.path)
    elsewhere = _elsewhere(folder.program, variable, ses)
    if folder.exists and folder.owner_uid != ses.uid:
        return f"{folder.program}'s socket folder {folder.path} belongs to uid {folder.owner_uid}", elsewhere
    unsafe = folder.mode & OTHERS if folder.program == "tmux" else folder.mode != 0o700
    if folder.exists and unsafe:
        return (
            f"{folder.program}'s socket folder {folder.path} has mode {folder.mode:04o}: unsafe, it refuses to start",
            Remediation("Take the rights of others away", (f"chmod 700 {path}",)),
        )
    if folder.exists and not folder.usable:
        # a stale socket cannot be replaced: tmux calls it "Address already in use"
        return f"{folder.program}'s socket folder {folder.path} is on a read-only file system", elsewhere
    # an unwritable /tmp is FS002
    if not folder.exists and not folder.usable and folder.base != "/tmp":
        return f"{folder.program} cannot make its socket folder in {folder.base}", elsewhere
    return None


def _elsewhere(program: str, variable: str, ses: SessionFacts) -> Remediation:
    if ses.in_container:
        # tmux makes its folder in the one that is named, screen takes the named one itself
        named = "/tmp" if program == "tmux" else "/tmp/screen-sockets"
        return set_variable(ses, f"{variable}={named}", "Use a folder that this user can write to")
    folder = f"~/.{program}-sockets"
    return Remediation("Use a folder of one's own", (f"mkdir -m 700 -p {folder}", f"export {variable}={folder}"))


@check("SES003", "locale-not-utf8", tags={"container", "session"})
def locale_not_utf8(ses: SessionFacts) -> Iterator[Finding]:
    """The locale is not UTF-8, or is not installed.

    What it checks:
        LC_ALL, LC_CTYPE and LANG, in that order, and whether the C library has what they name. With none of them
        set it is a note, unless no UTF-8 locale is installed either, without which tmux does not start.
    Why it matters:
        tmux and screen show progress bars as rows of underscores; in an 8-bit locale Python raises
        UnicodeEncodeError on the first sign that it lacks.
    Example:
        docker run -e LANG=C IMAGE python train.py
    Fix:
        docker run -e LANG=C.UTF-8 ...; every Debian and Ubuntu has it.
    References:
        https://peps.python.org/pep-0538/
    """
    found = ses.locale
    if found.is_utf8 and found.installed is not False:
        return
    if not found.name:
        severity, message = Severity.NOTE, "no locale is set (LC_ALL, LC_CTYPE, LANG): programs take C, not UTF-8"
    elif found.is_utf8:
        severity, message = Severity.WARNING, f"the locale {found.variable}={found.name} is not installed"
    else:
        severity, message = Severity.WARNING, f"the locale {found.variable}={found.name} is not UTF-8"
    if found.other_utf8 is False:
        severity, message = Severity.WARNING, f"{message}; no UTF-8 locale is installed, so that tmux does not start"
    yield Finding(
        severity,
        message,
        set_variable(ses, f"{found.variable or 'LANG'}=C.UTF-8", "Set a UTF-8 locale that is installed"),
        evidence={"variable": found.variable, "name": found.name, "installed": found.installed},
    )


@check("SES004", "terminal-type-unknown", tags={"container", "session"})
def terminal_type_unknown(ses: SessionFacts) -> Iterator[Finding]:
    """The terminal database does not know TERM.

    What it checks:
        The terminfo entry of TERM in TERMINFO, ~/.terminfo, TERMINFO_DIRS and the system's folders. TERM may be
        unset where there is no terminal.
    Why it matters:
        tmux and screen refuse to start ("missing or unsuitable terminal"), editors and progress bars fall back.
    Example:
        ssh from kitty or Ghostty to a machine whose ncurses is older than the terminal
    Fix:
        TERM=xterm-256color, or copy the entry: infocmp -x | ssh HOST tic -x -
    References:
        https://man7.org/linux/man-pages/man5/terminfo.5.html
    """
    if ses.term is None:
        missing = ses.terminal
        message = "TERM is not set on a terminal"
    else:
        missing = ses.terminfo_found is False
        message = f"TERM={ses.term} is not in the terminal database"
    if not missing:
        return
    remedy = set_variable(ses, "TERM=xterm-256color", "Name a terminal that it knows")
    if ses.over_ssh and ses.term is not None:
        copied = f"infocmp -x {shlex.quote(ses.term)} | ssh HOST tic -x -"
        remedy = Remediation("Name a terminal that it knows, or copy the entry here", (*remedy.commands, copied))
    yield Finding(Severity.WARNING, message, remedy, evidence={"term": ses.term, "terminal": ses.terminal})


@check("SES005", "pid-1-does-not-reap", tags={"container", "session"})
def pid_1_does_not_reap(ses: SessionFacts) -> Iterator[Finding]:
    """The container's first process is no init: orphans stay as zombies, and SIGTERM may not arrive.

    What it checks:
        The program with PID 1, in a container, against those that reap (tini, docker-init, dumb-init, systemd,
        s6, catatonit, ...), and how many zombies it has left.
    Why it matters:
        Workers whose parent died pile up until the pids limit is reached. PID 1 has no default signal handlers:
        docker stop waits ten seconds and kills, without a last checkpoint.
    Example:
        docker run SOME_IMAGE python train.py
    Fix:
        docker run --init ..., init: true in compose, shareProcessNamespace: true in Kubernetes.
    References:
        https://docs.docker.com/reference/cli/docker/container/run/#init
        https://github.com/krallin/tini
    """
    first = ses.pid_one
    if not ses.in_container or first is None or first.reaps:
        return
    what = "passes no signals on" if first.name in SHELLS else "does not reap orphans"
    left = f"; {counted(first.zombies, 'zombie')} left" if first.zombies else ""
    remedy = Remediation("Let the engine add an init; in compose: init: true", ("docker run --init ...",))
    if ses.manager == "kubernetes":
        remedy = Remediation("In the pod's spec: shareProcessNamespace: true, or an image with tini")
    yield Finding(
        Severity.WARNING,
        f"PID 1 is {first.name}, which {what}{left}",
        remedy,
        evidence={"pid_1": first.name, "zombies": first.zombies},
    )


@check("SES006", "python-output-buffered", tags={"container", "session"})
def python_output_buffered(ses: SessionFacts) -> Iterator[Finding]:
    """Python keeps what a run prints in a buffer, so that logs come late or, after a kill, not at all.

    What it checks:
        PYTHONUNBUFFERED, in a container whose stdout is no terminal.
    Why it matters:
        docker logs stays empty for hours; the last 8 KiB before a SIGKILL are lost, with the reason in them.
    Example:
        docker run -d IMAGE python train.py
    Fix:
        docker run -e PYTHONUNBUFFERED=1 ..., or python -u.
    References:
        https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUNBUFFERED
    """
    if ses.unbuffered or ses.stdout_terminal or not ses.in_container:
        return
    yield Finding(
        Severity.NOTE,
        "PYTHONUNBUFFERED is not set and stdout is no terminal: what Python prints comes late",
        set_variable(ses, "PYTHONUNBUFFERED=1", "Print at once"),
    )


@check("SES007", "signals-held-back", tags={"session"})
def signals_held_back(ses: SessionFacts) -> Iterator[Finding]:
    """Signals that a run lives by are ignored or blocked, and every child inherits that.

    What it checks:
        SIGTERM and SIGCHLD ignored; SIGTERM, SIGINT, SIGHUP, SIGCHLD or SIGUSR1 blocked, in this process. An
        ignored SIGHUP is what nohup does, and no fault.
    Why it matters:
        A blocked SIGTERM never reaches the handler that saves a checkpoint; with SIGCHLD ignored, exit statuses
        of workers are lost.
    Example:
        trap '' TERM in the script that starts the run
    Fix:
        Take the trap, or the mask, out of what starts the run.
    References:
        https://man7.org/linux/man-pages/man7/signal.7.html
    """
    ignored = [name for name in _NOT_IGNORED if name in ses.ignored]
    blocked = [name for name in _NOT_BLOCKED if name in ses.blocked]
    held = [f"{' and '.join(names)} ignored" for names in (ignored,) if names]
    held += [f"{' and '.join(names)} blocked" for names in (blocked,) if names]
    if not held:
        return
    names = " ".join(name.removeprefix("SIG") for name in ignored)
    yield Finding(
        Severity.WARNING,
        f"started with {', '.join(held)}",
        Remediation("Give the run its signals back in what starts it", (f"trap - {names}",) if ignored else ()),
        evidence={"ignored": ignored, "blocked": blocked},
    )


@check("SES008", "run-ends-with-connection", tags={"session"})
def run_ends_with_connection(ses: SessionFacts) -> Iterator[Finding]:
    """A run that is started here ends when the SSH connection does.

    What it checks:
        An SSH session outside of tmux and screen, in which SIGHUP is not ignored.
    Why it matters:
        The run gets SIGHUP when the network drops or the laptop sleeps.
    Example:
        ssh gpu-box, then python train.py
    Fix:
        torch-doctor run -- python train.py, or start it in tmux.
    References:
        https://man7.org/linux/man-pages/man1/tmux.1.html
    """
    if not ses.over_ssh or ses.inside or "SIGHUP" in ses.ignored:
        return
    yield Finding(
        Severity.NOTE,
        "this is an SSH session outside of tmux and screen: a run in it ends with the connection",
        Remediation("Start it detached", ("torch-doctor run -- python train.py",)),
    )


@check("SES009", "logout-kills-sessions", tags={"session"})
def logout_kills_sessions(ses: SessionFacts) -> Iterator[Finding]:
    """This machine ends all processes of a user at logout, those in tmux too.

    What it checks:
        KillUserProcesses=yes in logind.conf and its drop-in files.
    Why it matters:
        tmux and nohup do not help: the whole session scope is killed.
    Example:
        KillUserProcesses=yes in /etc/systemd/logind.conf
    Fix:
        loginctl enable-linger, and start the session in a scope of its own.
    References:
        https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html
    """
    if not ses.logout_kills:
        return
    yield Finding(
        Severity.WARNING,
        "systemd-logind ends all of this user's processes at logout (KillUserProcesses=yes)",
        Remediation(
            "Start the session outside of the login's scope",
            ("loginctl enable-linger", "systemd-run --user --scope tmux new -s train"),
        ),
    )

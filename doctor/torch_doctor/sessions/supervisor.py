"""The process that owns a run: its terminal, its process group, its log, and the record of how it ended.

It outlives the terminal, the SSH connection, tmux and screen, which are only views of it. Standard library
only, and little of that: it must stay small, and start at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_doctor.facts.sessions import STOPPED_BY_COMMAND, STOPPED_BY_CONTAINER, STOPPED_BY_SIGNAL
from torch_doctor.sessions import child, helper, kernel, proc, protocol, spec, state, store, terminal, verdict
from torch_doctor.sessions.ending import Ending, Stop, Watch
from torch_doctor.sessions.log import LogWriter
from torch_doctor.sessions.server import Client, Server
from torch_doctor.sessions.spec import Spec
from torch_doctor.sessions.state import Attempt, State

READ_BYTES = 1 << 16
#: gathered before one write to the log; a pseudo-terminal gives at most 4 KiB at a time
GATHER_BYTES = 1 << 18
#: typed into a command that does not read; what comes after is dropped, as a terminal does
INPUT_BYTES = 1 << 16
LOG_RETRY_SECONDS = 0.5
FIRST_SAMPLE_SECONDS, LAST_SAMPLE_SECONDS = 0.25, 5.0
RESTART_SECONDS, LONGEST_RESTART_SECONDS = 1.0, 60.0

_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_STOPPERS = (STOPPED_BY_COMMAND, STOPPED_BY_CONTAINER, STOPPED_BY_SIGNAL)
_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Supervisor:
    """One session, from its start to its end. Everything happens in one thread, in run()."""

    def __init__(self, wanted: Spec) -> None:
        self.spec = wanted
        self.folder = Path(wanted.folder)
        self.selector = selectors.DefaultSelector()
        self.timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self.server = Server(self.selector, self)
        self.log = LogWriter(self.folder / store.LOG, limit_bytes=wanted.log_limit_bytes, keep=wanted.log_keep)
        self.state = State(
            wanted.name,
            wanted.command,
            cwd=wanted.cwd,
            backend=wanted.backend,
            grace=wanted.grace,
            restarts=wanted.restarts,
            created=time.time(),
            supervisor=proc.identity(os.getpid()),
        )
        self.master, self.slave = terminal.open_pty(wanted.rows, wanted.columns)
        self.modes = terminal.modes(self.slave)
        self.pid = 0
        self.helper = 0
        self.typed = bytearray()
        self.raw = False
        self.stop: Stop | None = None
        self.ending: Ending | None = None
        self.watch = Watch()
        self.over = False

    # -- the loop

    def run(self) -> None:
        """Start the command and stay until it, and everything it started, is gone."""
        self.signals = kernel.signal_descriptor((signal.SIGCHLD, signal.SIGHUP, *_STOPPING, *_FORWARDED))
        self.selector.register(self.signals, selectors.EVENT_READ, self._on_signals)
        self.selector.register(self.master, selectors.EVENT_READ, self._on_terminal)
        store.reserve(self.folder)
        self.server.listen([Path(p) for p in self.spec.sockets])
        failure = self._start()
        self._tell_starter(failure)
        while not self.over:
            for key, events in self.selector.select(self._timeout()):
                key.data(events)
            self._run_timers()
        self._leave()

    def _timeout(self) -> float | None:
        if not self.timers:
            return None
        return max(0.0, min(at for at, _ in self.timers.values()) - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        for name in [n for n, (at, _) in self.timers.items() if at <= now]:
            _, action = self.timers.pop(name)
            action()

    def after(self, seconds: float, name: str, action: Callable[[], None]) -> None:
        """Call ``action`` once after ``seconds``; one timer per name."""
        self.timers[name] = (time.monotonic() + seconds, action)

    def change(self, **values: Any) -> None:
        """Change the state and write it. A full disk is no reason to stop."""
        self.state = dataclasses.replace(
            self.state,
            **values,
            revision=self.state.revision + 1,
            log_bytes=self.log.file_bytes,
            log_error=self.log.error,
            log_gaps=tuple(self.log.gaps),
        )
        store.write(self.folder, self.state)

    # -- the command

    def _start(self) -> child.CannotStart | None:
        terminal.set_modes(self.slave, self.modes)
        offset = self.log.file_bytes
        self.watch = Watch.begin(offset)
        started = child.start(self.spec.command, self.spec.cwd, self.slave)
        if isinstance(started, child.CannotStart):
            self._read_terminal()
            self._attempt_over(self.watch.never_started(started))
            return started
        self.pid = started
        self.change(
            status=state.RUNNING,
            child=proc.identity(started),
            socket=self.server.path,
            started_boottime=time.clock_gettime(time.CLOCK_BOOTTIME),
            attempts=(*self.state.attempts, Attempt(offset)),
        )
        self._sample(FIRST_SAMPLE_SECONDS)
        return None

    def _tell_starter(self, failure: child.CannotStart | None) -> None:
        if self.spec.ready < 0:
            return
        answer = dataclasses.asdict(failure) if failure else {"pid": os.getpid()}
        with contextlib.suppress(OSError):
            os.write(self.spec.ready, json.dumps(answer).encode())
        os.close(self.spec.ready)

    def _sample(self, wait: float) -> None:
        self.watch.sample(proc.descendants(os.getpid(), proc.all_processes()))
        following = min(wait * 2, LAST_SAMPLE_SECONDS)
        self.after(wait, "sample", lambda: self._sample(following))

    def _on_signals(self, _: int) -> None:
        for sender in kernel.read_signals(self.signals):
            if sender.number == signal.SIGCHLD:
                self._reap()
            elif sender.number in _STOPPING:
                self.request_stop(Stop(STOPPED_BY_SIGNAL, sender.number, self.spec.grace, _describe(sender)))
            elif sender.number in _FORWARDED and self.pid:
                proc.send([self.pid], sender.number)
            # SIGHUP: a closed terminal or a dead connection is none of the run's business

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                # Ctrl-Z without a shell to bring it back
                if os.WSTOPSIG(status) in _TERMINAL_STOPS:
                    proc.send_group(pid, signal.SIGCONT)
            elif pid == self.pid:
                self._command_ended(status, usage.ru_maxrss * 1024)
            elif pid == self.helper:
                self._postmortem_over()
        if self.ending is not None:
            self._end_survivors()

    def _command_ended(self, status: int, rss_bytes: int) -> None:
        self.pid = 0
        self.timers.pop("sample", None)
        self.timers.pop("grace", None)
        left = self.stop.left(time.monotonic()) if self.stop else self.spec.grace
        self.ending = Ending(self.watch.ended(status, rss_bytes, self.stop), left, self.stop is not None)

    def _end_survivors(self) -> None:
        """End what the command left behind; when nothing is left, the attempt is over."""
        assert self.ending is not None
        left = [s for s in proc.descendants(os.getpid(), proc.all_processes()) if s.state not in "ZX"]
        number = self.ending.next_signal(bool(left), time.monotonic())
        if number is None:
            finished, self.ending = self.ending, None
            self.timers.pop("survivors", None)
            self._read_terminal()
            self._attempt_over(dataclasses.replace(finished.exit, survivors=finished.signalled))
            return
        if number:
            self.ending.signalled = max(self.ending.signalled, len(left))
            proc.send((s.pid for s in left), number)
        self.after(0.03, "survivors", self._end_survivors)

    def _attempt_over(self, how: state.Exit) -> None:
        sender = self.stop.sender if self.stop else ""
        how = dataclasses.replace(how, reason=how.reason or verdict.reason(how, sender))
        last = Attempt(self.watch.log_offset, how.duration, how.status, how.signal)
        attempts = (*self.state.attempts[:-1], last) if self.state.attempts else (last,)
        failed = verdict.status(how) == state.FAILED
        if failed and len(attempts) <= self.spec.restarts and how.status not in (126, 127):
            self.change(status=state.RESTARTING, child=None, exit=how, attempts=attempts)
            wait = min(RESTART_SECONDS * 2 ** (len(attempts) - 1), LONGEST_RESTART_SECONDS)
            self.after(wait, "restart", self._restart)
            return
        seen = bool(self.log.held)
        self.log.close(Path(self.spec.spill) if self.spec.spill else None)
        if seen:
            # the end made a little room in the log for what the views have had as it came
            self.server.to_views(protocol.seek(self.log.file_bytes))
        self.change(status=verdict.status(how), child=None, exit=how, attempts=attempts, ended=time.time())
        if failed and self.spec.postmortem:
            self._begin_postmortem()
        else:
            self.over = True

    def _restart(self) -> None:
        self._start()

    # -- stopping

    def request_stop(self, wanted: Stop) -> None:
        """End the run: the signal now, SIGKILL when the grace time is over."""
        if self.helper:
            proc.send([self.helper], signal.SIGKILL)
            return
        if "restart" in self.timers:
            self.timers.pop("restart")
            self.log.close()
            self.change(status=state.STOPPED, ended=time.time())
            self.over = True
            return
        if self.ending is not None:
            self.ending.hurry(wanted.grace, time.monotonic())
            return
        first = self.stop is None
        self.stop = wanted if self.stop is None else self.stop.shortened(wanted.grace)
        group = proc.group_to_stop(self.pid, proc.all_processes())
        proc.send(group, wanted.number)
        proc.send(group, signal.SIGCONT)  # a stopped process takes its signal only when it goes on
        self.after(self.stop.left(time.monotonic()), "grace", self._kill)
        if first:
            self.change(status=state.STOPPING)

    def _kill(self) -> None:
        # the command alone: its helpers that clean shared memory up get a moment in _end_survivors
        if self.pid:
            proc.send([self.pid], signal.SIGKILL)

    # -- the terminal and the views

    def _on_terminal(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write_typed()
        if events & selectors.EVENT_READ:
            self._read_terminal(GATHER_BYTES)

    def _read_terminal(self, limit: int = sys.maxsize) -> None:
        """Move what the command wrote into the log, up to ``limit`` bytes or all there is."""
        pieces: list[bytes] = []
        size = total = 0
        while total < limit:
            try:
                piece = os.read(self.master, READ_BYTES)
            except (BlockingIOError, OSError):
                break
            pieces.append(piece)
            size += len(piece)
            total += len(piece)
            if size >= GATHER_BYTES:
                self._tee(b"".join(pieces))
                pieces, size = [], 0
        if pieces:
            self._tee(b"".join(pieces))

    def _tee(self, data: bytes) -> None:
        raw = terminal.is_raw(self.master)
        if raw != self.raw:
            self.raw = raw
            self.server.to_views(protocol.frame(protocol.RAW, b"1" if raw else b"0"))
        missing = self.log.dropped + len(self.log.held)
        if self.log.write(data):
            self.server.bell()
            return
        # what the log took before it refused is read from there: views get the rest
        missing = self.log.dropped + len(self.log.held) - missing
        self.server.output(data[len(data) - missing :])
        if "log" not in self.timers:
            self.change()
            self.after(LOG_RETRY_SECONDS, "log", self._retry_log)

    def _retry_log(self) -> None:
        whole = self.log.retry()
        # views have seen it as it came
        self.server.to_views(protocol.seek(self.log.file_bytes))
        if whole:
            self.change()
        else:
            self.after(LOG_RETRY_SECONDS, "log", self._retry_log)

    def on_input(self, data: bytes) -> None:
        """Typed into a view."""
        self.typed += data[: INPUT_BYTES - len(self.typed)]
        self._write_typed()

    def _write_typed(self) -> None:
        with contextlib.suppress(OSError):
            while self.typed:
                del self.typed[: os.write(self.master, self.typed)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.typed else 0)
        self.selector.modify(self.master, wanted, self._on_terminal)

    def on_size(self, rows: int, columns: int) -> None:
        """A view's window has this size; the last one counts."""
        with contextlib.suppress(OSError):
            terminal.set_size(self.master, rows, columns)

    def on_request(self, client: Client, values: dict[str, Any]) -> None:
        """A view, or a command, has connected."""
        operation = values.get("op")
        if operation == "view":
            reply = {"log_bytes": self.log.file_bytes, "raw": self.raw}
            self.server.send(client, protocol.packed(protocol.REPLY, reply))
            if self.log.held:
                self.server.send(client, protocol.frame(protocol.OUTPUT, bytes(self.log.held[-(1 << 18) :])))
        elif operation == "stop":
            by = values.get("by") if values.get("by") in _STOPPERS else STOPPED_BY_COMMAND
            grace = values.get("grace")
            limit = self.spec.grace if grace is None else max(0.0, float(grace))
            self.request_stop(Stop(str(by), int(values.get("signal", signal.SIGTERM)), limit))
        elif operation == "signal" and self.pid:
            proc.send([self.pid], int(values["signal"]))

    # -- the end

    def _begin_postmortem(self) -> None:
        """Have the failure explained, by a child process with a time limit; without it the end is as good."""
        self.helper = helper.spawn(self.spec.postmortem)
        if not self.helper:
            self.over = True
        self.after(self.spec.postmortem_timeout, "postmortem", lambda: proc.send_group(self.helper, signal.SIGKILL))

    def _postmortem_over(self) -> None:
        proc.send_group(self.helper, signal.SIGKILL)
        self.helper = 0
        cause, remedy = helper.cause(self.folder / store.POSTMORTEM)
        self.change(postmortem=cause, remedy=remedy)
        self.over = True

    def _leave(self) -> None:
        self.server.end(self.state)
        self.server.close()
        for name in (store.RESERVE, spec.FILE):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)


def _describe(sender: kernel.Sender) -> str:
    if sender.pid == 0:
        return "outside this container"
    known = proc.stat_of(sender.pid)
    return f"process {sender.pid}{f' ({known.name})' if known else ''}, uid {sender.uid}"


def main(path: str) -> None:
    """Be the supervisor of the session that the file at ``path`` specifies."""
    wanted = spec.load(Path(path))
    for descriptor in (wanted.lock, wanted.ready):
        if descriptor >= 0:
            # the lock says that the supervisor lives: the command must not hold it
            os.set_inheritable(descriptor, False)
    for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    kernel.become_subreaper()
    supervisor = Supervisor(wanted)
    terminal.control(supervisor.slave)
    os.chdir("/")  # keeps no mount busy
    supervisor.run()


if __name__ == "__main__":
    main(sys.argv[1])

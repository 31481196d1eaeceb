"""What a session left behind: how its command ended, and what the kernel counted meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

#: who asked a run to end (SessionFacts.stopped_by)
STOPPED_BY_COMMAND = "stop"  # torch-doctor stop
STOPPED_BY_CONTAINER = "container"  # docker stop, a preempted pod: SIGTERM came to the container's main process
STOPPED_BY_SIGNAL = "signal"  # somebody signalled the supervisor or the foreground torch-doctor run


@dataclass(frozen=True)
class SessionFacts:
    """One session, as its state file tells. Sizes are bytes, times seconds.

    Args:
        name: the session's name.
        folder: absolute path that holds ``log``, ``state.json``, ``preflight.json``, ``postmortem.json`` and,
            where the run wrote them, ``error.json`` (torchrun) and ``flight-recorder-<rank>`` (NCCL).
        log: absolute path of the bytes that the child wrote, unchanged (progress bars keep their \\r).
        log_offset: where the last attempt begins in ``log`` (restarts append to the same file).
        command: the argument list as given.
        cwd: working directory of the command.
        status: starting, running, stopping, restarting, done (status 0), failed, stopped or lost (the supervisor
            died, and nobody saw how the command ended).
        exit_status: of the child, 128+n for a signal; None while it runs and where it is lost.
        signal: ``SIGKILL`` and so on where a signal ended the child, else "".
        duration: from the start of the last attempt to its end, by a clock that nobody can set.
        attempts: how often the command was started.
        stopped_by: "" where nobody asked the run to end, else a STOPPED_BY_* value.
        stop_signal: the signal that the stop began with (SIGTERM, SIGINT), or "".
        oom_kills: processes of this cgroup that the kernel's OOM killer ended during the run (v1 and v2);
            None where the kernel does not tell.
        memory_limit_hits: how often the cgroup ran into its limit during the run; None where not told.
        memory_limit_bytes: the cgroup's limit; None where there is none.
        memory_peak_bytes: the cgroup's highest usage; None where not told.
        peak_rss_bytes: the largest single process of the run (getrusage).
        peak_tree_rss_bytes: the largest sum over the process tree, sampled every few seconds.
        shm_size_bytes: of /dev/shm when the run ended; None where there is no /dev/shm.
        shm_free_bytes: what was free in it at that time.
        log_lost_bytes: output that could not be written because the log's folder was full or read-only.
    """

    name: str
    folder: str
    log: str
    log_offset: int = 0
    command: tuple[str, ...] = ()
    cwd: str = ""
    status: str = ""
    exit_status: int | None = None
    signal: str = ""
    duration: float = 0.0
    attempts: int = 1
    stopped_by: str = ""
    stop_signal: str = ""
    oom_kills: int | None = None
    memory_limit_hits: int | None = None
    memory_limit_bytes: int | None = None
    memory_peak_bytes: int | None = None
    peak_rss_bytes: int = 0
    peak_tree_rss_bytes: int = 0
    shm_size_bytes: int | None = None
    shm_free_bytes: int | None = None
    log_lost_bytes: int = 0

    @property
    def out_of_memory(self) -> bool:
        """True where the kernel says that its OOM killer ended a process of this run."""
        return bool(self.oom_kills)

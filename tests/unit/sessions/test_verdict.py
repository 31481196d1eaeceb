"""Why a run ended, in words."""

from __future__ import annotations

import pytest

from torch_doctor.sessions import verdict
from torch_doctor.sessions.state import Exit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("exit", "status", "reason"),
    [
        (Exit(0), "done", ""),
        (Exit(3), "failed", "exit status 3"),
        (Exit(139, "SIGSEGV", core_dumped=True), "failed", "SIGSEGV (core dumped)"),
        (Exit(137, "SIGKILL", oom_kills=1, memory_limit_bytes=256 * MIB), "failed",
         "SIGKILL by the kernel's OOM killer (memory limit 256 MiB)"),
        (Exit(137, "SIGKILL", oom_kills=0), "failed",
         "SIGKILL from another process: no OOM kill was counted, and torch-doctor did not send it"),
        (Exit(137, "SIGKILL"), "failed", "SIGKILL; whether by the OOM killer, this kernel does not tell"),
        (Exit(1, oom_kills=2), "failed", "exit status 1; the kernel's OOM killer ended 2 of its processes"),
        (Exit(137), "failed", "exit status 137 (128 + 9: a child of the command got that signal)"),
        (Exit(255), "failed", "exit status 255"),
        (Exit(135, "SIGBUS", shm_size_bytes=64 * MIB, shm_free_bytes=0), "failed",
         "SIGBUS: shared memory was full, or a memory-mapped file was cut short; "
         "/dev/shm had 0 MiB free of 64 MiB at the end"),
        (Exit(135, "SIGBUS"), "failed", "SIGBUS: a memory-mapped file has no storage behind it"),
        (Exit(143, "SIGTERM"), "failed",
         "SIGTERM from another process (kill, a scheduler): torch-doctor did not send it"),
        (Exit(0, stopped_by="stop", stop_signal="SIGTERM"), "stopped",
         "stopped by torch-doctor stop: SIGTERM, exit status 0"),
        (Exit(143, "SIGTERM", stopped_by="container", stop_signal="SIGTERM"), "stopped",
         "stopped by the container's stop or a preemption: SIGTERM, ended by SIGTERM"),
        (Exit(137, "SIGKILL", stopped_by="stop", stop_signal="SIGTERM"), "stopped",
         "stopped by torch-doctor stop: SIGTERM, and SIGKILL when the grace time was over"),
        (Exit(130, "SIGINT", stopped_by="signal", stop_signal="SIGINT"), "stopped",
         "stopped by a signal to torch-doctor from process 7 (bash), uid 0: SIGINT, ended by SIGINT"),
    ],
)  # fmt: skip
def test_status_and_reason(exit: Exit, status: str, reason: str) -> None:
    sender = "process 7 (bash), uid 0" if exit.stopped_by == "signal" else ""
    assert (verdict.status(exit), verdict.reason(exit, sender)) == (status, reason)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (10, "10s"), (59.4, "59s"), (62, "1m 2s"), (3725, "1h 2m"), (90061, "1d 1h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert verdict.duration(seconds) == text

"""How a process ended: signals, PID 1, exit statuses, launchers' summaries."""

from __future__ import annotations

import signal

from torch_doctor.diagnose.cause import ECHO, HINT, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.endings import uncaught
from torch_doctor.diagnose.tables import SIGNALS, signal_name, signal_of
from torch_doctor.model import Remediation

GRACEFUL = Remediation(
    "Run an init as PID 1 (docker run --init, or tini), exec python in the start script so that it gets the signal, "
    "save a checkpoint in a SIGTERM handler, and give it time with --stop-timeout",
    (
        "docker run --init --stop-timeout 120 ...",
        "exec python train.py",
        "docker inspect -f '{{.State.OOMKilled}}' CONTAINER",
    ),
)


def stopped(seen: Seen, verdict: Verdict) -> Verdict | None:
    """137 of a container: after docker stop it is the grace period; a counted OOM kill is the limit of RAM."""
    if "did not complete successfully" in seen.log.lines[seen.index].text:  # a step of a build: nobody stopped it
        return None
    if seen.oom_kills or seen.has(r"oom-?kill|OOMKilled\W{1,6}true|[Oo]ut of memory: Kill"):
        return None
    stop = seen.has(
        r"docker(?:-compose| compose)? stop|docker-compose down|docker compose down|[Ss]topping "
        r"container|real\s+0m1[0-9]\."
    )
    if stop:
        return verdict
    if seen.near(r"SIGTERM|terminationGracePeriod|preempt", 20, 2):
        return verdict
    return with_message(
        verdict,
        "the container ended with 137 (SIGKILL): after a stop whose SIGTERM PID 1 did not act on (bash or python as "
        "PID 1, no handler), or by a kill of the kernel's; docker inspect tells which",
        None,
    )


def terminal_closed(seen: Seen, verdict: Verdict) -> Verdict | None:
    """nohup protects a plain python, not torchrun: which of them ran decides the remedy."""
    if seen.has(r"torchrun|torch\.distributed|torch/distributed|death signal|closing signal"):
        return verdict
    return with_message(
        verdict,
        "the terminal or SSH connection closed, and its SIGHUP ended what ran in it",
        Remediation(
            "Run it in a session that outlives the connection: torch-doctor run, tmux, screen or nohup",
            (
                "torch-doctor run --name exp1 -- python train.py",
                "tmux new -s exp1",
                "nohup python train.py > train.log 2>&1 < /dev/null &",
                "ssh -o ServerAliveInterval=60 HOST",
            ),
        ),
    )


#: SIGBUS: a page of a memory map could not be had
NO_PAGE = Remediation(
    "Look at /dev/shm first (64 MiB in a container by default), then at the disks, and at files that were truncated "
    "while they were mapped",
    (
        "df -h /dev/shm .",
        "docker run --shm-size=8g ...",
        "PYTHONFAULTHANDLER=1 python train.py",
        "dmesg -T | tail -30",
    ),
)


def exit_status(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A bare exit status: what its signal means."""
    if "bus" in seen.groups:
        return with_message(
            verdict, "a task ended with SIGBUS: " + SIGNALS[int(signal.SIGBUS)], NO_PAGE, signal="SIGBUS"
        )
    status = int(seen.groups.get("status") or seen.groups.get("minus", "0"))
    number = signal_of(status)
    if not number:
        return None
    means = SIGNALS.get(number, "")
    return with_message(
        verdict,
        f"a process ended with {status}: {signal_name(number)}{', ' + means if means else ''}",
        NO_PAGE if number == signal.SIGBUS else None,
        signal=signal_name(number),
    )


def summary(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Where the failing process's own error is in the log, the summary adds nothing."""
    if uncaught(seen.log) is not None:
        return verdict
    return with_message(verdict, f"{verdict.message}; its own error is not in this log")


register(
    Cause(
        "SES201",
        "peer-component-died",
        "torchrun was told to stop because another component ended; this log has no cause.",
        "A launcher with several components ends the trainer when one of the others dies. SIGTERM arrives from "
        "outside.",
        "torchrun got signal {number} (SIGTERM) from outside: another component, the scheduler or a stop ended "
        "this run, and this log holds no cause",
        Remediation(
            "Read the logs of the sibling components and of the scheduler at that time: the one that ended first "
            "has the cause",
            (
                "kubectl get events --sort-by=.lastTimestamp",
                "sacct -j JOBID -o JobID,State,ExitCode,End",
                "docker events --since 1h --filter event=die",
            ),
        ),
        (
            Signature(
                "death signal",
                "W1130 12:13:49.388000 124326 torch/distributed/elastic/agent/server/api.py:723] Received 15 death "
                "signal, shutting down workers",
                "Received 1 death signal, shutting down workers",
                r"Received (?P<number>15) death signal|Received Signals\.SIGTERM death signal",
                source="torch 1.9 to 2.15, torch elastic",
            ),
            Signature(
                "Signals.SIGTERM death signal",
                "Received Signals.SIGTERM death signal, shutting down workers",
                "Received Signals.SIGHUP death signal",
                r"Received Signals\.SIGTERM death signal",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "SignalException",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 124326 got signal: 15",
                "SignalException: Process 1 got signal: 1",
                r"SignalException: Process \d+ got signal: (?P<number>15)",
                source="torch 1.9 to 2.15",
            ),
        ),
        kind=VAGUE,
        explains=("SES21", "SES22", "DST2", "MEM206"),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "15")),
    ),
    Cause(
        "SES202",
        "terminal-closed-under-torchrun",
        "torchrun ended because the SSH connection or terminal closed.",
        "torchrun installs its own handler for SIGHUP, which replaces the one that nohup sets to ignore: nohup "
        "does not protect it.",
        "torchrun got signal 1 (SIGHUP): the terminal or SSH connection closed, and nohup does not protect "
        "torchrun, which handles SIGHUP itself",
        Remediation(
            "Run it in a session that outlives the connection: torch-doctor run, tmux, screen, or setsid",
            (
                "torch-doctor run --name exp1 -- torchrun train.py",
                "tmux new -s exp1",
                "setsid torchrun train.py > train.log 2>&1 < /dev/null &",
            ),
        ),
        (
            Signature(
                "Broken pipe",
                "packet_write_wait: Connection to 10.0.0.2 port 22: Broken pipe",
                "BrokenPipeError: [Errno 32] Broken pipe",
                r"^(?:packet_write_\w+|Write failed|client_loop)[^\n]*: Broken pipe",
                source="OpenSSH",
            ),
            Signature(
                "Received 1 death signal",
                "W1130 12:13:49.388000 1 torch/distributed/elastic/agent/server/api.py:723] Received 1 death "
                "signal, shutting down workers",
                "Received 15 death signal, shutting down workers",
                source="torch 1.9 to 2.15, torch elastic",
            ),
            Signature(
                "SIGHUP death signal",
                "Received Signals.SIGHUP death signal, shutting down workers",
                "Received Signals.SIGTERM death signal",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "got signal: 1",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 1",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15",
                r"SignalException: Process \d+ got signal: 1\b",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "Hangup",
                "train.sh: line 3: 4242 Hangup                  python train.py",
                "Hangup detected on fd 0 is fine",
                r"^(?:.*: line \d+: +\d+ +)?Hangup(?:\s{3,}\S[^\n]*)?$",
                source="bash",
            ),
            Signature(
                ("client_loop: send disconnect", "closed by remote host"),
                "client_loop: send disconnect: Broken pipe",
                "disconnect",
                r"client_loop: send disconnect: Broken pipe|Connection to \S+ closed by remote host",
                source="OpenSSH",
            ),
        ),
        judge=terminal_closed,
        explains=("SES2", "DST2", "WRK222"),
        references="https://github.com/pytorch/pytorch/issues/67538",
    ),
    Cause(
        "SES203",
        "stop-not-handled-by-pid1",
        "A container did not end on docker stop and was killed after the grace time.",
        "The kernel drops signals with default action for PID 1, and bash does not pass them on: SIGTERM does "
        "nothing, and 10 s later comes SIGKILL, 137. No checkpoint is written.",
        "the container ended with 137 after a stop: PID 1 (bash or python without a handler) did not act on "
        "SIGTERM, so SIGKILL followed after the grace time and no checkpoint was written",
        GRACEFUL,
        (
            Signature(
                "137",
                "trainer exited with code 137",
                "trainer exited with code 37",
                r"(?i)exit(?:ed)?(?: with)?(?:[ _]?code| status)?\"?\s*[:=(]?\s*\(?137\b",
                unless=(
                    r"(?<![.\w])OOMKilled(?!\W{1,4}false)",
                    r"oom-kill",
                    r": line \d+:\s+\d+ Killed\s",
                    r"Exited \(0\)",
                ),
                source="Docker, compose",
            ),
        ),
        kind=VAGUE,
        judge=stopped,
        alternatives=("MEM204", "MEM206"),
        explains=("SES22", "MEM206"),
        decide="docker inspect -f '{{.State.OOMKilled}} {{.State.FinishedAt}}' CONTAINER",
    ),
    Cause(
        "SES204",
        "init-ended-before-child",
        "tini -g with a shell script: the shell ends at once on SIGTERM, and the container with it.",
        "With -g tini sends SIGTERM to the whole group; bash ends before python has saved, tini exits with its "
        "child, and the container is torn down.",
        "tini's main child, a shell, ended on SIGTERM and took the container down while python was still saving",
        Remediation(
            "exec python from the script, so that it is tini's direct child",
            ('exec python train.py "$@"', 'ENTRYPOINT ["tini", "--", "python", "train.py"]'),
        ),
        (
            Signature(
                "Main child exited with signal",
                "[INFO  tini (1)] Main child exited with signal (with signal 'Terminated')",
                "[INFO  tini (1)] Main child exited normally (with status '0')",
                source="tini 0.18 and 0.19",
            ),
        ),
        explains=("SES2",),
    ),
    Cause(
        "SES212",
        "interrupted-by-user",
        "The run was interrupted: Ctrl-C or a SIGINT.",
        "KeyboardInterrupt is a person, or a launcher that passes SIGINT on.",
        "the run was interrupted by SIGINT (Ctrl-C, or a launcher that passed it on)",
        Remediation("Nothing to mend; resume from the last checkpoint", ("python train.py --resume last.pt",)),
        (
            Signature(
                "KeyboardInterrupt",
                "KeyboardInterrupt",
                "except KeyboardInterrupt as e:",
                r"^KeyboardInterrupt\b",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "got signal: 2",
                "SignalException: Process 7 got signal: 2",
                "SignalException: Process 7 got signal: 15",
                r"got signal: 2\b",
                source="torch elastic",
            ),
        ),
        kind=ECHO,
        explains=("WRK222", "SES222"),
    ),
    Cause(
        "SES221",
        "ended-by-signal",
        "A process ended with a status that stands for a signal.",
        "128 + n, or -n from Python, is signal n.",
        "a process ended by a signal",
        Remediation(
            "Look for what sent it: the kernel's log, the scheduler, or the first failing process",
            ("dmesg -T | tail -30", "PYTHONFAULTHANDLER=1 python train.py"),
        ),
        (
            Signature(
                "exit",
                "worker exited with exit code 143",
                "exit code 1",
                r"(?:exit(?:ed)?|code|status|exitcode|returncode|rc)(?: with| code| status| "
                r"value)*\s*[:=]?\s*\(?(?P<status>12[9]|13[0-689]|14[0-9]|15[0-9])\b",
                source="shells, Docker, Slurm",
            ),
            Signature(
                ("exited on signal 7", ": Bus error"),
                "srun: error: n3: task 2: Bus error (core dumped)",
                "srun: error: n3: task 2: Killed",
                r"(?P<bus>exited on signal 7 \(|^srun: error: \S+: tasks? [\d,-]+: Bus error)",
                source="Open MPI 2 to 5, Slurm 14 to 25",
            ),
            Signature(
                ("exit", "return", "status", "terminated with code"),
                "failed (exitcode: -6) local_rank: 0 (pid: 42)",
                "exitcode: 1",
                r"(?:exitcode|exit code|return "
                r"code|returncode|status|terminated with code)\s*[:=]?\s*(?P<minus>-(?:[1-8]|1[0-9]|2\d|3[01]))\b",
                source="torchrun, subprocess",
            ),
        ),
        kind=ECHO,
        judge=exit_status,
    ),
    Cause(
        "SES222",
        "launcher-summary",
        "The launcher's summary of a rank that failed.",
        "ChildFailedError and CalledProcessError repeat that a child failed; the child's own error stands above, "
        "or in its own log.",
        "the launcher reports that a process failed",
        Remediation(
            "Look at the failing rank's own output; wrap main with torch's record to get its traceback into the "
            "summary",
            ("torchrun --tee 3 --log-dir logs train.py", "@torch.distributed.elastic.multiprocessing.errors.record"),
        ),
        (
            Signature(
                "ChildFailedError",
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
                "ChildProcessError",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "CalledProcessError",
                "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned non-zero exit "
                "status 1.",
                "CalledProcessError: Command '['ptxas'",
                r"CalledProcessError: Command '[^\n]*\.py[^\n]*' returned non-zero exit status \d+",
                source="accelerate, deepspeed, python 3.8 to 3.14",
            ),
            Signature(
                "ProcessRaisedException",
                "torch.multiprocessing.spawn.ProcessRaisedException:",
                "Process raised",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "ProcessExitedException",
                "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
                "torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGABRT",
                r"ProcessExitedException: process \d+ terminated with exit code \d+",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                "srun: error:",
                "srun: error: n1: task 3: Exited with exit code 1",
                "srun: job 1",
                r"srun: error: [^\n]*task[^\n]*: Exited with exit code [1-9]\d*",
                source="Slurm",
            ),
        ),
        kind=ECHO,
        judge=summary,
    ),
    Cause(
        "SES223",
        "leaked-objects-echo",
        "The resource tracker cleans up after a process that was killed.",
        "leaked semaphore objects are an echo of an end that ran no clean-up; the cause is another line.",
        "objects of multiprocessing were left behind by a process that ended without clean-up",
        Remediation("Look for the process that was killed: dmesg, or an earlier line", ("dmesg -T | tail -30",)),
        (
            Signature(
                "leaked ",
                "UserWarning: resource_tracker: There appear to be 24 leaked semaphore objects to clean up at "
                "shutdown",
                "leaked memory",
                r"resource_tracker: There appear to be \d+ leaked \w+",
                source="python 3.8 to 3.14",
            ),
        ),
        kind=HINT,
    ),
)

"""How a process ended: signals, PID 1, schedulers, launchers."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, HINT, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.causes.unknown import uncaught
from torch_doctor.diagnose.tables import SIGNALS, signal_name, signal_of
from torch_doctor.model import Remediation

GRACEFUL = Remediation(
    "Run an init as PID 1 (docker run --init, or tini), exec python in the start script so that it gets the "
    "signal, save a checkpoint in a SIGTERM "
    "handler, and give it time with --stop-timeout",
    (
        "docker run --init --stop-timeout 120 ...",
        "exec python train.py",
        "docker inspect -f '{{.State.OOMKilled}}' CONTAINER",
    ),
)


def stopped(seen: Seen, verdict: Verdict) -> Verdict | None:
    """137 of a container: after docker stop it is the grace period; a counted OOM kill is the limit of RAM."""
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
        "the container ended with 137 (SIGKILL): after a stop whose SIGTERM PID 1 did not act on (bash or python "
        "as PID 1, no handler), or by a kill of the kernel's; "
        "docker inspect tells which",
        None,
    )


def exit_status(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A bare exit status: what its signal means."""
    status = int(seen.groups.get("status") or seen.groups.get("minus", "0"))
    number = signal_of(status)
    if not number:
        return None
    means = SIGNALS.get(number, "")
    return with_message(
        verdict,
        f"a process ended with {status}: {signal_name(number)}{', ' + means if means else ''}",
        None,
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
        explains=("SES2", "DST2", "WRK222"),
        references="https://github.com/pytorch/pytorch/issues/67538",
    ),
    Cause(
        "SES203",
        "stop-not-handled-by-pid1",
        "A container did not end on docker stop and was killed after the grace time.",
        "The kernel drops signals with default action for PID 1, and bash does not pass them on: SIGTERM does "
        "nothing, and 10 s later comes SIGKILL, "
        "137. No checkpoint is written.",
        "the container ended with 137 after a stop: PID 1 (bash or python without a handler) did not act on "
        "SIGTERM, so SIGKILL followed after the grace time "
        "and no checkpoint was written",
        GRACEFUL,
        (
            Signature(
                "137",
                "trainer exited with code 137",
                "trainer exited with code 37",
                r"(?i)exit(?:ed)?(?: with)?(?:[ _]?code| status)?\"?\s*[:=(]?\s*\(?137\b",
                unless=(r"(?<![.\w])OOMKilled(?!\W{1,4}false)", r"oom-kill", r": line \d+:\s+\d+ Killed\s"),
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
        "SES211",
        "native-crash",
        "A native crash (SIGSEGV, SIGABRT or SIGILL) in C or C++ code.",
        "A C extension, a broken or mixed binary install, or a library that is neither fork- nor thread-safe. "
        "faulthandler names only the Python line above "
        "it.",
        "a native crash ({what}) in C/C++ code: a C extension, a broken or mixed binary install (ABI), or a "
        "library that is not safe over a fork or in threads; "
        "the log alone does not name the library",
        Remediation(
            "Read the lines after 'Current thread' that faulthandler prints, run under gdb, retry with "
            "num_workers=0, and look at native packages that changed lately",
            (
                "PYTHONFAULTHANDLER=1 python train.py",
                "gdb -batch -ex run -ex bt --args python train.py",
                "DataLoader(..., num_workers=0)",
                "pip list --outdated",
            ),
        ),
        (
            Signature(
                "Fatal Python error: ",
                "Fatal Python error: Segmentation fault",
                "Fatal error",
                r"Fatal Python error: (?P<what>Segmentation fault|Aborted|Illegal instruction|Floating[- ]point "
                r"exception)",
                source="python 3.8 to 3.14, faulthandler",
            ),
            Signature(
                "egmentation fault",
                "run.sh: line 3: 4242 Segmentation fault      (core dumped) python train.py",
                "a segmentation model",
                r"^(?:.*: line \d+: +\d+ +)?(?P<what>Segmentation fault)\b[^\n]*$|Unexpected segmentation fault "
                r"encountered in worker|killed by signal: Segmentation fault",
                source="bash, torch 0.4 to 2.15",
            ),
            Signature(
                ("exitcode: -11", "SIGSEGV", "139"),
                "failed (exitcode: -11) local_rank: 0 (pid: 4242) of binary: /usr/bin/python",
                "exitcode: -9",
                r"exitcode: -11|Signal 11 \(SIGSEGV\)|terminated with signal SIGSEGV|died with "
                r"<Signals\.SIGSEGV|exit(?:ed)?(?: with)? code:? 139\b|exit status 139\b",
                source="torchrun, shells",
            ),
            Signature(
                ("SIGSEGV", "Process received signal"),
                "  traceback : Signal 11 (SIGSEGV) received by PID 4242",
                "SIGSEGV handler",
                r"Signal 11 \((?P<what>SIGSEGV)\) received|terminated with signal SIGSEGV|died with "
                r"<Signals\.SIGSEGV|\*\*\* (?:Process received signal|SIGSEGV)",
                source="torchrun, Open MPI, glog",
            ),
            Signature(
                "139",
                "exited with code 139",
                "139 images",
                r"exit(?:ed)?(?: with)?(?: code| status)?:? \(?(?P<what>139)\b",
                source="Docker, shells",
            ),
            Signature(
                "Illegal instruction",
                "run.sh: line 3: 4242 Illegal instruction     (core dumped) python train.py",
                "CUDA error: an illegal instruction",
                r"^(?:.*: line \d+: +\d+ +)?(?P<what>Illegal instruction)\b",
                source="bash",
            ),
            Signature(
                "core dumped",
                "Aborted (core dumped)",
                "no core dumped today",
                r"^(?:.*: line \d+: +\d+ +)?(?P<what>Aborted|Floating point exception|Trace/breakpoint "
                r"trap)\b\s*\(core dumped\)",
                source="bash",
            ),
            Signature(
                ("double free or corruption", "corrupted ", "malloc(): ", "free(): invalid", "munmap_chunk"),
                "double free or corruption (!prev)",
                "double-free",
                r"(?P<what>double free or corruption|corrupted size vs\. prev_size|malloc\(\): "
                r"(?:corrupted|invalid)|free\(\): invalid (?:pointer|size|next size)|munmap_chunk\(\): invalid "
                r"pointer|corrupted double-linked list)",
                source="glibc 2.26 to 2.41",
            ),
            Signature(
                "free(): invalid",
                "free(): invalid pointer",
                "free() called",
                r"(?P<what>free\(\): invalid (?:pointer|size|next size))",
                source="glibc",
            ),
            Signature(
                "is killed by signal: A",
                "RuntimeError: DataLoader worker (pid 81) is killed by signal: Aborted. ",
                "RuntimeError: DataLoader worker (pid 81) is killed by signal: Killed. ",
                r"is killed by signal: (?P<what>Aborted|Abort trap)",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
        ),
        kind=VAGUE,
        explains=("WRK2", "SES22", "DST2"),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "SIGSEGV")),
        decide="PYTHONFAULTHANDLER=1 python train.py",
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
        "SES213",
        "time-limit-reached",
        "The scheduler ended the job at its time limit, or preempted it.",
        "Slurm sends SIGTERM, then SIGKILL, at the limit; spot machines and preemption do the same.",
        "the scheduler ended the job: {what}",
        Remediation(
            "Ask for more time, save checkpoints on a signal before the limit, and requeue",
            ("sbatch --time=48:00:00 --signal=B:USR1@300 --requeue ...", "sacct -j JOBID -o State,Elapsed,Timelimit"),
        ),
        (
            Signature(
                "DUE TO TIME LIMIT",
                "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-30T09:12:07 DUE TO TIME LIMIT ***",
                "time limit: 24 h",
                r"CANCELLED AT \S+ (?P<what>DUE TO TIME LIMIT)",
                source="Slurm 14 to 25",
            ),
            Signature(
                "DUE TO ",
                "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-30T09:12:07 DUE TO PREEMPTION ***",
                "preemption is off",
                r"CANCELLED AT \S+ (?P<what>DUE TO (?:PREEMPTION|NODE FAILURE|JOB REQUEUE)[^*\n]*)",
                source="Slurm 14 to 25",
            ),
            Signature(
                "CANCELLED AT",
                "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2026-11-30T09:12:07 ***",
                "CANCELLED",
                r"\*\*\* (?:JOB|STEP) \S+ ON \S+ (?P<what>CANCELLED AT \S+) \*\*\*",
                source="Slurm 14 to 25",
            ),
            Signature(
                "DeadlineExceeded",
                "Reason: DeadlineExceeded, Job was active longer than specified deadline",
                "DEADLINE_EXCEEDED: grpc",
                r"(?P<what>DeadlineExceeded)",
                source="Kubernetes",
            ),
            Signature(
                "Preempted by",
                "  Normal   Preempted  1m  default-scheduler  Preempted by pod 1234 on node gpu-3",
                "not Preempted",
                r"(?P<what>Preempted by (?:a )?pod)",
                source="Kubernetes scheduler",
            ),
            Signature(
                ("nterruption", "preemption notice", "instance will be"),
                "Received spot interruption notice, instance will be terminated at 2026-11-30T10:02:00Z",
                "interruption of the loop",
                r"(?i)(?P<what>(?:spot|instance)[ -](?:instance )?interruption|preemption notice|instance will be (?:terminated|preempted))",
                source="AWS, GCP and Azure notices",
            ),
        ),
        explains=("SES2", "MEM206", "DST2", "WRK2"),
    ),
    Cause(
        "SES241",
        "pod-evicted",
        "Kubernetes evicted the pod: its node, or the pod's own limit of local storage, ran out.",
        "An eviction is not an OOM kill. The message names the resource: ephemeral storage is what the container "
        "writes to its own layer, logs and emptyDir volumes.",
        "Kubernetes evicted the pod[[: {what}]]",
        Remediation(
            "Write data to a volume and set requests and limits for what the message names, ephemeral-storage or "
            "memory",
            (
                "kubectl describe pod POD",
                "resources: {requests: {ephemeral-storage: 50Gi}, limits: {ephemeral-storage: 100Gi}}",
                "kubectl describe node NODE | grep -i pressure",
            ),
        ),
        (
            Signature(
                ("ephemeral", "Usage of EmptyDir volume"),
                "Message: Pod ephemeral local storage usage exceeds the total limit of containers 20Gi.",
                "ephemeral port",
                r"(?P<what>(?:The node was low on resource: ephemeral-storage|Pod ephemeral local storage usage|[Cc]ontainer \S+ exceeded its local ephemeral storage"
                r"|Usage of EmptyDir volume)[^\n]*)",
                source="Kubernetes eviction",
            ),
            Signature(
                "victed",
                "Status: Failed  Reason: Evicted  Message: The node was low on resource: ephemeral-storage.",
                "Evicted 3 cache entries",
                r"Reason:\s+Evicted(?![^\n]*memory)|\b[Pp]od (?:\S+ )?(?:was|has been) evicted|\s0/\d+\s+Evicted\b",
                source="Kubernetes",
            ),
        ),
        explains=("SES2", "MEM206", "DST2", "WRK2", "FS206"),
    ),
    Cause(
        "SES242",
        "liveness-probe-failed",
        "Kubernetes restarted the container because its liveness probe failed.",
        "A training process that is busy answers no probe in time; the run itself may be healthy.",
        "Kubernetes killed the container because its liveness probe failed[[ ({what})]]: a busy training process did not answer in time",
        Remediation(
            "Leave the liveness probe out for training jobs, or give it a long timeout and failureThreshold",
            (
                "livenessProbe: {timeoutSeconds: 30, failureThreshold: 10}",
                "kubectl describe pod POD",
            ),
        ),
        (
            Signature(
                "iveness probe",
                "  Normal   Killing    3m  kubelet  Container trainer failed liveness probe, will be restarted",
                "Liveness probe succeeded",
                r"failed liveness probe, will be restarted|Liveness probe failed: (?P<what>[^\n]*)",
                source="Kubernetes kubelet",
            ),
        ),
        explains=("SES2", "MEM206"),
    ),
    Cause(
        "SES243",
        "notebook-kernel-died",
        "The notebook's kernel died and was restarted.",
        "The OOM killer or a native crash ended it; Jupyter only sees that it is gone.",
        "the notebook's kernel died: killed by the OOM killer (host RAM), or crashed in native code; Jupyter's text does not tell which",
        Remediation(
            "Look for a kill in the kernel's log, and run the cell as a script with faulthandler",
            (
                "dmesg -T | grep -i -E 'oom-kill|killed process'",
                "jupyter nbconvert --to script X.ipynb && PYTHONFAULTHANDLER=1 python X.py",
                "free -g",
            ),
        ),
        (
            Signature(
                "ernel",
                "The kernel appears to have died. It will restart automatically.",
                "kernel restarted by the user",
                r"[Kk]ernel appears to have died|KernelRestarter: restarting kernel \(\d/\d\)|(?:The )?[Kk]ernel(?: \S+)? (?:for \S+ )?died\b",
                source="Jupyter Notebook 5 to 7, JupyterLab 2 to 4",
            ),
        ),
        kind=VAGUE,
        decide="dmesg -T | grep -i -E 'oom-kill|killed process'",
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
                ("exit", "return", "status"),
                "failed (exitcode: -6) local_rank: 0 (pid: 42)",
                "exitcode: 1",
                r"(?:exitcode|exit code|return "
                r"code|returncode|status)\s*[:=]?\s*(?P<minus>-(?:[1-8]|1[0-9]|2\d|3[01]))\b",
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

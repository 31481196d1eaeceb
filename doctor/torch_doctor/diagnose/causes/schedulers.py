"""What ended a run from outside: a scheduler, a stop, Kubernetes."""

from __future__ import annotations

import re
from dataclasses import replace

from torch_doctor.diagnose.cause import ECHO, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

PREEMPTED = Remediation(
    "Let the job be requeued, and go on from a checkpoint that is saved on the warning signal (and now and then); the "
    "job's priority or QOS decides whether it is preempted",
    (
        "sbatch --requeue --open-mode=append --signal=B:USR1@120 ...",
        "python train.py --resume last.pt",
        "sacct -j JOBID -o State,Start,End",
    ),
)

NODE_FAILED = Remediation(
    "Requeue the job without that node, go on from the last checkpoint, and tell the cluster's operators",
    (
        "sinfo -R; scontrol show node NODE",
        "sbatch --requeue --exclude=NODE ...",
        "sacct -j JOBID -o State,NodeList,End",
    ),
)

CANCELLED = Remediation(
    "See who or what ended it: a person (scancel), srun after another task failed, or a limit",
    ("sacct -j JOBID -o JobID,State%30,ExitCode,End  # CANCELLED by UID", "scontrol show job JOBID"),
)


def scheduler(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Why the scheduler ended the job: each reason has a remedy of its own."""
    what = seen.groups["what"]
    if "NODE FAIL" in what.upper():
        failed = seen.find(r"[Nn]ode failure on (\S+)")
        node = failed[1] if failed else ""
        return with_message(
            verdict,
            f"a node of the job failed{f' ({node})' if node else ''}, and Slurm ended the job: the run itself is not at fault",
            Remediation(
                NODE_FAILED.text, tuple(c.replace("NODE ", f"{node} ") if node else c for c in NODE_FAILED.commands)
            ),
        )
    if re.search(r"(?i)preempt|requeue|interruption|instance will be", what):
        return with_message(
            verdict,
            f"the job or machine was taken away ({what.strip()}): preempted, or its time as a spot machine is over",
            PREEMPTED,
        )
    if what.startswith("CANCELLED"):
        if seen.has(r"srun: error: [^\n]*task[^\n]*: (?:Exited with exit code|Killed|Segmentation|Aborted|Bus)"):
            return None  # the other tasks of a step of which one failed
        return with_message(
            verdict,
            f"the job was {what.replace('CANCELLED', 'cancelled', 1)}: by a person (scancel), or by srun",
            CANCELLED,
        )
    return verdict


def evicted(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A list of pods keeps the evicted ones, beside those that run in their place, until they are deleted."""
    row = re.search(r"\s0/\d+\s+Evicted\b", seen.log.lines[seen.index].text)
    if row is None or not seen.near(r"\s([1-9]\d*)/\1\s+Running\b", 40, 40):
        return verdict
    message = "the list of pods shows an evicted one beside those that run; it stays in the list until it is deleted"
    return replace(with_message(verdict, message), kind=HINT)


register(
    Cause(
        "SES213",
        "ended-by-scheduler",
        "The scheduler ended the job: at its time limit, for another job, for a node that failed, or on request.",
        "Slurm sends SIGTERM, then SIGKILL, at the limit; spot machines and preemption do the same. What the ranks print "
        "then is an echo.",
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
                "google.api_core.exceptions.DeadlineExceeded: 504 Deadline Exceeded",
                r"(?<![.\w])(?<!code = )(?P<what>DeadlineExceeded)\b(?!:? (?:desc|504|context))",
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
        judge=scheduler,
        explains=("SES2", "MEM206", "DST2", "WRK2"),
    ),
    Cause(
        "SES291",
        "ended-by-sigterm",
        "The run got SIGTERM: somebody or something asked it to end.",
        "docker stop, kill, a scheduler, systemd at logout or shutdown send it. It is no crash, and no OOM kill.",
        "the run was asked to end (SIGTERM): a stop, kill, the scheduler, or the machine's shutdown; it did not crash",
        Remediation(
            "See who asked; save a checkpoint on SIGTERM, and go on from it",
            (
                "last -x | head; journalctl --since -1h | grep -i -E 'stopping|shutdown|session'",
                "sacct -j JOBID -o State,End; docker events --since 1h --filter event=kill",
                "signal.signal(signal.SIGTERM, save_and_exit)",
            ),
        ),
        (
            Signature(
                "Terminated",
                "run.sh: line 3: 4242 Terminated              python train.py",
                "Terminated 3 stale sessions",
                r"^(?:.*: line \d+: +\d+ +)?Terminated(?:\s{3,}\S[^\n]*)?$",
                source="bash 4 and 5",
            ),
            Signature(
                "Received SIGTERM",
                "[rank: 0] Received SIGTERM: 15",
                "SIGTERM handler",
                r"Received SIGTERM\b",
                source="Lightning 1.8 to 2.6",
            ),
        ),
        kind=ECHO,
        explains=("SES221",),
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
        judge=evicted,
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
)

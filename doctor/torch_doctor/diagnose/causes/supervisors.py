"""What batch systems and supervisors say of a job that they refused, started wrongly, or ended themselves."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: systemd's own exit statuses -> what they mean. Source: systemd.exec(5), "Process Exit Codes", v255, read 2026-11.
UNIT_STATUS = {
    "200/CHDIR": "WorkingDirectory= does not exist or may not be entered",
    "203/EXEC": "the program of ExecStart= does not exist, is not executable or has no #! line",
    "209/STDOUT": "StandardOutput= cannot be opened",
    "216/GROUP": "Group= does not exist",
    "217/USER": "User= does not exist",
    "226/NAMESPACE": "a path of ReadWritePaths=, PrivateTmp= or a mount does not exist",
}


def unit(seen: Seen, verdict: Verdict) -> Verdict | None:
    """systemd's own statuses tell of the unit's settings, not of the program."""
    means = UNIT_STATUS.get(seen.groups["status"])
    return (
        with_message(verdict, f"systemd could not start the program ({seen.groups['status']}): {means}")
        if means
        else None
    )


register(
    Cause(
        "MEM262",
        "killed-by-user-space-oom-daemon",
        "A daemon (systemd-oomd, earlyoom) ended the run, since the machine was short of RAM and swap.",
        "It acts before the kernel's OOM killer and ends a whole cgroup: a terminal with all that runs in it, tmux "
        "included. dmesg has no word of it; the journal has.",
        "{daemon} ended the run, since the machine's RAM and swap were used up: with it went all that ran in the same "
        "terminal or unit",
        Remediation(
            "Use less RAM (fewer workers, memory maps), and run the training in a unit of its own with a limit",
            (
                "journalctl -u systemd-oomd --since -1h; journalctl -u earlyoom --since -1h",
                "systemd-run --user --scope -p MemoryMax=48G -p ManagedOOMPreference=avoid python train.py",
                "free -h; swapon --show",
            ),
        ),
        (
            Signature(
                "systemd-oomd",
                "systemd-oomd[744]: Killed /user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-11.scope due "
                "to memory used (65413283840) / total (67345018880) and swap used (8589000000) / total (8589930496) being "
                "more than 90.00%",
                "systemd-oomd.service: Started",
                r"(?P<daemon>systemd-oomd)(?:\[\d+\]: Killed | killed )",
                source="systemd 248 to 258",
            ),
            Signature(
                "sending SIG",
                'earlyoom[801]: sending SIGTERM to process 4211 uid 1000 "python": badness 915, VmRSS 58000 MiB',
                "sending SIGTERM to the group",
                r"(?P<daemon>earlyoom)(?:\[\d+\])?: [^\n]*sending SIG(?:TERM|KILL) to process",
                source="earlyoom 1.3 to 1.8",
            ),
        ),
        explains=("MEM20", "SES2", "DST2", "WRK2"),
        decide="journalctl -u systemd-oomd --since -1h",
    ),
    Cause(
        "MEM263",
        "container-beyond-yarn-limit",
        "YARN ended the container, since it used more memory than it was given.",
        "The limit is that of the container (executor memory plus overhead); workers and native buffers count.",
        "YARN ended the container: it used more RAM than its limit ({used})",
        Remediation(
            "Ask for more memory or overhead, or use fewer workers",
            (
                "spark-submit --conf spark.executor.memoryOverhead=8g ...",
                "spark-submit --conf spark.executor.memory=32g ...",
            ),
        ),
        (
            Signature(
                "beyond physical memory limits",
                "Container [pid=77,containerID=c1] is running beyond physical memory limits. Current usage: 8.2 GB of 8 GB physical "
                "memory used; 12 GB of 16 GB virtual memory used. Killing container.",
                "within physical memory limits",
                r"running beyond physical memory limits\.(?: Current usage: (?P<used>[\d.]+ [KMGT]B of [\d.]+ [KMGT]B))?",
                source="Hadoop YARN 2 and 3, Spark",
            ),
        ),
        explains=("MEM20", "SES2"),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace(" (?)", "")),
    ),
    Cause(
        "SES296",
        "killed-at-logout",
        "systemd ended the user's processes after the logout.",
        "With KillUserProcesses=yes, or when the user's manager stops without lingering, all that the session started is "
        "killed: tmux, screen and nohup do not protect it.",
        "systemd ended {what} when the user's last session closed (KillUserProcesses, or no lingering); tmux and nohup do not "
        "protect against it",
        Remediation(
            "Let the user's processes live after the logout, or run it as a unit",
            (
                "sudo loginctl enable-linger $USER  # keeps units; with KillUserProcesses=yes tmux still ends",
                "systemd-run --user --unit=exp1 python train.py",
                "grep KillUserProcesses /etc/systemd/logind.conf",
            ),
        ),
        (
            Signature(
                "Killing process ",
                "systemd[1]: user@1000.service: Killing process 4411 (python) with signal SIGKILL.",
                "systemd[1]: train.service: Killing process 4411 (python) with signal SIGKILL.",
                r"(?:user@\d+\.service|session-\w+\.scope): Killing process \d+ \((?P<what>[^)]+)\) with signal SIG(?:KILL|TERM)",
                source="systemd 230 to 258",
            ),
        ),
        explains=("MEM206", "SES2", "DST2"),
    ),
    Cause(
        "SES281",
        "systemd-unit-not-started",
        "systemd could not start the unit's program.",
        "Statuses from 200 on are systemd's own: they tell of the unit file's paths, users and settings.",
        "systemd could not start the program",
        Remediation(
            "Correct the unit: absolute paths, an existing user and folder; then reload and start",
            (
                "systemctl cat UNIT; systemd-analyze verify UNIT",
                "sudo systemctl daemon-reload && sudo systemctl restart UNIT",
            ),
        ),
        (
            Signature(
                "status=2",
                "systemd[1]: train.service: Main process exited, code=exited, status=203/EXEC",
                "systemd[1]: train.service: Main process exited, code=exited, status=2/INVALIDARGUMENT",
                r"code=exited, status=(?P<status>2\d\d/[A-Z]+)",
                source="systemd 240 to 258",
            ),
        ),
        kind=VAGUE,
        judge=unit,
        explains=("SES22", "SES26"),
    ),
    Cause(
        "SES282",
        "slurm-request-refused",
        "Slurm refused what the job asks for.",
        "Partition, account, QOS, time or resources do not fit the cluster's limits. The program was not started.",
        "Slurm refused the job: {what}",
        Remediation(
            "Compare the request with the partition and the limits of the account",
            (
                "sinfo -o '%P %l %D %c %m %G'",
                "sacctmgr show assoc user=$USER format=account,partition,qos,grptres",
                "scontrol show partition",
            ),
        ),
        (
            Signature(
                ("Batch job submission failed: ", "Unable to allocate resources: "),
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
                "sbatch: Submitted batch job 7",
                r"(?:Batch job submission failed|Unable to allocate resources): (?P<what>[^\n]+)",
                source="Slurm 14 to 25",
            ),
            Signature(
                "Unable to confirm allocation for job",
                "srun: error: Unable to confirm allocation for job 4412: Invalid job id specified",
                "allocation confirmed",
                r"Unable to confirm allocation for job (?P<job>\d+): (?P<what>[^\n]+)",
                source="Slurm 14 to 25",
            ),
            Signature(
                ("(QOS", "(Assoc"),
                "(AssocMaxWallDurationPerJobLimit)",
                "AssocMax",
                r"\((?P<what>(?:QOS|Assoc)(?:Max|Grp|Min)\w+)\)",
                source="Slurm 14 to 25, squeue",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                f"the job waits in the queue: a limit of the account or QOS is reached ({seen.groups['what']})",
            )
            if seen.groups["what"].startswith(("QOS", "Assoc"))
            else with_message(
                verdict,
                f"the allocation of job {seen.groups['job']} is over, and SLURM_JOB_ID of this shell still names it",
                Remediation(
                    "Leave that shell, or forget the old job, and ask for a new allocation",
                    ("unset ${!SLURM_@}", "salloc --gres=gpu:1 ...", "squeue --me"),
                ),
            )
            if "job" in seen.groups
            else verdict
        ),
        explains=("SES22",),
    ),
    Cause(
        "SES283",
        "slurm-settings-contradict",
        "srun got contradicting settings from the job's environment.",
        "Options of salloc or sbatch come back as variables; from Slurm 22.05 on srun does not inherit --cpus-per-task, "
        "and later refuses variables that disagree.",
        "srun refused the settings of the job: {what}",
        Remediation(
            "Take the variable that disagrees out, or give the option to srun itself",
            (
                "unset SLURM_TRES_PER_TASK",
                "srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py",
                "env | grep SLURM_",
            ),
        ),
        (
            Signature(
                "srun: fatal: ",
                "srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=8 != "
                "SLURM_TRES_PER_TASK=cpu=1",
                "srun: error: n1: task 0: Exited with exit code 1",
                r"srun: fatal: (?P<what>[^\n]+)",
                source="Slurm 20 to 25",
            ),
        ),
        explains=("SES22",),
    ),
    Cause(
        "SES284",
        "slurm-step-waits-for-the-job-itself",
        "srun waits for resources that another step of the same job holds.",
        "A second srun in a job, or one inside an interactive srun, needs memory, GPUs and CPUs of its own: --overlap or "
        "a part of the resources.",
        "a step of the job waits for resources that another step of the same job holds",
        Remediation(
            "Share the resources between the steps, or give each step its part",
            ("srun --overlap ...", "srun --exact --mem=16G --gres=gpu:1 -n1 ...", "squeue -s -j $SLURM_JOB_ID"),
        ),
        (
            Signature(
                "step creation temporarily disabled",
                "srun: Job 77 step creation temporarily disabled, retrying (Requested nodes are busy)",
                "srun: Step created for job 77",
                source="Slurm 14 to 25",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES289",
        "job-folder-not-on-node",
        "The folder that the job was submitted from does not exist on the compute node.",
        "Slurm then starts in /tmp, and relative paths are not found. The home or project file system is not mounted on "
        "that node, or the folder is local to the login node.",
        "the job's folder {path} is not there on the compute node, so that the job started in {where}",
        Remediation(
            "Submit from a file system that the nodes share, or name the folder",
            ("sbatch --chdir=/shared/project ...", "srun -w NODE ls -ld {path}; srun -w NODE df -h"),
        ),
        (
            Signature(
                "couldn't chdir to",
                "slurmstepd: error: couldn't chdir to `/home/me/proj': No such file or directory: going to /tmp instead",
                "couldn't chdir",
                r"couldn't chdir to [`'](?P<path>[^'\n]+)': [^\n:]+: going to (?P<where>\S+) instead",
                source="Slurm 14 to 25",
            ),
        ),
        kind=VAGUE,
        explains=("FS208", "SES22"),
    ),
    Cause(
        "SES246",
        "slurm-output-folder-missing",
        "Slurm could not open the job's output file.",
        "--output names a folder that does not exist on the compute node: Slurm does not make it, and the job ends at once, "
        "without a log.",
        "Slurm could not open the job's output file {path}: its folder does not exist on the compute node, or may not be "
        "written",
        Remediation(
            "Make the folder before the job is submitted, on a file system that the nodes share",
            ("mkdir -p logs", "#SBATCH --output=/shared/project/logs/%j.out"),
        ),
        (
            Signature(
                "Could not open std",
                "slurmstepd: error: Could not open stdout file /logs/991.out: No such file or directory",
                "Could not open the file",
                r"Could not open std(?:out|err) file (?P<path>[^\n:]+): [^\n]+",
                source="Slurm 14 to 25",
            ),
        ),
        explains=("SES22", "SES285"),
    ),
    Cause(
        "SES247",
        "cpus-outside-of-allocation",
        "The process was to run on CPUs that it may not use.",
        "A fixed list of CPUs (taskset, numactl, sched_setaffinity, --cpu-bind) does not fit the cpuset of the container or "
        "job.",
        "the process was to be bound to CPUs that its cpuset does not hold",
        Remediation(
            "Take the CPUs from what is allowed, not from a fixed list",
            (
                "grep Cpus_allowed_list /proc/self/status; nproc",
                "os.sched_getaffinity(0)",
                "srun --cpu-bind=none ...",
            ),
        ),
        (
            Signature(
                "sched_setaffinity",
                "    os.sched_setaffinity(0, {64, 65})\nOSError: [Errno 22] Invalid argument",
                "    os.sched_setaffinity(0, {0, 1})\nstep 1",
                r"sched_setaffinity\([^\n]*\n(?:[^\n]*\n){0,2}?OSError: \[Errno 22\] Invalid argument",
                source="python 3.8 to 3.14",
            ),
            Signature(
                (
                    "affinity: Invalid argument",
                    "CPU binding outside of job step allocation",
                    "libnuma: Warning: cpu argument",
                ),
                "taskset: failed to set pid 0's affinity: Invalid argument",
                "affinity set",
                source="util-linux, Slurm 16 to 25, numactl",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES248",
        "node-not-ready",
        "The node of the pod went away.",
        "NodeNotReady: the kubelet does not answer (a crash, memory pressure, the network). Its pods are ended and made anew "
        "elsewhere; the program is not at fault.",
        "the node that the pod ran on is not ready or was tainted: its pods are ended",
        Remediation(
            "Look at the node; let the job restart elsewhere from a checkpoint",
            (
                "kubectl get nodes; kubectl describe node NODE | tail -30",
                "kubectl get events --field-selector involvedObject.kind=Node",
            ),
        ),
        (
            Signature(
                ("NodeNotReady", "Node is not ready", "node.kubernetes.io/unreachable", "Marking for deletion Pod"),
                "  Warning  NodeNotReady  2m  node-controller  Node is not ready",
                "Node is ready",
                source="Kubernetes 1.18 to 1.34",
            ),
        ),
        kind=VAGUE,
        explains=("DST2", "SES22"),
    ),
    Cause(
        "SES250",
        "unit-keeps-failing",
        "systemd stopped restarting a unit that failed again and again.",
        "The unit's own log has the cause; this line only says that systemd gave up.",
        "systemd gave the unit up after it had failed several times: its own log has the cause",
        Remediation(
            "Read the unit's log, mend the cause, then reset the counter",
            ("journalctl -u UNIT -n 100 --no-pager", "sudo systemctl reset-failed UNIT && sudo systemctl start UNIT"),
        ),
        (
            Signature(
                ("Start request repeated too quickly", "start-limit-hit"),
                "systemd[1]: train.service: Start request repeated too quickly.",
                "start request",
                source="systemd 219 to 258",
            ),
        ),
        kind=ECHO,
    ),
    Cause(
        "SES285",
        "job-credential-or-node-out-of-step",
        "A node of the Slurm cluster could not start the task.",
        "An expired credential is a clock that differs between the nodes; a communication error is a slurmd that does "
        "not answer. The program was not started there.",
        "Slurm could not start the task on {node}: {what}",
        Remediation(
            "Leave the node out, and tell the cluster's operators (clocks, slurmd, munge)",
            (
                "sbatch --exclude={node} ...",
                "scontrol show node {node} | grep -i -E 'state|reason'",
                "timedatectl status",
            ),
        ),
        (
            Signature(
                "Task launch for ",
                "srun: error: Task launch for StepId=36.0 failed on node cn131: Job credential expired",
                "srun: Task launched",
                r"Task launch for (?:StepId=)?\S+ failed on node (?P<node>\S+): (?P<what>[^\n]+)",
                source="Slurm 14 to 25",
            ),
        ),
        explains=("SES22",),
    ),
)

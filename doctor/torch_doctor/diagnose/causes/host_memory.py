"""Host memory: what the OOM killer, a limit or SIGKILL ended."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.trends import rising
from torch_doctor.model import Remediation, mib


def killed(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The count of OOM kills proves, or refutes, what the signal only suggests; RAM that grew in the log points to it."""
    kills = seen.oom_kills
    if "build" in seen.groups:
        return with_message(
            verdict,
            "a step of the build was ended by SIGKILL: RAM ran out, most often since many compilers ran at once",
            Remediation(
                "Build with fewer jobs, give the builder or Docker's virtual machine more RAM, or take a prebuilt wheel",
                (
                    "export MAX_JOBS=2  # extensions of torch; make -j2",
                    "dmesg -T | grep -i -E 'oom-kill|killed process'",
                ),
            ),
        )
    growth = rising(
        seen.log, seen.index, r"\b(?:rss|ram|host[_ ]mem\w*|cpu[_ ]mem\w*)\W{0,3}([\d.]+) ?([GM]i?B|G|M)?\b"
    )
    if growth and kills is None:
        return with_message(
            verdict,
            f"{verdict.message}; the log shows host RAM growing from {growth[0]:g} to {growth[1]:g}, so that the OOM killer is "
            "likely: Python lists in worker processes are copied page by page, or something is kept from epoch to epoch",
            MORE_RAM,
        )
    if kills:
        return with_message(
            verdict,
            f"{verdict.message.split(', or a stop')[0]}; the memory cgroup counted {kills} OOM kills",
            None,
            oom_kills=kills,
        )
    if kills is None:
        return verdict
    return with_message(
        verdict,
        f"{verdict.message.split(':')[0]}, and the memory cgroup counted no OOM kill: a person, a stop whose grace "
        "period ran out, "
        "or the host's own OOM killer sent it",
        Remediation(
            "Look at who stopped the run, and at the kernel log of the host",
            ("dmesg -T | grep -i -E 'oom-kill|killed process'", "docker events --since 1h --filter event=kill"),
        ),
        oom_kills=0,
    )


MORE_RAM = Remediation(
    "Raise the memory limit of the container or job, use fewer workers or a smaller prefetch_factor, and keep "
    "samples in NumPy or Arrow arrays rather than in lists of Python objects",
    (
        "docker run --memory=64g ...",
        "dmesg -T | grep -i -E 'oom-kill|killed process'",
        "cat /sys/fs/cgroup/memory.events",
    ),
)


_GLOBAL = Remediation(
    "Use fewer workers and keep less in RAM, stop what else runs on the host, and set a limit for the container or job, "
    "so that it fails by itself and takes nothing else with it",
    (
        "free -g; ps aux --sort=-rss | head",
        "dmesg -T | grep -i -E 'oom-kill|killed process'",
        "docker run --memory=64g ...",
        "DataLoader(..., num_workers=4)",
    ),
)
_EVICTED = Remediation(
    "Request the memory that the pod really uses, so that the scheduler finds a node with it, and set the limit to the "
    "same; use fewer workers, and keep less in RAM",
    (
        "resources: {requests: {memory: 64Gi}, limits: {memory: 64Gi}}",
        "kubectl top pod POD; kubectl describe node NODE | grep -i -A8 allocated",
    ),
)


def _who_set_the_limit(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A cgroup's limit, the whole host, or a kubelet that made room: each is mended elsewhere."""
    text = seen.log.lines[seen.index].text
    who = f" (process {seen.groups['pid']})" if seen.groups.get("pid") else ""
    if "low on resource" in text:
        used = re.search(r"was using (\S+), request is (\S+?),", text)
        figures = f"; the container used {used[1]}, its request is {used[2]}" if used else ""
        return with_message(
            verdict,
            f"the node ran out of memory and the kubelet evicted the pod{figures}: pods that use more than they "
            "request go first",
            _EVICTED,
        )
    cgroup = r"CONSTRAINT_MEMCG|[Mm]emory cgroup out of memory|oom_memcg=/\S|limit \d+kB"
    if re.search(r"(?<!cgroup )Out of memory: Kill|CONSTRAINT_NONE|global_oom", text) and not seen.has(cgroup):
        return with_message(
            verdict,
            f"the host itself ran out of RAM, and the kernel's OOM killer ended a process{who}: no limit of a "
            "container or job was involved",
            _GLOBAL,
        )
    shared = re.search(r"anon-rss:(\d+)kB.*shmem-rss:(\d+)kB", text)
    if shared and int(shared[2]) > int(shared[1]):
        return with_message(
            verdict,
            f"{verdict.message.replace('?', who)}; most of it was shared memory ({mib(int(shared[2]) << 10)}): files in /dev/shm "
            "count against the limit",
            Remediation(
                "Send smaller batches through the workers (fewer workers, a smaller prefetch_factor), remove what is left in "
                "/dev/shm, and raise the memory limit",
                (
                    "du -sh /dev/shm; ls -lS /dev/shm | head",
                    "DataLoader(..., num_workers=4, prefetch_factor=2)",
                    "docker run --memory=64g ...",
                ),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", who))


register(
    Cause(
        "MEM203",
        "host-oom-killed-worker",
        "A DataLoader worker got SIGKILL: nearly always the host's OOM killer.",
        "The container's or job's limit of host RAM was reached, and the kernel ended the largest process. A "
        "shortage of shared memory has another signal, bus error.",
        "DataLoader worker {pid} got SIGKILL: the OOM killer, since the host RAM limit (container or job cgroup) "
        "was reached",
        MORE_RAM,
        (
            Signature(
                "is killed by signal: Killed",
                "RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed. ",
                "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.",
                r"DataLoader worker \(pid\(?s?\)?:? (?P<pid>[\d, ]+)\) is killed by signal: Killed",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
            Signature(
                "is killed by signal: ",
                "RuntimeError: DataLoader worker (pid 5) is killed by signal: Unknown signal: 9.",
                "signal 9",
                r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?:Unknown signal: 9|9)\b",
                source="musl",
            ),
        ),
        explains=("MEM207", "WRK2", "SES2", "DST"),
        judge=killed,
        decide="dmesg -T | grep -i -E 'oom-kill|killed process'",
    ),
    Cause(
        "MEM204",
        "cgroup-memory-limit-exceeded",
        "The job's or container's limit of host RAM was exceeded, and the kernel's OOM killer ended a process.",
        "This is host RAM, counted over all processes of the job, page cache of /dev/shm included.",
        "the limit of host RAM of the job or container (cgroup) was exceeded, and the kernel's OOM killer ended a "
        "process{detail}",
        Remediation(
            "Raise the memory limit (Slurm --mem or --mem-per-cpu, Kubernetes resources.limits.memory, docker "
            "--memory), use fewer workers, and keep less in RAM; the job's peak is in sacct or memory.peak",
            (
                "sacct -j JOBID -o JobID,MaxRSS,ReqMem",
                "sbatch --mem=64G ...",
                "docker run --memory=64g ...",
                "cat /sys/fs/cgroup/memory.peak",
            ),
        ),
        (
            Signature(
                ("oom-kill event", "oom_kill event", "oom kill event"),
                "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.0. Some of your processes may have "
                "been killed by the cgroup out-of-memory handler.",
                "0 oom-kill events",
                r"[Dd]etected [1-9]\d* oom[-_ ]kill event",
                source="Slurm 18 to 25",
            ),
            Signature(
                "xceeded ",
                "slurmstepd: error: Exceeded job memory limit at some point.",
                "memory limit: 16G",
                r"[Ee]xceeded (?:job|step) memory limit|exceeded memory limit \(\d+ > \d+\)",
                source="Slurm 14 to 20",
            ),
            Signature(
                "OUT_OF_MEMORY",
                "123.batch  OUT_OF_MEMORY  0:125",
                "CUDA_ERROR_OUT_OF_MEMORY",
                r"(?<![A-Z_])OUT_OF_MEMORY(?:\s+0:125|\b(?![:.]))",
                source="Slurm's sacct",
            ),
            Signature(
                "OOMKilled",
                "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
                '"OOMKilled": false',
                r"(?<![.\w])OOMKilled\b(?!\"?\s*[:=]\s*\"?(?:false|False|0))|\bOOMKilled\}*\"?'?\s*[:=]\s*\"?[Tt]rue",
                source="Kubernetes, Docker",
            ),
            Signature(
                "emory cgroup out of memory: Kill",
                "Memory cgroup out of memory: Killed process 4242 (python) total-vm:98301412kB, anon-rss:64012032kB",
                "Memory cgroup limit",
                r"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+)",
                source="Linux 4.x to 6.x, mm/oom_kill.c",
            ),
            Signature(
                "Out of memory: Kill",
                "Out of memory: Killed process 4242 (python) total-vm:98301412kB, anon-rss:64012032kB, file-rss:0kB",
                "Out of memory handler",
                r"Out of memory: Kill(?:ed)? process (?P<pid>\d+)",
                source="Linux 4.x to 6.x, mm/oom_kill.c",
            ),
            Signature(
                "oom-kill:constraint=",
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
                "oom_memcg=/docker/ab,task=python,pid=42,uid=0",
                "constraint=none",
                source="Linux 5.x and 6.x",
            ),
            Signature(
                "invoked oom-killer",
                "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
                "oom-killer off",
                source="Linux 2.6 to 6.x",
            ),
            Signature(
                "The node was low on resource: memory",
                "Evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 48012Ki.",
                "The node was low on resource: ephemeral-storage.",
                source="Kubernetes eviction",
            ),
            Signature(
                ("'oom-kill'", "by the OOM killer"),
                "train.service: Failed with result 'oom-kill'.",
                "result 'success'",
                r"(?:Failed with result 'oom-kill'|has been killed by the OOM killer)",
                source="systemd 240 to 258",
            ),
            Signature(
                "using all available RAM",
                "Your session crashed after using all available RAM.",
                "all available RAM is free",
                source="Colab",
            ),
            Signature(
                ("TERM_MEMLIMIT", "PBS: job killed: mem"),
                "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
                "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
                r"TERM_MEMLIMIT|PBS: job killed: mem \d+kb exceeded limit",
                source="LSF 9 and 10, PBS Pro, Torque",
            ),
            Signature(
                "tried to allocate more memory than is available",
                "Your notebook tried to allocate more memory than is available. It has restarted.",
                "more memory than is available to others",
                r"notebook tried to allocate more memory than is available",
                source="Kaggle",
            ),
        ),
        explains=("WRK2", "SES2", "DST", "MEM207", "MEM203", "MEM206", "CMP212", "SHM20"),
        judge=_who_set_the_limit,
    ),
    Cause(
        "MEM206",
        "killed-by-sigkill",
        "A process ended by SIGKILL.",
        "137 is 128 + 9. The OOM killer sends it, and so does a stop whose grace period ended; the counters of the "
        "cgroup tell them apart.",
        "a process was ended by SIGKILL{detail}: the OOM killer (host RAM limit), or a stop whose grace period ran "
        "out",
        Remediation(
            "Ask whether the OOM killer counted it; if so raise the host memory limit or use fewer workers, if not "
            "look for who stopped the run",
            (
                "docker inspect -f '{{.State.OOMKilled}}' CONTAINER",
                "dmesg -T | grep -i -E 'oom-kill|killed process'",
                "cat /sys/fs/cgroup/memory.events",
            ),
        ),
        (
            Signature(
                "exitcode: -9",
                "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: "
                "4242) of binary: /usr/bin/python",
                "exitcode: -6",
                r"\(?exitcode: -9\)?(?P<detail>)",
                source="torch 1.9 to 2.15, torchrun",
            ),
            Signature(
                "Killed",
                "/var/spool/slurm/job1/slurm_script: line 12: 4242 Killed                  python train.py",
                "Killed 3 stale sessions",
                r"^(?:.*: line \d+: +\d+ +)?Killed(?:\s{3,}\S[^\n]*)?$(?P<detail>)",
                source="bash",
            ),
            Signature(
                ("Signal 9", "SIGKILL"),
                "traceback : Signal 9 (SIGKILL) received by PID 4242",
                "Signal 15",
                r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)|died with <Signals\.SIGKILL: 9>|terminated "
                r"with signal SIGKILL",
                source="torchrun, subprocess, torch.multiprocessing.spawn",
            ),
            Signature(
                "SIGKILL",
                "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
                "send SIGKILL to the group",
                r"terminated with signal SIGKILL|died with <Signals\.SIGKILL",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                ("return code = -9", "terminated with code -9"),
                "[2025-03-08 00:04:34,889] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', "
                "'--local_rank=3'] exits with return code = -9",
                "exits with return code = 1",
                r"(?:exits with return code = |terminated with code )-9\b(?P<detail>)",
                source="DeepSpeed 0.3 to 0.18, Lightning 2.0 to 2.6",
            ),
            Signature(
                ("exited on signal 9", ": Killed"),
                "mpirun noticed that process rank 3 with PID 0 on node gpu2 exited on signal 9 (Killed).",
                "srun: error: n1: task 0: Terminated",
                r"exited on signal 9 \(|^srun: error: \S+: tasks? [\d,-]+: Killed(?P<detail>)",
                source="Open MPI 2 to 5, Slurm 14 to 25",
            ),
            Signature(
                "status=9/KILL",
                "systemd[1]: train.service: Main process exited, code=killed, status=9/KILL",
                "systemd[1]: train.service: Main process exited, code=killed, status=15/TERM",
                r"code=killed, status=9/KILL(?P<detail>)",
                source="systemd 219 to 258",
            ),
            Signature(
                "zsh: killed",
                "zsh: killed     python train.py",
                "zsh: killed jobs: 0 is a message of mine",
                r"^zsh: killed\s{2,}\S(?P<detail>)",
                source="zsh 5",
            ),
            Signature(
                "Command terminated by signal 9",
                "Command terminated by signal 9",
                "Command terminated",
                source="GNU time",
            ),
            Signature(
                ("did not complete successfully: exit code: 137", "] Killed", "] Error 137"),
                'ERROR: failed to solve: process "/bin/sh -c pip install flash-attn" did not complete successfully: exit code: 137',
                "make: *** [Makefile:12: train] Error 1",
                r"(?P<build>did not complete successfully: exit code: 137|^(?:make(?:\[\d+\])?: )?\*\*\* \[[^\]\n]*\] (?:Killed|Error 137))$",
                source="BuildKit, GNU make 3 and 4: a step of a build",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: killed(seen, with_message(verdict, verdict.message.replace("?", ""))),
        decide="dmesg -T | grep -i -E 'oom-kill|killed process'",
        explains=("DST2",),
    ),
)

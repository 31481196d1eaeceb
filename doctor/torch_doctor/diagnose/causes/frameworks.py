"""What Ray, MPI, DeepSpeed and Lightning say when ranks do not start or are lost."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register
from torch_doctor.model import Remediation


def ray_death(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Ray lists possible reasons for any dead worker; only a memory report or a signal in the log decides."""
    if seen.has(
        r"killed due to (?:memory pressure|the node running low on memory)|OutOfMemoryError: Task was killed"
    ):
        return None
    return verdict


register(
    Cause(
        "DST269",
        "slurm-tasks-do-not-match-devices",
        "Lightning's devices and Slurm's tasks do not match.",
        "Under srun Lightning takes each task for a rank: --ntasks-per-node has to be devices.",
        "Lightning's devices and Slurm's tasks per node do not match[[ ({what})]]",
        Remediation(
            "Ask for one task a GPU, and start the script with srun",
            (
                "#SBATCH --nodes=2 --ntasks-per-node=4 --gres=gpu:4",
                "srun python train.py  # Trainer(devices=4, num_nodes=2)",
                "SLURM_JOB_NAME=interactive python train.py  # one task, Slurm not used",
            ),
        ),
        (
            Signature(
                ("--ntasks-per-node=", "--ntasks="),
                "ValueError: You set `devices=4` in Lightning, but the number of tasks per node configured in SLURM "
                "`--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
                "#SBATCH --ntasks-per-node=4",
                r"(?P<what>You set `devices=\d+` in Lightning, but the number of tasks per node configured in SLURM "
                r"`--ntasks-per-node=\d+` does not match|You set `--ntasks=\d+` in your SLURM bash script, but this variable "
                r"is not supported)",
                source="Lightning 1.8 to 2.6",
            ),
            Signature(
                "in Lightning, but the number of nodes configured in SLURM",
                "ValueError: You set `num_nodes=2` in Lightning, but the number of nodes configured in SLURM `--nodes=1` "
                "does not match.",
                "number of nodes configured",
                r"(?P<what>You set `num_nodes=\d+` in Lightning, but the number of nodes configured in SLURM `--nodes=\d+`)",
                source="Lightning 1.8 to 2.6",
            ),
        ),
        explains=("SES22",),
    ),
    Cause(
        "DST271",
        "ray-worker-died",
        "A worker of Ray died, and Ray does not know why.",
        "The text lists the OOM killer, ray stop and a crash for every dead worker. The raylet's and the worker's own "
        "logs, or the kernel's, have the cause.",
        "a worker process of Ray died without a Python exception: killed for memory, crashed in native code, or stopped "
        "from outside; this log does not tell which",
        Remediation(
            "Read the worker's own log and the raylet's, and ask the kernel on that node",
            (
                "ray logs 'worker-*PID*.err' --node-ip IP  # or /tmp/ray/session_latest/logs",
                "dmesg -T | grep -i -E 'oom-kill|killed process|segfault'",
                "ray summary tasks; ray memory",
            ),
        ),
        (
            Signature(
                ("ActorDiedError", "WorkerCrashedError", "RayActorError", "OwnerDiedError", "NodeDiedError"),
                "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
                "except ray.exceptions.RayActorError:",
                r"ray\.exceptions\.(?:ActorDiedError|WorkerCrashedError|RayActorError|OwnerDiedError|NodeDiedError): (?!The actor died because of an error raised in its creation)",
                source="Ray 1.9 to 2.50",
            ),
            Signature(
                "A worker died or was killed while executing",
                "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
                "A worker died",
                source="Ray 1.9 to 2.50",
            ),
        ),
        kind=ECHO,
        judge=ray_death,
        explains=("SES22", "DST22"),
        decide="dmesg -T | grep -i -E 'oom-kill|killed process|segfault'",
    ),
    Cause(
        "MEM261",
        "killed-by-ray-memory-monitor",
        "Ray's memory monitor ended a task: the node was low on RAM.",
        "It acts before the kernel does, at RAY_memory_usage_threshold (0.95 of the node or container). GPU memory plays "
        "no part.",
        "Ray's memory monitor ended a task, since the RAM of its node or container was used up[[ ({used})]]",
        Remediation(
            "Run fewer tasks at a time (more CPUs or memory a task), make each smaller, or give the node more RAM",
            (
                "@ray.remote(num_cpus=4, memory=32 * 1024**3)",
                "ray memory --stats-only; free -g",
                "RAY_memory_usage_threshold=0.98 ray start ...  # later, not more",
            ),
        ),
        (
            Signature(
                "Task was killed due to the node running low on memory",
                "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
                "Memory on the node (IP: 10.0.0.1, ID: 8c5a) where the task (task ID: 4161) was running was 121.91GB / "
                "128.00GB (0.952)",
                "the node is running low on memory",
                r"Task was killed due to the node running low on memory\.?(?:\n[^\n]*was running was (?P<used>[\d.]+GB / [\d.]+GB))?",
                source="Ray 2.2 to 2.50",
            ),
            Signature(
                "ray.exceptions.OutOfMemoryError",
                "ray.exceptions.OutOfMemoryError: 2 tasks were killed",
                "ray.exceptions.RayTaskError",
                source="Ray 2.2 to 2.50",
            ),
            Signature(
                "killed due to memory pressure",
                "(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers "
                "crashed due to other reasons at node (ID: 8289)",
                "memory pressure",
                r"[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure",
                source="Ray 2.2 to 2.50",
            ),
        ),
        explains=("MEM20", "DST2", "SES2", "WRK2"),
    ),
    Cause(
        "DST274",
        "ray-node-not-started",
        "Ray's own processes did not start, or cannot be reached.",
        "The raylet or the GCS did not come up: too little memory or /dev/shm, a port that is closed, or an old session. "
        "Their own logs say which.",
        "Ray's node did not start or cannot be reached: its raylet or GCS did not come up",
        Remediation(
            "Read the session's logs, stop what is left of an earlier session, and start with fewer CPUs",
            (
                "tail -n 50 /tmp/ray/session_latest/logs/raylet.err /tmp/ray/session_latest/logs/gcs_server.out",
                "ray stop --force  # ends all of Ray on this node, other jobs' as well",
                "ray start --head --num-cpus=8",
                "df -h /dev/shm /tmp; free -g",
            ),
        ),
        (
            Signature(
                (
                    "current node timed out during startup",
                    "Failed to connect to GCS",
                    "GCS server is not available",
                    "not have registered with GCS",
                ),
                "Exception: The current node timed out during startup. This could happen because some of the Ray "
                "processes failed to startup.",
                "Connected to Ray cluster",
                r"current node timed out during startup|Failed to connect to GCS|GCS server is not available|not have registered with GCS",
                source="Ray 2.0 to 2.50",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "DST275",
        "ray-has-no-such-resources",
        "No node of the Ray cluster has what a task or actor asks for.",
        "It waits for ever: the cluster is smaller than the request, or another job holds the GPUs.",
        "no node of the Ray cluster has the resources that are asked for[[ ({what})]]: the task waits for ever",
        Remediation(
            "Ask for less a worker, or add nodes; see what is free",
            ("ray status", "ScalingConfig(num_workers=4, use_gpu=True, resources_per_worker={'GPU': 1})"),
        ),
        (
            Signature(
                "No available node types can fulfill resource request",
                "(autoscaler +1m10s) Error: No available node types can fulfill resource request {'GPU': 8.0, 'CPU': 1.0}.",
                "node types",
                r"No available node types can fulfill resource requests? (?P<what>\{[^}\n]*\})",
                source="Ray 1.9 to 2.50",
            ),
            Signature(
                "cannot be scheduled right now",
                "(raylet) Warning: The following resource request cannot be scheduled right now: {'GPU': 2.0}.",
                "scheduled right now",
                r"resource request cannot be scheduled right now: (?P<what>\{[^}\n]*\})",
                source="Ray 1.9 to 2.50",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "DST272",
        "open-mpi-without-pmi",
        "The program was started by srun, and its MPI cannot talk to Slurm.",
        "Open MPI and Slurm need a common PMI (PMIx or PMI-2). The error ends in MPI_Init; the network plays no part.",
        "MPI could not start under srun: this MPI and Slurm have no PMI in common",
        Remediation(
            "Choose a PMI that both have, start with mpirun inside the job, or leave mpi4py out: torch with NCCL or gloo "
            "needs no MPI",
            (
                "srun --mpi=list; srun --mpi=pmix python train.py",
                "mpirun -np $SLURM_NTASKS python train.py",
                "torchrun --nproc-per-node=gpu train.py",
            ),
        ),
        (
            Signature(
                (
                    "but OMPI was not built with",
                    "PMI2_Init failed",
                    "PMI_Init",
                    "PMIX ERROR",
                    "pmix3x_client.c",
                    "was not built with SLURM",
                ),
                'The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s '
                "PMI support and therefore cannot\nexecute.",
                "PMIx server started",
                r"but OMPI was not built with\b|PMI2?_Init failed|PMIX ERROR: (?!NOT-SUPPORTED)(?![^\n]*gds_)|pmix3x_client\.c at line|was not built with SLURM",
                source="Open MPI 2 to 5, Slurm 17 to 25",
            ),
            Signature(
                "ailed to initialize PMI",
                "srun: error: mpi/pmi2: failed to initialize PMI",
                "initialize PMI",
                source="Slurm, MPICH",
            ),
        ),
        kind=VAGUE,
        explains=("SES22", "SES211"),
    ),
    Cause(
        "DST248",
        "mpi-connects-over-a-wrong-interface",
        "Open MPI's processes connected over an interface that other hosts have, too.",
        "Addresses of docker0, virbr0 or a private network are the same on each node: a connection reaches the wrong process.",
        "Open MPI connected to the wrong process: an interface such as docker0 has the same address on several nodes",
        Remediation(
            "Name the network to use, or leave the others out",
            (
                "mpirun --mca btl_tcp_if_include 10.0.0.0/16 --mca oob_tcp_if_include 10.0.0.0/16 ...",
                "mpirun --mca btl_tcp_if_exclude docker0,virbr0,lo ...",
                "ip -br addr",
            ),
        ),
        (
            Signature(
                ("received unexpected process identifier", "cannot find a corresponding process entry for that peer"),
                "[btl_tcp_endpoint.c:626:mca_btl_tcp_endpoint_recv_connect_ack] received unexpected process identifier [[4411,1],2]",
                "received a process identifier",
                source="Open MPI 1.8 to 5",
            ),
        ),
        explains=("DST277", "SES22"),
    ),
    Cause(
        "DST277",
        "mpi-did-not-start",
        "MPI's runtime did not start.",
        "orte_init, prte_init and MPI_Init fail before the program does anything: a session folder that cannot be "
        "written, a name that does not resolve, or a library that does not fit the launcher.",
        "MPI's runtime did not start ({what}): a temporary folder that is not writable, a launcher of another MPI, or a "
        "host name that does not resolve",
        Remediation(
            "Start with the launcher of the same MPI, with a writable TMPDIR",
            (
                "which mpirun; python -c 'import mpi4py; print(mpi4py.get_config())'",
                "TMPDIR=/tmp mpirun -np 4 python train.py",
                "getent hosts $(hostname)",
            ),
        ),
        (
            Signature(
                (
                    "orte_init failed",
                    "orte_ess_init failed",
                    "opal_init failed",
                    "ompi_mpi_init",
                    "prte_init failed",
                    "MPI runtime init failed",
                ),
                "It looks like orte_init failed for some reason; your parallel process is\nlikely to abort.",
                "opal_init done",
                r"(?P<what>orte_init|orte_ess_init|prte_init|opal_init|MPI runtime init|ompi_mpi_init(?:: \w+)?) failed",
                source="Open MPI 2 to 5",
            ),
        ),
        kind=VAGUE,
        explains=("SES22",),
    ),
    Cause(
        "DST278",
        "deepspeed-toolkit-of-another-cuda",
        "DeepSpeed cannot build its operators: the CUDA toolkit is another version than torch was built with.",
        "It compiles them with the nvcc that it finds when they are first used. The driver's version plays no part.",
        "DeepSpeed builds its operators with the CUDA toolkit {have}, and torch was built with {need}",
        Remediation(
            "Install the toolkit of torch's version and point CUDA_HOME at it; a difference within one major version may be "
            "skipped",
            (
                "nvcc --version; echo $CUDA_HOME",
                "conda install -c nvidia cuda-toolkit={need}",
                "export CUDA_HOME=/usr/local/cuda-{need}",
                "DS_SKIP_CUDA_CHECK=1 python train.py  # same major version only",
            ),
        ),
        (
            Signature(
                "does not match the version torch was compiled with",
                "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 11.5 does not match the version torch "
                "was compiled with 12.1, unable to compile cuda/cpp extensions without a matching cuda version.",
                "the version torch was compiled with",
                r"Installed CUDA version (?P<have>[\d.]+) does not match the version torch was compiled with (?P<need>\d+\.\d+)",
                source="DeepSpeed 0.5 to 0.18",
            ),
        ),
        explains=("SES22",),
    ),
    Cause(
        "DST273",
        "deepspeed-batch-sizes-do-not-fit",
        "DeepSpeed's batch sizes do not multiply out.",
        "train_batch_size is micro batch x gradient accumulation x number of ranks; the number of ranks changed.",
        "DeepSpeed's train_batch_size is not micro batch x accumulation steps x ranks[[ ({what})]]",
        Remediation(
            "Leave one of the three out (or 'auto') and let DeepSpeed compute it, or correct it for this number of GPUs",
            (
                '"train_batch_size": "auto"  // under Transformers or Accelerate only',
                '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8',
            ),
        ),
        (
            Signature(
                "Check batch related parameters",
                "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
                "gradient_acc_step * world_size 256 != 4 * 8 * 1",
                "batch related parameters",
                r"Check batch related parameters\.(?:[^\n]*world_size (?P<what>\d+ != [\d* ]+\d))?",
                source="DeepSpeed 0.3 to 0.18",
            ),
        ),
    ),
)

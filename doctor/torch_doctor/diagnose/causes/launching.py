"""How ranks are started: launchers, their variables and arguments, backends, limits."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def not_started(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A variable of torchrun's that is not set: the script was started without it."""
    if seen.groups.get("scheduler"):
        name = seen.groups["scheduler"]
        launcher = "srun (one task a rank)" if name.startswith("SLURM") else "mpirun"
        return with_message(
            verdict,
            f"{name} is not set: the script expects to be started by {launcher}, and was not",
            Remediation(
                "Start it with the launcher that it expects, or let it read torchrun's variables",
                (
                    "srun --ntasks-per-node=8 python train.py",
                    "mpirun -np 8 python train.py",
                    "torchrun --nproc-per-node=gpu train.py",
                ),
            ),
        )
    if match := re.search(r"environment variable (\w+) expected|^KeyError: '(\w+)'", seen.log.lines[seen.index].text):
        return with_message(
            verdict,
            f"{match[1] or match[2]} is not set: the script was started with python in place of torchrun, which sets RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        )
    return with_message(verdict, verdict.message.replace("?", ""))


register(
    Cause(
        "DST209",
        "process-group-not-initialised",
        "A collective or DDP was used before init_process_group, or without torchrun's environment.",
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun.",
        "the process group is not initialised{detail}: init_process_group was not called",
        Remediation(
            "Start the script with torchrun, and call init_process_group first",
            ("torchrun --standalone --nproc-per-node=gpu train.py", "torch.distributed.init_process_group('nccl')"),
        ),
        (
            Signature(
                "Default process group has not been initialized",
                "ValueError: Default process group has not been initialized, please make sure to call "
                "init_process_group.",
                "process group",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "environment variable ",
                "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
                "RANK expected, but not set",
                "RANK",
                r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "environment variable ",
                "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
                "WORLD_SIZE expected, but not set",
                "environment variable x",
                r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                ("KeyError: 'SLURM_", "KeyError: 'OMPI_COMM_WORLD_", "KeyError: 'PMI_"),
                "KeyError: 'SLURM_PROCID'",
                "KeyError: 'SLURM_NAME_OF_MINE'",
                r"^KeyError: '(?P<scheduler>SLURM_(?:PROCID|LOCALID|NTASKS|NODEID|NODELIST|JOB_ID|JOB_NODELIST|NNODES|STEP_NODELIST|GPUS_ON_NODE)"
                r"|OMPI_COMM_WORLD_\w+|PMI_(?:RANK|SIZE))'$",
                source="python 3.8 to 3.14, os.environ",
            ),
            Signature(
                "KeyError: '",
                "KeyError: 'LOCAL_RANK'",
                "KeyError: 'rank'",
                r"^KeyError: '(?P<variable>LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_WORLD_SIZE)'$",
                source="python 3.8 to 3.14, os.environ",
            ),
        ),
        judge=not_started,
    ),
    Cause(
        "DST232",
        "local-rank-argument-of-old-launcher",
        "The script and the launcher pass the local rank in different ways.",
        "torch.distributed.launch passes --local-rank (before torch 2.0 --local_rank); torchrun sets LOCAL_RANK only.",
        "the script does not know the launcher's argument {what}: torch.distributed.launch passes it, torchrun sets LOCAL_RANK in its place",
        Remediation(
            "Start with torchrun and read LOCAL_RANK from the environment, or accept both spellings",
            (
                "torchrun --nproc-per-node=gpu train.py",
                "local_rank = int(os.environ['LOCAL_RANK'])",
                "parser.add_argument('--local-rank', '--local_rank', type=int)",
            ),
        ),
        (
            Signature(
                "unrecognized arguments:",
                "train.py: error: unrecognized arguments: --local-rank=0",
                "error: unrecognized arguments: --lr=0",
                r"unrecognized arguments:[^\n]*(?P<what>--local[-_]rank)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST233",
        "launcher-has-no-slots",
        "The launcher or scheduler has no room for what was asked.",
        "mpirun counts cores as slots; Slurm knows GPUs as a generic resource by a name of its own.",
        "the launcher cannot start the processes: {what}",
        Remediation(
            "Ask for what the nodes have",
            (
                "sinfo -o '%N %c %G %t'",
                "mpirun --oversubscribe -np 8 ...",
                "mpirun --hostfile hosts ...  # node1 slots=8",
            ),
        ),
        (
            Signature(
                "not enough slots available",
                "There are not enough slots available in the system to satisfy the 8",
                "slots available",
                r"(?P<what>not enough slots available in the system)",
                source="Open MPI 2 to 5",
            ),
            Signature(
                "generic resource (gres)",
                "srun: error: Unable to create step for job 123: Invalid generic resource (gres) specification",
                "gres=gpu:1",
                r"(?P<what>Invalid generic resource \(gres\) specification)",
                source="Slurm 18 to 25",
            ),
        ),
    ),
    Cause(
        "DST234",
        "mpirun-as-root",
        "mpirun refuses to run as root.",
        "Open MPI guards against it; in a container it is harmless.",
        "mpirun refuses to run as root",
        Remediation(
            "Run as another user, or allow it in a container",
            (
                "docker run --user $(id -u):$(id -g) ...",
                "mpirun --allow-run-as-root ...",
            ),
        ),
        (
            Signature(
                "attempt to run as root",
                "mpirun has detected an attempt to run as root.",
                "run as root",
                r"detected an attempt to run as root",
                source="Open MPI 1.8 to 5",
            ),
        ),
    ),
    Cause(
        "DST212",
        "ports-or-pids-exhausted",
        "No more processes or threads can be made.",
        "The container's limit of PIDs, or ulimit -u, is reached: workers, compile threads and OpenMP add up.",
        "no more threads or processes can be made: the limit of PIDs (docker --pids-limit, the pids cgroup) or "
        "ulimit -u is reached",
        Remediation(
            "Raise the limit, or use fewer workers and threads",
            (
                "docker run --pids-limit=-1 ...",
                "ulimit -u",
                "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
                "export OMP_NUM_THREADS=4",
            ),
        ),
        (
            Signature(
                "can't start new thread",
                "RuntimeError: can't start new thread",
                "start new thread",
                source="python 3.8 to 3.14",
            ),
            Signature(
                ("Resource temporarily", "libgomp: Thread creation failed"),
                "BlockingIOError: [Errno 11] Resource temporarily unavailable",
                "OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
                "temporarily unavailable')",
                r"^(?![^\n]*lock file)[^\n]*(?:\[Errno 11\] Resource temporarily "
                r"unavailable$|pthread_create[^\n]*Resource temporarily|fork[^\n]*Resource temporarily "
                r"unavailable|libgomp: Thread creation failed[^\n]*)",
                source="python 3.8 to 3.14, libgomp, bash",
            ),
            Signature(
                "OMP: Error #34",
                "OMP: Error #34: System unable to allocate necessary resources for OMP thread:",
                "OMP: Info",
                source="LLVM OpenMP",
            ),
            Signature(
                "pthread_create failed",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily "
                "unavailable",
                "pthread_create",
                source="OpenBLAS",
            ),
            Signature(
                "what():  Resource temporarily unavailable",
                "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable",
                "  what():  Connection refused",
                source="libstdc++ of gcc 5 to 15, std::thread",
            ),
        ),
        explains=("SES211", "SES22", "WRK2"),
    ),
    Cause(
        "DST213",
        "nccl-without-gpus",
        "The NCCL backend was chosen where there is no GPU or no NCCL.",
        "NCCL needs GPUs and a torch that was built with it.",
        "the NCCL backend was chosen, and {what}",
        Remediation(
            "Use gloo on the CPU, or give the job GPUs and a CUDA build of torch",
            (
                "torch.distributed.init_process_group('gloo')",
                "nvidia-smi -L",
                'python -c "import torch; print(torch.version.cuda, torch.distributed.is_nccl_available())"',
            ),
        ),
        (
            Signature(
                "ProcessGroupNCCL is only supported with GPUs",
                "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
                "ProcessGroupNCCL started",
                r"(?P<gpu>ProcessGroupNCCL is only supported with GPUs)",
                source="torch 1.7 to 2.15",
            ),
            Signature(
                (" MPI built in", " UCC built in", " Gloo built in"),
                "RuntimeError: Distributed package doesn't have MPI built in.",
                "MPI is built in",
                r"Distributed package doesn't have (?P<backend>MPI|UCC|Gloo) built in",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "have NCCL built in",
                "RuntimeError: Distributed package doesn't have NCCL built in",
                "NCCL built in",
                r"Distributed package doesn't have NCCL built in",
                source="torch 1.0 to 2.15",
            ),
        ),
        explains=("GPU212",),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                f"this torch was built without the backend {seen.groups['backend']}, as all wheels are",
                Remediation(
                    "Use nccl for GPUs or gloo for the CPU; MPI needs a torch that is built from source",
                    (
                        "torch.distributed.init_process_group('nccl')  # or 'gloo'",
                        "torchrun --nproc-per-node=gpu train.py",
                    ),
                ),
            )
            if "backend" in seen.groups
            else with_message(
                verdict,
                verdict.message.replace(
                    "?",
                    "no GPU is visible" if "gpu" in seen.groups else "this torch was built without it (a CPU build)",
                ),
            )
        ),
    ),
)

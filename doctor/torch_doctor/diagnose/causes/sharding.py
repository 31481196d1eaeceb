"""What DDP, FSDP and DTensor refuse when a model is wrapped, and what launchers of a framework refuse at the start."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register
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
        "DST261",
        "fsdp-unit-of-mixed-dtypes",
        "FSDP cannot flatten parameters of different dtypes in one unit.",
        "The parameters of a wrapped module become one flat tensor: LoRA weights in float32 beside a bfloat16 base, or a "
        "norm kept in float32, break it.",
        "an FSDP unit holds parameters of different dtypes ({what})",
        Remediation(
            "Cast the model to one dtype before it is wrapped, or wrap the odd modules by themselves; FSDP2 "
            "(fully_shard) takes mixed dtypes between units",
            (
                "model = model.to(torch.bfloat16)",
                "model.config.torch_dtype, {p.dtype for p in model.parameters()}",
                "torch.distributed.fsdp.fully_shard(layer)",
            ),
        ),
        (
            Signature(
                ("Must flatten tensors with ", "requires uniform dtype"),
                "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
                "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
                r"(?:Must flatten tensors with uniform|FlatParameter`? requires uniform) dtype but got (?P<what>[^\n]+)",
                source="torch 1.12 to 2.15, FSDP1",
            ),
            Signature(
                "FSDP expects uniform ",
                "AssertionError: FSDP expects uniform original parameter dtype but got {torch.float32, torch.bfloat16}",
                "FSDP expects",
                r"FSDP expects uniform original (?:parameter )?dtype but got (?P<what>[^\n]+)",
                source="torch 2.2 to 2.15, FSDP2",
            ),
        ),
    ),
    Cause(
        "DST262",
        "fsdp-unit-of-frozen-and-trained",
        "FSDP cannot flatten frozen and trained parameters together.",
        "With use_orig_params=False a unit has one requires_grad for all of it.",
        "an FSDP unit holds frozen and trained parameters, which use_orig_params=False does not allow",
        Remediation(
            "Set use_orig_params=True, or wrap the trained modules (LoRA) by themselves",
            ("FullyShardedDataParallel(model, use_orig_params=True)", "fsdp_use_orig_params: true  # accelerate"),
        ),
        (
            Signature(
                "uniform `requires_grad`",
                "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
                "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
                source="torch 1.13 to 2.15, FSDP1",
            ),
        ),
    ),
    Cause(
        "DST270",
        "fsdp-layer-class-not-in-model",
        "FSDP is to wrap a class of layers that the model does not have.",
        "fsdp_transformer_layer_cls_to_wrap names the layer of another architecture, or is misspelt.",
        "the layer class that FSDP is to wrap[[ ({what})]] is not in this model",
        Remediation(
            "Name the decoder or encoder layer's class of this model, or wrap by size",
            (
                "print({type(m).__name__ for m in model.modules()})",
                "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer  # accelerate",
                "fsdp_auto_wrap_policy: SIZE_BASED_WRAP",
            ),
        ),
        (
            Signature(
                "Could not find the transformer layer class",
                "ValueError: Could not find the transformer layer class GPT2Block in the model.",
                "found the transformer layer class",
                r"Could not find the transformer layer class (?:to wrap|(?P<what>\w+)) in the model",
                source="accelerate 0.12 to 1.12",
            ),
        ),
    ),
    Cause(
        "DST281",
        "collective-tensors-do-not-fit",
        "A collective was given tensors of the wrong number, size or type.",
        "gather lists need one tensor a rank of the group, all_gather_into_tensor an output of world size times the input, "
        "and every rank the same dtype and shape.",
        "a collective got tensors that do not fit its group: {what}",
        Remediation(
            "Make the list or output from get_world_size(group), and pad what differs between the ranks",
            (
                "out = [torch.empty_like(x) for _ in range(torch.distributed.get_world_size(group))]",
                "out = x.new_empty(torch.distributed.get_world_size(group) * x.shape[0], *x.shape[1:])",
                "x = x.contiguous()",
            ),
        ),
        (
            Signature(
                (
                    "must match number of collective participants",
                    "must be equal to world_size times input",
                    "input tensor must be the same type as the output",
                    "Tensors must be contiguous",
                    "operands to scatter/gather must have the same",
                    "tensors with different dtypes",
                ),
                "ValueError: output tensor size must be equal to world_size times input tensor size",
                "output tensor size must be equal",
                r"(?P<what>[^\n:]*(?:must match number of collective participants|must be equal to world_size times input|input tensor must be the "
                r"same type as the output|Tensors must be contiguous|operands to scatter/gather must have the same|Invalid usage of tensors "
                r"with different dtypes)[^\n]*)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST282",
        "object-collective-out-of-step",
        "A collective of objects received bytes that are no object.",
        "Objects travel as a size and a tensor of bytes on the rank's device: without set_device(LOCAL_RANK) all ranks use "
        "GPU 0, and ranks that call different collectives read each other's tensors.",
        "a collective of objects received no pickled object: the ranks called different collectives, or set_device(LOCAL_RANK) "
        "is missing",
        Remediation(
            "Set the device before the first collective, and call the same ones in the same order on each rank",
            ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ..."),
        ),
        (
            Signature(
                "_tensor_to_object",
                '  File "/opt/py/lib/torch/distributed/distributed_c10d.py", line 2988, in _tensor_to_object\n    return '
                "_unpickler(io.BytesIO(buf)).load()\n_pickle.UnpicklingError: invalid load key, '\\x00'.",
                "  File \"/opt/py/lib/torch/serialization.py\", line 1, in load\n_pickle.UnpicklingError: invalid load key, '\\x00'.",
                r"in _tensor_to_object\n(?:[^\n]*\n){1,4}?(?:_pickle\.UnpicklingError|EOFError|MemoryError|RuntimeError|ValueError)[^\n]*",
                source="torch 1.6 to 2.15",
            ),
        ),
        explains=("CKP2", "MEM205"),
    ),
    Cause(
        "DST283",
        "world-size-does-not-fit-parallelism",
        "The number of ranks does not fit the degrees of parallelism.",
        "Data x tensor x pipeline x context parallel degrees multiply to the number of ranks.",
        "the number of ranks does not fit the parallel degrees: {what}",
        Remediation(
            "Start as many ranks as the degrees multiply to, or lower a degree",
            (
                "echo $WORLD_SIZE; torchrun --nnodes=2 --nproc-per-node=8 ...",
                "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1",
            ),
        ),
        (
            Signature(
                (
                    "Mesh should not be bigger than default world size",
                    "is not divisible by total_model_size",
                    "not divisible by tensor parallel size",
                    "nvalid parallel dims",
                    "is larger than the number of available GPUs",
                ),
                "RuntimeError: Mesh should not be bigger than default world size 4, but found 8 ranks!",
                "the mesh is bigger",
                r"(?P<what>Mesh should not be bigger than default world size[^\n]*|[^\n:]*(?:is not divisible by total_model_size|not divisible "
                r"by tensor parallel size)[^\n]*|[Ii]nvalid parallel dims[^\n]*|[^\n:]*is larger than the number of available GPUs[^\n]*)",
                source="torch 2.2 to 2.15, Megatron-LM, torchtitan, vLLM",
            ),
        ),
    ),
    Cause(
        "DST263",
        "tensor-and-dtensor-mixed",
        "An operation got plain tensors together with distributed ones.",
        "Parameters under FSDP2 or tensor parallelism are DTensors; a buffer, a mask or a clipped norm made from a plain "
        "tensor does not mix with them.",
        "{op} got plain tensors and DTensors together: parameters are sharded (FSDP2 or tensor parallel), the other "
        "operand is not",
        Remediation(
            "Make the plain tensor a DTensor on the same mesh, or take the local part or the full tensor of the other",
            (
                "distribute_tensor(x, mesh, [Replicate()])",
                "w.full_tensor()  # or w.to_local()",
                "with implicit_replication(): ...",
            ),
        ),
        (
            Signature(
                "got mixed torch.Tensor and DTensor",
                "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
                "DTensor before calling distributed operators!",
                "DTensor",
                r"(?P<op>aten\.[\w.]+|[\w.]+?):? got mixed torch\.Tensor and DTensor",
                source="torch 2.0 to 2.15, DTensor",
            ),
        ),
    ),
    Cause(
        "DST264",
        "model-not-on-its-device-before-ddp",
        "DDP was given device_ids for a model that is not on that device.",
        "The model stays on the CPU, or is spread over several devices, when it is wrapped.",
        "DDP got device_ids, but the model's parameters are on {what}: it was not moved to the rank's GPU before it was wrapped",
        Remediation(
            "Move the model first, then wrap it; leave device_ids out on the CPU or with a model over several GPUs",
            ("model = model.to(local_rank)", "DistributedDataParallel(model, device_ids=[local_rank])"),
        ),
        (
            Signature(
                "device_ids and output_device arguments only work with",
                "ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
                "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device 0, and "
                "module parameters {device(type='cpu')}.",
                "device_ids and output_device",
                r"device_ids and output_device arguments only work with[^\n]*(?:module parameters \{(?P<what>[^}\n]*)\})",
                source="torch 1.5 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST265",
        "nothing-to-train-under-ddp",
        "DDP was given a module without trained parameters.",
        "All parameters are frozen, or the module has none: a teacher, a metric, a frozen encoder.",
        "DDP was given a module of which no parameter requires a gradient",
        Remediation(
            "Leave frozen modules unwrapped, or wrap before they are frozen",
            ("teacher.to(device).eval()  # not DDP(teacher)", "sum(p.requires_grad for p in model.parameters())"),
        ),
        (
            Signature(
                "is not needed when a module",
                "RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that "
                "require a gradient.",
                "is not needed",
                r"DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient",
                source="torch 1.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST266",
        "lazy-module-under-ddp",
        "DDP was given a module whose parameters have no shape yet.",
        "Lazy modules learn their shapes at the first forward pass.",
        "DDP was given lazy modules whose parameters have no shape yet",
        Remediation("Run one batch through the model before it is wrapped", ("model(next(iter(loader))[0][:1])",)),
        (
            Signature(
                "Modules with uninitialized parameters",
                "RuntimeError: Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a "
                "dummy forward pass to correctly initialize the modules",
                "uninitialized parameters",
                source="torch 1.8 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST267",
        "process-group-initialised-twice",
        "init_process_group was called twice.",
        "The script calls it, and so does a library (accelerate, Lightning, DeepSpeed), or a notebook cell ran again.",
        "the process group was initialised twice: the script and a library both do it, or a cell ran again",
        Remediation(
            "Call it once, and guard it",
            ("if not torch.distributed.is_initialized(): torch.distributed.init_process_group('nccl')",),
        ),
        (
            Signature(
                "initialize the default process group twice",
                "ValueError: trying to initialize the default process group twice!",
                "default process group",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
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
                "ray logs worker-*PID*.err --node-ip IP  # or /tmp/ray/session_latest/logs",
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
        kind=VAGUE,
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
                "ray stop --force; ray start --head --num-cpus=8",
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
                r"but OMPI was not built with\b|PMI2?_Init failed|PMIX ERROR: (?!NOT-SUPPORTED)|pmix3x_client\.c at line|was not built with SLURM",
                source="Open MPI 2 to 5, Slurm 17 to 25",
            ),
            Signature(
                "ailed to initialize PMI",
                "srun: error: mpi/pmi2: failed to initialize PMI",
                "initialize PMI",
                source="Slurm, MPICH",
            ),
        ),
        explains=("SES22", "SES211"),
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
            ('"train_batch_size": "auto"', '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8'),
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

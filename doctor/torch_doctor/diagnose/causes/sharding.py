"""What FSDP, DTensor, ZeRO and the parallel degrees refuse when a model is wrapped or a collective called."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

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
                    "must be specified on destination rank",
                    "must be specified on source rank",
                ),
                "ValueError: output tensor size must be equal to world_size times input tensor size",
                "output tensor size must be equal",
                r"(?P<what>[^\n:]*(?:must be specified on (?:destination|source) rank|must match number of collective participants|must be equal to world_size times input|input tensor must be the "
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
                "torchrun ... --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1  # Megatron",
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
        "DST284",
        "rank-outside-of-group",
        "A rank is not within the group that it was given.",
        "num_replicas and rank come from different groups or from stale variables; ranks of new_group are global numbers.",
        "{what}: the rank and the size of the group come from different sources",
        Remediation(
            "Take both from the same process group",
            (
                "DistributedSampler(ds, num_replicas=dist.get_world_size(), rank=dist.get_rank())",
                "echo $RANK $WORLD_SIZE",
            ),
        ),
        (
            Signature(
                ("rank should be in the interval", "the new group's world size should be"),
                "ValueError: Invalid rank 4, rank should be in the interval [0, 3]",
                "the rank should be in the list",
                r"(?P<what>Invalid rank \d+, rank should be in the interval \[\d+, \d+\]|the new group's world size should be[^\n:]*)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST285",
        "zero3-parameter-not-gathered",
        "A parameter was used while ZeRO-3 holds only a part of it.",
        "Outside of the engine's forward pass a parameter is an empty tensor: loading a checkpoint, resizing embeddings or a "
        "module called by itself sees torch.Size([0]).",
        "a parameter is empty (torch.Size([0])), since ZeRO stage 3 keeps only a part of it on each rank outside of the engine",
        Remediation(
            "Gather it first, load through the engine, or build the model outside of zero.Init",
            (
                "with deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0): model.load_state_dict(state)",
                "engine.load_checkpoint(folder)",
            ),
        ),
        (
            Signature(
                "in current model is torch.Size([0])",
                "\tsize mismatch for wte.weight: copying a param with shape torch.Size([50257, 768]) from checkpoint, the shape in "
                "current model is torch.Size([0]).",
                "the shape in current model is torch.Size([1])",
                source="torch 1.x and 2.x under DeepSpeed ZeRO-3",
            ),
            Signature(
                "'weight' must be 2-D",
                "  File \"/opt/py/deepspeed/runtime/zero/parameter_offload.py\", line 300, in _post_forward\nRuntimeError: 'weight' must be 2-D",
                "RuntimeError: 'weight' must be 2-D",
                also=(r"(?i)deepspeed|zero",),
                source="torch 1.x and 2.x under DeepSpeed ZeRO-3",
            ),
        ),
        explains=("CKP209",),
    ),
    Cause(
        "DST286",
        "sharded-module-called-by-itself",
        "A part of a sharded model was used around the model's own forward pass.",
        "FSDP gathers parameters in the forward hooks of the wrapped modules. A method that is called directly "
        "(model.module.compute, generate on a submodule), or a submodule that ran first, finds them empty.",
        "a part of the FSDP or ZeRO model was used without its own forward pass, so that its parameters were not gathered",
        Remediation(
            "Call the wrapped model itself, or register the method; gather the parameters where that is not possible",
            (
                "out = model(batch)  # not model.module.compute(batch)",
                "torch.distributed.fsdp.register_fsdp_forward_method(model, 'generate')",
                "with FullyShardedDataParallel.summon_full_params(model): ...",
            ),
        ),
        (
            Signature(
                "`_is_root` should not have been set yet",
                "AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet or should have been set to `False`",
                "_is_root",
                source="torch 1.12 to 2.15, FSDP1",
            ),
            Signature(
                ("its data is not allocated yet", "which is out of bounds for storage of size 0"),
                "    loss = model.module.compute(x)  # FSDP\nRuntimeError: The tensor has a non-zero number of elements, but its data is "
                "not allocated yet.",
                "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet.",
                also=(r"(?i)fsdp|fully_?shard|deepspeed|model\.module\.",),
                source="torch 1.12 to 2.15, FSDP",
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
)

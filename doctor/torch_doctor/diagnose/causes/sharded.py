"""Checkpoints of several ranks: torch.distributed.checkpoint, FSDP, DeepSpeed."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "CKP240",
        "distributed-checkpoint-lacks-key",
        "A distributed checkpoint has no entry for a key that the run wants to load.",
        "torch.distributed.checkpoint loads into the state that it is given and has no strict=False: a parameter, an "
        "optimizer state or a scheduler entry that is new, or renamed by a wrapper, stops it.",
        "the distributed checkpoint has no entry {key}: the model, the wrappers or the optimizer differ from those that "
        "saved it",
        Remediation(
            "List what it holds; take both states through get_state_dict, which leaves wrappers' prefixes out; or allow "
            "missing entries for what is meant to be new",
            (
                "python -c \"import torch.distributed.checkpoint as d; print(*d.FileSystemReader('FOLDER').read_metadata()"
                ".state_dict_metadata, sep='\\n')\"",
                "dcp.load(state, checkpoint_id=FOLDER, planner=DefaultLoadPlanner(allow_partial_load=True))",
                "model_state, optim_state = get_state_dict(model, optimizer)  # torch.distributed.checkpoint.state_dict",
            ),
        ),
        (
            Signature(
                "Missing key in checkpoint state_dict",
                "RuntimeError: Missing key in checkpoint state_dict: model.wte.weight.",
                "Missing key(s) in state_dict",
                r"Missing key in checkpoint state_dict: (?P<key>[\w.]+?)\.?(?:\s|$)",
                source="torch 2.1 to 2.15, torch/distributed/checkpoint/default_planner.py",
            ),
        ),
        references="https://github.com/pytorch/pytorch/issues/148252",
    ),
    Cause(
        "CKP241",
        "distributed-checkpoint-size-differs",
        "An entry of a distributed checkpoint has another size than the tensor that it is loaded into.",
        "The configuration changed, or a flat FSDP1 parameter of another number of ranks is loaded.",
        "{key} has size {saved} in the distributed checkpoint and {model} in the model: another configuration, or flat "
        "parameters of another number of ranks",
        Remediation(
            "Build the model with the saved configuration; save through get_state_dict (or FSDP2), which is free of the "
            "number of ranks",
            (
                "get_model_state_dict(model)  # torch.distributed.checkpoint.state_dict",
                "FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)",
            ),
        ),
        (
            Signature(
                "ize mismatch between saved",
                "ValueError: Size mismatch between saved torch.Size([4096, 1024]) and current: torch.Size([2048, 1024]) for "
                "layers.0.w1.weight",
                "size mismatch between runs",
                r"[Ss]ize mismatch between saved (?:torch\.Size\()?(?P<saved>\[[^\]]*\])\)? and current: "
                r"(?:torch\.Size\()?(?P<model>\[[^\]]*\])\)? for (?P<key>[\w.]+)",
                source="torch 2.3 to 2.15, torch/distributed/checkpoint/default_planner.py",
            ),
        ),
    ),
    Cause(
        "CKP242",
        "sharded-checkpoint-of-other-world-size",
        "A checkpoint that is split by rank is loaded by another number of ranks.",
        "DeepSpeed ZeRO and FSDP's local state write a file per rank; another number of ranks cannot read them back.",
        "the checkpoint is split for another number of ranks[[ (saved by {saved}, loaded by {now})]]",
        Remediation(
            "Load with the number of ranks that saved it, or turn it into a form that is free of it",
            (
                "python zero_to_fp32.py CHECKPOINT_FOLDER OUT",
                "python -m deepspeed.checkpoint.ds_to_universal --input_folder FOLDER --output_folder OUT  # then load_universal",
                "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER out.pt",
            ),
        ),
        (
            Signature(
                "used a DP world size of",
                "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 "
                "but the current world size is 4. Automatic adjustment of ZeRO's optimizer state partitioning with a new "
                "world size is not currently supported.",
                "The checkpoint being loaded is old",
                r"used a DP world size of (?P<saved>\d+) but the current world size is (?P<now>\d+)",
                source="DeepSpeed 0.3 to 0.18",
            ),
        ),
    ),
    Cause(
        "CKP247",
        "shard-of-a-rank-missing",
        "The part of the checkpoint that a rank wrote is not there.",
        "ZeRO writes a file per rank. Fewer ranks saved it, another ZeRO stage did, or the folder is a local disk of each "
        "node, so that other nodes' files are not seen.",
        "the shard of rank {rank} is missing: fewer ranks or another ZeRO stage saved the checkpoint, or each node wrote to a "
        "local folder of its own",
        Remediation(
            "Load with the ranks and the stage that saved it; keep checkpoints on a file system that all nodes share",
            (
                "ls CHECKPOINT_FOLDER/global_step*/ | head",
                "findmnt -T CHECKPOINT_FOLDER -o FSTYPE,SOURCE",
                "python zero_to_fp32.py CHECKPOINT_FOLDER OUT",
            ),
        ),
        (
            Signature(
                "zero_pp_rank_",
                "FileNotFoundError: [Errno 2] No such file or directory: 'out/global_step600/bf16_zero_pp_rank_4_mp_rank_00_optim_states.pt'",
                "saved zero_pp_rank_4_mp_rank_00_optim_states.pt",
                r"No such file or directory: '[^']*zero_pp_rank_(?P<rank>\d+)_[^']*'",
                source="DeepSpeed 0.4 to 0.18",
            ),
            Signature(
                ".distcp'",
                "FileNotFoundError: [Errno 2] No such file or directory: 'ckpt/step-400/__7_0.distcp'",
                "wrote '__7_0.distcp'",
                r"No such file or directory: '[^']*__(?P<rank>\d+)_\d+\.distcp'",
                source="torch 2.1 to 2.15, torch.distributed.checkpoint",
            ),
        ),
        explains=("FS208",),
    ),
)

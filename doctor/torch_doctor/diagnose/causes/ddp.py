"""What DistributedDataParallel and the backends refuse."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register, with_message
from torch_doctor.model import Remediation

register(
    Cause(
        "DST208",
        "unused-parameters-in-ddp",
        "A parameter got no gradient in the last iteration under DDP.",
        "DDP waits for the gradients of all parameters; a branch that is not taken, or an output that does not "
        "enter the loss, leaves some without.",
        "DDP waits for gradients of parameters that were not used in the loss{detail}",
        Remediation(
            "Use all outputs in the loss, take out unused layers, or set find_unused_parameters=True",
            (
                "DistributedDataParallel(model, find_unused_parameters=True)",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun train.py",
            ),
        ),
        (
            Signature(
                "Expected to have finished reduction in the prior iteration",
                "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
                "finished reduction",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "LightningModule has parameters that were not used in producing the loss",
                "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss "
                "returned by training_step.",
                "LightningModule has parameters",
                r"(?P<lightning>LightningModule has parameters that were not used in producing the loss)",
                source="Lightning 1.6 to 2.6",
            ),
            Signature(
                "Expected to mark a variable ready only once",
                "RuntimeError: Expected to mark a variable ready only once.",
                "ready only once",
                source="torch 1.0 to 2.15: checkpointing with reuse",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "a parameter was marked ready twice under DDP: it is used in several checkpointed blocks or "
                "backward passes",
                Remediation(
                    "Use use_reentrant=False in checkpointing, or static_graph=True",
                    (
                        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
                        "DistributedDataParallel(model, static_graph=True)",
                    ),
                ),
            )
            if "ready only once" in seen.log.lines[seen.index].text
            else with_message(
                verdict,
                verdict.message.replace("?", ""),
                Remediation(
                    verdict.remedy.text,
                    ("Trainer(strategy='ddp_find_unused_parameters_true')", *verdict.remedy.commands[1:])
                    if "lightning" in seen.groups
                    else verdict.remedy.commands,
                ),
            )
        ),
    ),
    Cause(
        "DST216",
        "cpu-tensor-in-nccl-collective",
        "A CPU tensor was given to a collective of NCCL.",
        "NCCL moves GPU memory only; objects and CPU tensors need gloo.",
        "a collective got a CPU tensor on the NCCL backend",
        Remediation(
            "Move it to the rank's GPU, or make the group with both backends",
            ("tensor = tensor.to(device)", "init_process_group('cpu:gloo,cuda:nccl')"),
        ),
        (
            Signature(
                "No backend type associated with device type cpu",
                "RuntimeError: No backend type associated with device type cpu",
                "device type cpu",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "Tensors must be CUDA and dense",
                "RuntimeError: Tensors must be CUDA and dense",
                "Tensors must be dense",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST217",
        "models-differ-between-ranks",
        "DDP found different models on the ranks.",
        "The parameters' number, order or shapes differ: another configuration, a random architecture, or another "
        "checkpoint on one rank.",
        "the models of the ranks[[ (rank {rank})]] are not the same: the parameters' number, order or shapes differ",
        Remediation(
            "Build the model from the same configuration and seed on every rank",
            (
                "torch.manual_seed(0)  # before the model is made, on every rank",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
            ),
        ),
        (
            Signature(
                "in this process with sizes",
                "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has "
                "inconsistent 6 params.\n[1]: "
                "params[0] in this process with sizes [4] appears not to match sizes of the same param in process 0.",
                "in this process with size",
                r"params\[\d+\] in this process with sizes",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "DDP expects same model across all ranks",
                "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has "
                "inconsistent 6 params.",
                "same model across all ranks",
                r"DDP expects same model across all ranks, but Rank (?P<rank>\d+)",
                source="torch 1.9 to 2.15",
            ),
        ),
    ),
)

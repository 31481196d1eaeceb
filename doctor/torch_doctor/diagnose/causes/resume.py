"""Resuming: states of optimizers and schedulers, Lightning's checkpoints."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def restored(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A scheduler that is resumed by last_epoch reads initial_lr from the optimizer."""
    if "initial" not in seen.groups:
        return verdict
    return with_message(
        verdict,
        "the scheduler was made with last_epoch set, and the optimizer's groups have no initial_lr: its state was not restored "
        "first",
        Remediation(
            "Load the optimizer's state before making the scheduler; or make it with last_epoch=-1 and load its own state",
            (
                "optimizer.load_state_dict(ck['optimizer']); scheduler = StepLR(optimizer, 30); scheduler.load_state_dict(ck['scheduler'])",
                "for g in optimizer.param_groups: g.setdefault('initial_lr', g['lr'])",
            ),
        ),
    )


register(
    Cause(
        "CKP211",
        "optimizer-state-mismatch",
        "The saved optimizer state does not fit the optimizer.",
        "The parameter groups or their sizes differ: frozen layers, another order, another optimizer.",
        "the optimizer's saved state does not fit its parameter groups",
        Remediation(
            "Build the same parameter groups before loading, or start the optimizer afresh",
            ("optimizer = AdamW(model.parameters())  # no load_state_dict",),
        ),
        (
            Signature(
                "loaded state dict ",
                "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group",
                "loaded state dict from x",
                r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of "
                r"parameter groups)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "param 'initial_lr' is not specified",
                "KeyError: \"param 'initial_lr' is not specified in param_groups[0] when resuming an optimizer\"",
                "initial_lr is 0.1",
                r"(?P<initial>param 'initial_lr' is not specified in param_groups)",
                source="torch 0.4 to 2.15, torch/optim/lr_scheduler.py",
            ),
        ),
        judge=restored,
    ),
    Cause(
        "CKP248",
        "optimizer-state-on-other-device",
        "The optimizer's state lies on another device than its parameters.",
        "optimizer.load_state_dict puts the state where the parameters are at that time; a model that is moved afterwards "
        "leaves it behind.",
        "the optimizer's state is on another device than the parameters: it was restored, or the optimizer made, before the "
        "model was moved",
        Remediation(
            "Move the model first, then make the optimizer and load its state",
            (
                "model.to(device); optimizer = AdamW(model.parameters()); optimizer.load_state_dict(state['optimizer'])",
                "for s in optimizer.state.values():\n    for k, v in s.items():\n        if torch.is_tensor(v): s[k] = v.to(device)",
            ),
        ),
        (
            Signature(
                "torch/optim/",
                '  File "/x/torch/optim/adam.py", line 532, in _multi_tensor_adam\nRuntimeError: Expected all tensors to be on '
                "the same device, but found at least two devices, cuda:0 and cpu!",
                '  File "/x/torch/optim/adam.py", line 532, in _multi_tensor_adam\nRuntimeError: CUDA error: out of memory',
                r"torch/optim/\w+\.py\"[^\n]*\n(?:(?!  File )[^\n]*\n){0,3}?[^\n]*Expected all tensors to be on the same device",
                source="torch 1.0 to 2.15, torch/optim",
            ),
        ),
        explains=("DEV2",),
    ),
    Cause(
        "CKP253",
        "optimizer-state-of-another-shape",
        "The optimizer's restored state has another shape than its parameters.",
        "Flat FSDP1 and ZeRO states belong to a number of ranks; groups in another order pair states with wrong parameters. "
        "Loading says nothing; the first step fails.",
        "the optimizer's restored state ({first} elements) does not fit its parameters ({second}): it was saved by another number "
        "of ranks (FSDP, ZeRO), or its parameters came in another order",
        Remediation(
            "Resume with the number of ranks that saved it, restore through the sharding library, or start the optimizer afresh",
            (
                "set_optimizer_state_dict(model, optimizer, state)  # torch.distributed.checkpoint.state_dict",
                "FSDP.optim_state_dict_to_load(model, optimizer, state)",
                "optimizer = AdamW(model.parameters())  # no load_state_dict",
            ),
        ),
        (
            Signature(
                "must match the size of tensor b",
                '  File "/x/torch/optim/adamw.py", line 400, in _single_tensor_adamw\n    exp_avg.lerp_(grad, 1 - beta1)\n'
                "RuntimeError: The size of tensor a (56124554) must match the size of tensor b (14031139) at non-singleton "
                "dimension 0",
                '  File "model.py", line 40, in forward\nRuntimeError: The size of tensor a (3) must match the size of tensor b (4) '
                "at non-singleton dimension 1",
                r"torch/optim/\w+\.py\"[^\n]*\n(?:(?!  File )[^\n]*\n){0,3}?[^\n]*The size of tensor a \((?P<first>\d+)\) must match the "
                r"size of tensor b \((?P<second>\d+)\)",
                source="torch 1.0 to 2.15, torch/optim",
            ),
        ),
        explains=("LOS2",),
    ),
    Cause(
        "CKP249",
        "not-a-lightning-checkpoint",
        "Lightning was given a file that its Trainer did not write.",
        "A Lightning checkpoint is a dict with state_dict, hyper_parameters and the version; a bare state_dict has none.",
        "the file is no checkpoint of Lightning's Trainer (it has no {key}): a bare state_dict, most likely",
        Remediation(
            "Build the module and load the weights into it; ckpt_path and load_from_checkpoint want a Trainer's file",
            (
                "model = LitModel(...); model.net.load_state_dict(torch.load(path, map_location='cpu'))",
                "trainer.save_checkpoint('last.ckpt')",
            ),
        ),
        (
            Signature(
                "pytorch-lightning_version'",
                "KeyError: 'pytorch-lightning_version'",
                "pytorch-lightning_version: 2.5",
                r"KeyError: '(?P<key>pytorch-lightning_version)'",
                source="Lightning 1.5 to 2.6",
            ),
        ),
    ),
    Cause(
        "CKP250",
        "hyperparameters-not-in-checkpoint",
        "load_from_checkpoint cannot build the module: its arguments were not saved.",
        "Only save_hyperparameters() in __init__ stores them.",
        "load_from_checkpoint lacks {what} for __init__: the checkpoint holds no hyper-parameters",
        Remediation(
            "Give the arguments to load_from_checkpoint; call save_hyperparameters() in __init__ from now on",
            ("LitModel.load_from_checkpoint(path, ARGUMENT=...)", "self.save_hyperparameters()  # in __init__"),
        ),
        (
            Signature(
                "required positional argument",
                '  File "/x/lightning/pytorch/core/saving.py", line 180, in _load_state\n    obj = cls(**_cls_kwargs)\nTypeError: '
                "LitModel.__init__() missing 1 required positional argument: 'hidden_dim'",
                "TypeError: LitModel.__init__() missing 1 required positional argument: 'hidden_dim'",
                r"/core/saving\.py\"[^\n]*\n(?:.*\n){0,4}?TypeError: [^\n]*__init__\(\) missing \d+ required positional arguments?: "
                r"(?P<what>[^\n]+)",
                source="Lightning 1.0 to 2.6",
            ),
        ),
    ),
)

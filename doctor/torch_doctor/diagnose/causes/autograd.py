"""Autograd: freed graphs, in-place changes, missing graphs."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation


def _in_place(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A parameter that is changed by hand is another case than a tensor that backward saved."""
    text = seen.log.lines[seen.index].text
    if "leaf Variable" in text:
        return with_message(
            verdict,
            "a parameter (a leaf tensor that requires grad) was modified in place outside of no_grad, as a hand-written "
            "update or initialisation does",
            Remediation(
                "Change parameters under no_grad, or let the optimizer do it",
                ("with torch.no_grad():\n    w -= lr * w.grad", "nn.init.normal_(layer.weight)", LINT),
            ),
        )
    if "is at version" in text and "which is output" not in text:
        what = seen.groups.get("what", "a parameter")
        return with_message(
            verdict,
            f"a parameter or buffer itself ({what}) was changed in place between forward and backward: by optimizer.step(), or under DDP "
            "by the broadcast of BatchNorm's buffers before a second forward pass",
            Remediation(
                "Call all backward passes before the steps; under DDP run one forward pass a step, or switch the broadcast of "
                "buffers off",
                (
                    "DistributedDataParallel(model, broadcast_buffers=False)",
                    "out = ddp_model(torch.cat([x1, x2]))",
                    "torch.autograd.set_detect_anomaly(True)",
                    LINT,
                ),
            ),
        )
    return with_message(verdict, verdict.message.replace(" (?)", ""))


def _no_graph(seen: Seen, verdict: Verdict) -> Verdict | None:
    """With activation checkpointing and frozen embeddings the graph is cut at the first block."""
    checkpointed = (
        r"None of the inputs have requires_grad=True|torch/utils/checkpoint\.py|gradient_checkpointing ?= ?True"
    )
    if not seen.has(checkpointed):
        return verdict
    return with_message(
        verdict,
        "the loss has no graph: activation checkpointing (use_reentrant=True) cuts it where no input of a block requires "
        "grad, as with LoRA on a frozen model",
        Remediation(
            "Let the embeddings' output require grad, or checkpoint without reentrance",
            (
                "model.enable_input_require_grads()",
                "TrainingArguments(gradient_checkpointing_kwargs={'use_reentrant': False})",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
                "[n for n, p in model.named_parameters() if p.requires_grad]",
            ),
        ),
    )


register(
    Cause(
        "GRD201",
        "backward-through-freed-graph",
        "backward went through a graph that an earlier backward had freed.",
        "A tensor from an earlier step (a hidden state, a generator's output, a loss term that is shared) is still "
        "attached to its graph.",
        "a tensor of an earlier backward pass (a hidden state, a shared loss term, a generator's output) is still "
        "attached to a graph that has been freed",
        Remediation(
            "Detach it between iterations, add the losses and call backward once, or compute the forward pass anew",
            ("hidden = hidden.detach()", "(loss_a + loss_b).backward()", LINT),
        ),
        (
            Signature(
                "Trying to backward through the graph a second time",
                "RuntimeError: Trying to backward through the graph a second time",
                "backward a second time",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "after they have already been freed",
                "RuntimeError: Trying to access saved tensors after they have already been freed.",
                "tensors freed",
                r"saved (?:tensors|intermediate values)[^\n]*after they have already been freed",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "saved tensors after they have already been freed",
                "Saved tensors after they have already been freed; saved tensors after they have already been freed",
                "freed",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD202",
        "modified-in-place",
        "A tensor that backward needs was modified in place.",
        "An in-place operation (+=, relu_(), an index assignment, or an optimizer step between forward and "
        "backward) changed what was saved.",
        "a tensor that backward needs was modified in place ({what}): by +=, an op_ function, an index assignment, "
        "or an optimizer.step() between forward and backward",
        Remediation(
            "Use the out-of-place form or clone first, detach the generator's output in the discriminator's step, "
            "and call all backward passes before the steps; anomaly mode names the operation",
            ("torch.autograd.set_detect_anomaly(True)", "x = x + y  # in place of x += y", LINT),
        ),
        (
            Signature(
                "modified by an inplace operation",
                "RuntimeError: one of the variables needed for gradient computation has been modified by an "
                "inplace operation: [torch.FloatTensor [10, 10]], which is output 0 of "
                "AsStridedBackward0, is at version 2; expected version 1 instead.",
                "in-place",
                r"modified by an inplace operation(?:: \[(?P<what>[^\]]*\]?))?",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "leaf Variable that requires grad",
                "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
                "leaf",
                r"a (?:leaf Variable|view of a leaf Variable) that requires grad (?:is being used|has been used) "
                r"in an in-?place operation",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "is a view and is being modified inplace",
                "RuntimeError: Output 0 of UnbindBackward0 is a view and is being modified inplace.",
                "is a view",
                source="torch 1.6 to 2.15",
            ),
        ),
        judge=_in_place,
    ),
    Cause(
        "GRD203",
        "nothing-requires-grad",
        "backward was called on something that has no graph.",
        "The forward pass ran under no_grad, on frozen parameters, or through detach, item, numpy or argmax.",
        "the loss has no graph (no grad_fn): the forward pass ran under no_grad, all parameters are frozen, or "
        "detach(), item(), numpy() or argmax() cut the graph",
        Remediation(
            "Take the forward pass out of no_grad, unfreeze what is to be trained, and compute the loss from tensors",
            (
                "print(loss.requires_grad, loss.grad_fn)",
                "[n for n, p in model.named_parameters() if p.requires_grad]",
                LINT,
            ),
        ),
        (
            Signature(
                "does not require grad and does not have a grad_fn",
                "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
                "require grad",
                source="torch 0.4 to 2.15",
            ),
        ),
        judge=_no_graph,
    ),
    Cause(
        "GRD231",
        "inference-tensor-in-backward",
        "A tensor made under inference_mode was used in training.",
        "inference_mode leaves out what autograd needs; such a tensor stays unusable for backward outside of it.",
        "a tensor that was made under torch.inference_mode() is used in training",
        Remediation(
            "Make it under no_grad in place of inference_mode, or clone it outside",
            ("with torch.no_grad(): ...", "x = x.clone()"),
        ),
        (
            Signature(
                "Inference tensors cannot be saved for backward",
                "RuntimeError: Inference tensors cannot be saved for backward. To work around you can make a clone to "
                "get a normal tensor and use it in autograd.",
                "inference tensors",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "Inplace update to inference tensor outside InferenceMode",
                "RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.",
                "inplace update",
                source="torch 1.9 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD232",
        "recomputation-differs",
        "Activation checkpointing recomputed other tensors than the forward pass had made.",
        "The block is not the same the second time: dropout or autocast outside the checkpoint, a branch on data or state, a module that counts its calls.",
        "activation checkpointing recomputed tensors that differ from those of the forward pass: the block depends on state, random numbers or autocast outside of it",
        Remediation(
            "Keep preserve_rng_state on, put autocast inside the block, and take branches on state out of it; debug=True names the operations",
            (
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, debug=True)",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False, preserve_rng_state=True)",
            ),
        ),
        (
            Signature(
                "torch.utils.checkpoint: ",
                "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.",
                "torch.utils.checkpoint: started",
                r"torch\.utils\.checkpoint: (?:Recomputed values for|A different number of tensors was saved)",
                source="torch 2.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD204",
        "grad-tensor-to-numpy",
        "A tensor that requires grad was to become a NumPy array.",
        "The array would share memory with a tensor that is part of a graph.",
        "a tensor that requires grad was converted to NumPy",
        Remediation("Detach it first", ("x.detach().cpu().numpy()",)),
        (
            Signature(
                "Can't call numpy() on Tensor that requires grad",
                "RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
                "call numpy()",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD205",
        "backward-of-non-scalar",
        "backward was called on a tensor with several elements.",
        "A loss with reduction='none', or outputs of DataParallel, has one value per sample.",
        "backward was called on a tensor of several elements: the loss was not reduced to one number",
        Remediation("Take the mean or sum first", ("loss.mean().backward()",)),
        (
            Signature(
                "grad can be implicitly created only for scalar outputs",
                "RuntimeError: grad can be implicitly created only for scalar outputs",
                "scalar outputs",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD206",
        "deepcopy-of-non-leaf",
        "A tensor with a graph was deep-copied or sent to another process.",
        "Only leaf tensors support the deepcopy protocol; a non-leaf that requires grad cannot be pickled for "
        "another process.",
        "a tensor that is part of a graph was deep-copied or sent to another process",
        Remediation("Detach it first", ("copy.deepcopy(x.detach())",)),
        (
            Signature(
                "support the deepcopy protocol at the moment",
                "RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment.",
                "deepcopy",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad",
                "RuntimeError: Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
                "does not support crossing process boundaries.",
                "refusing to serialize",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD207",
        "nan-in-backward",
        "Anomaly mode found a nan in a gradient.",
        "sqrt, log, norm or division at zero have no finite gradient.",
        "{function} returned nan in backward: sqrt, log, norm or a division at zero, or an overflow in half "
        "precision",
        Remediation(
            "Add an epsilon inside, clamp the input, or use the stable function (log_softmax, logsumexp, "
            "BCEWithLogitsLoss)",
            ("torch.sqrt(x + 1e-12)", "x.clamp_min(1e-6).log()"),
        ),
        (
            Signature(
                "returned nan values in its",
                "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
                "returned values",
                r"Function '(?P<function>\w+)' returned nan values in its \d+th output",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
)

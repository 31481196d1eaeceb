"""The user's own code: devices, autograd, shapes, data types, losses, optimizers."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.trends import rising, series
from torch_doctor.model import Remediation

_LINT = "torch-doctor lint train.py"


def devices(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Two GPUs are another story than a GPU and the CPU: an attribute that does not follow .to()."""
    found = sorted(set(re.findall(r"\b(?:cuda:\d+|cpu|mps(?::\d+)?|xpu:\d+|meta)\b", seen.groups.get("devices", ""))))
    if len(found) >= 2 and "cpu" not in found:
        return with_message(
            verdict,
            f"tensors are on {' and '.join(found)}: a plain tensor attribute of a module does not follow .to(), or "
            "one part was placed on another GPU",
            Remediation(
                "Register constants with register_buffer so that they follow the module, and create tensors with "
                "device=x.device",
                ("self.register_buffer('idx', torch.arange(n))", "torch.arange(n, device=x.device)", _LINT),
            ),
        )
    gpu = next((d for d in found if d != "cpu"), "the GPU")
    return with_message(verdict, verdict.message.replace("?", gpu))


def nan(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Where an NLLLoss with the old arguments stands near it, raw scores went through log()."""
    if seen.has(r"size_average and reduce args will be deprecated|NLLLoss|\blog\(|nll_loss"):
        return with_message(
            verdict,
            "the loss became nan: log() of raw scores, which can be negative or zero, without a softmax (NLLLoss "
            "expects log-probabilities)",
            Remediation(
                "Feed log_softmax to NLLLoss, or raw scores to CrossEntropyLoss; write reduction= in place of "
                "size_average and reduce",
                (
                    "F.nll_loss(F.log_softmax(scores, dim=1), y)",
                    "nn.CrossEntropyLoss(ignore_index=255)(scores, y)",
                    _LINT,
                ),
            ),
        )
    growth = rising(seen.log, seen.index + 1, r"(?:grad[_ ]?norm|gnorm)\W{0,3}([\d.]+(?:e[+-]?\d+)?)", by=3)
    if growth:
        return with_message(
            verdict,
            f"the loss became nan after the gradient norm grew from {growth[0]:g} to {growth[1]:g}: gradients "
            "accumulate (zero_grad is missing), or they explode",
            Remediation(
                "Call zero_grad in each step, lower the learning rate, and clip gradients",
                (
                    "optimizer.zero_grad(set_to_none=True)",
                    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                    _LINT,
                ),
            ),
        )
    return verdict


register(
    Cause(
        "DEV201",
        "tensors-on-different-devices",
        "A tensor or module stayed on another device than the rest.",
        "Tensor.to() returns a copy, Module.to() works in place; plain tensor attributes do not follow the module; "
        "tensors and layers made in forward start on the CPU.",
        "a tensor or module was left on the CPU while the rest is on {gpu}: an input that was not moved, a plain "
        "tensor attribute, or a layer or tensor created in forward",
        Remediation(
            "Move inputs with x = x.to(device), use register_buffer for constants, create layers in __init__ and "
            "new tensors with device=x.device",
            ("x = x.to(device)", "self.register_buffer('mask', mask)", _LINT),
        ),
        (
            Signature(
                "Expected all tensors to be on the same device",
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 and cpu!",
                "tensors on the same device",
                r"Expected all tensors to be on the same device(?:[^\n]*?(?P<devices>(?:found at least two "
                r"devices|but got)[^\n!]*))?",
                source="torch 1.5 to 2.15, c10 device checks",
            ),
            Signature(
                "and weight type (",
                "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be "
                "the same",
                "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should "
                "be the same",
                r"Input type \(torch\.(?:(?P<incuda>cuda)\.)?(?P<a>\w+)\) and (?:weight|bias) type "
                r"\(torch\.(?(incuda)(?!cuda)|cuda\.)\w+\)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                " to have the same device",
                "RuntimeError: Expected tensor for argument #1 'input' to have the same device as tensor for "
                "argument #2 "
                "'weight'; but device 0 does not equal 1 (while checking arguments for cudnn_convolution)",
                "device type",
                r"Expected tensor for argument #\d+ '[^']*' to have the same device",
                source="torch 1.0 to 1.12",
            ),
            Signature(
                "Expected object of device type",
                "RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self' "
                "in call to _th_mm",
                "device type",
                r"Expected (?:object of (?:device type|backend) (?:cuda|CUDA|cpu|CPU) but got|tensor for argument "
                r"#\d+ '[^']*' to have the same device)",
                source="torch 1.0 to 1.6",
            ),
            Signature(
                "Expected object of backend",
                "RuntimeError: Expected object of backend CPU but got backend CUDA for argument #4 'mat1'",
                "backend CPU",
                source="torch 1.0 to 1.3",
            ),
            Signature(
                "Pointer argument (at ",
                "ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
                "Pointer argument",
                source="triton 2.x and 3.x",
            ),
            Signature(
                "indices should be either on",
                "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
                "indices on cpu",
                source="torch 1.4 to 2.15",
            ),
        ),
        judge=devices,
        explains=("CMP2",),
    ),
    Cause(
        "DEV202",
        "cuda-tensor-to-numpy",
        "A CUDA tensor was to become a NumPy array.",
        "NumPy has host memory only.",
        "a CUDA tensor was converted to NumPy: it has to be copied to the host first",
        Remediation("Detach it and copy it to the CPU", ("x.detach().cpu().numpy()",)),
        (
            Signature(
                "can't convert cuda:",
                "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                "to host memory first.",
                "convert cuda",
                r"can't convert (?:cuda:\d+ device type|CUDA) tensor to numpy",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "can't convert CUDA tensor to numpy",
                "TypeError: can't convert CUDA tensor to numpy. Use Tensor.cpu()",
                "convert",
                source="torch 0.4 to 1.5",
            ),
        ),
    ),
    Cause(
        "DEV203",
        "pinned-memory-of-cuda-tensor",
        "pin_memory met a CUDA tensor.",
        "The data set puts its samples on the GPU; only CPU tensors can be pinned.",
        "pin_memory=True got CUDA tensors: the data set or collate_fn puts its samples on the GPU already",
        Remediation(
            "Return CPU tensors from the data set and move the batch in the loop, or leave pin_memory off",
            ("batch = batch.to(device, non_blocking=True)",),
        ),
        (
            Signature(
                "cannot pin '",
                "RuntimeError: cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
                "pin memory",
                r"cannot pin '",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
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
            ("hidden = hidden.detach()", "(loss_a + loss_b).backward()", _LINT),
        ),
        (
            Signature(
                "Trying to backward through the graph a second time",
                "RuntimeError: Trying to backward through the graph a second time",
                "backward a second time",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "access saved tensors after they have already been freed",
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
            "and call all backward passes before the steps; anomaly mode names "
            "the operation",
            ("torch.autograd.set_detect_anomaly(True)", "x = x + y  # in place of x += y", _LINT),
        ),
        (
            Signature(
                "has been modified by an inplace operation",
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
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace(" (?)", "")),
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
                _LINT,
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
    Cause(
        "OPT201",
        "gradient-norm-grows",
        "zero_grad is missing: gradients accumulate over all steps.",
        "backward adds to .grad. Without zero_grad each step uses the sum of all gradients so far; the loss falls, "
        "then rises or becomes nan.",
        "the gradient norm grows with every step{figures}: gradients accumulate for ever, because zero_grad is "
        "missing",
        Remediation("Clear the gradients in each step", ("optimizer.zero_grad(set_to_none=True)", _LINT)),
        (
            Signature(
                "grad norm",
                "(no error) loss falls, then rises or becomes nan; grad norm grows every step",
                "grad norm 0.5",
                r"grad(?:ient)?[ _]norm (?:grows|increases|rises|keeps growing)",
                source="yastrebksv/TennisCourtDetector#7",
            ),
            Signature(
                "grad",
                "step 1 loss 2.1 grad_norm 1.0\nstep 2 loss 1.9 grad_norm 2.1\nstep 3 loss 1.8 grad_norm 3.3\nstep "
                "4 loss 2.4 grad_norm 4.7\nstep 5 loss 3.9 grad_norm 6.9\nstep 6 loss 7.0 grad_norm 11.2",
                "step 1 loss 2.1 gradnorm_clip on",
                r"(?P<trend>)\b(?:grad(?:ient)?[_ ]?norm|gnorm)\W{0,3}\d",
                source="common training loops",
            ),
        ),
        kind=DEGRADED,
        judge=lambda seen, verdict: _no_zero_grad(seen, verdict),
        explains=("LOS201",),
    ),
    Cause(
        "OPT202",
        "last-batches-never-stepped",
        "The last batches of every epoch never reach optimizer.step().",
        "With gradient accumulation, the number of batches is no multiple of the accumulation; zero_grad at the "
        "start of the epoch discards what is unfinished. Here an extra zero_grad is the fault.",
        "{what} batches of every epoch never reach optimizer.step(): the zero_grad at the start of the epoch "
        "discards the unfinished accumulation",
        Remediation(
            "Step on the last batch of an epoch as well",
            (
                "if (i + 1) % accumulate == 0 or i + 1 == len(loader):\n    optimizer.step(); optimizer.zero_grad()",
                _LINT,
            ),
        ),
        (
            Signature(
                "never reach",
                "(no error) last 24 of 120 batches of every epoch never reach optimizer.step()",
                "all batches reach optimizer.step()",
                r"(?P<what>(?:the )?last \d+ (?:of \d+ )?)batch\w*[^\n]*never reach\w*[^\n]*step",
                source="ultralytics/ultralytics#11217",
            ),
        ),
        kind=DEGRADED,
    ),
    Cause(
        "OPT203",
        "empty-parameter-list",
        "The optimizer got no parameters.",
        "model.parameters() of a module that keeps its layers in a plain list, or a generator that was used up.",
        "the optimizer got an empty parameter list: layers kept in a plain list or dict are not registered, or the "
        "generator of parameters was used up",
        Remediation(
            "Use nn.ModuleList or nn.ModuleDict, and list(model.parameters()) where it is used twice",
            ("self.layers = nn.ModuleList([...])",),
        ),
        (
            Signature(
                "optimizer got an empty parameter list",
                "ValueError: optimizer got an empty parameter list",
                "parameter list",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "OPT204",
        "scheduler-stepped-before-optimizer",
        "The scheduler was stepped before the optimizer.",
        "The first value of the schedule is skipped. GradScaler prints the same when it skips its first step, "
        "which is harmless.",
        "lr_scheduler.step() was called before optimizer.step(): the first value of the schedule is skipped "
        "(harmless where GradScaler skipped the step)",
        Remediation(
            "Call optimizer.step() first; with GradScaler step the scheduler only when the scale did not fall",
            ("optimizer.step(); scheduler.step()", _LINT),
        ),
        (
            Signature(
                "`lr_scheduler.step()` before `optimizer.step()`",
                "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
                "lr_scheduler.step()",
                source="torch 1.1 to 2.15",
            ),
        ),
        kind=HINT,
    ),
    Cause(
        "LOS205",
        "deprecated-loss-arguments",
        "A loss was made with size_average or reduce.",
        "They are deprecated; reduction= says the same.",
        "a loss was made with size_average or reduce, which are deprecated",
        Remediation("Write reduction='mean', 'sum' or 'none'", ("torch-doctor lint --fix train.py",)),
        (
            Signature(
                "size_average and reduce args will be deprecated",
                "UserWarning: size_average and reduce args will be deprecated, please use reduction='mean' instead.",
                "size_average",
                source="torch 0.4 to 2.15",
            ),
        ),
        kind=HINT,
    ),
    Cause(
        "LOS201",
        "loss-became-nan",
        "The loss became nan or infinite.",
        "log of zero or of a negative number, a division by zero, half-precision overflow, a learning rate that is "
        "too high, or a broken sample.",
        "the loss became {what}: log or division at zero, overflow in half precision, a learning rate that is too "
        "high, or a broken sample",
        Remediation(
            "Find the first operation with anomaly mode, check the inputs for nan, lower the learning rate, clip "
            "gradients, and use bf16 in place of fp16",
            (
                "torch.autograd.set_detect_anomaly(True)",
                "assert torch.isfinite(x).all()",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
        ),
        (
            Signature(
                "loss",
                "loss nan",
                "loss 0.5 nan_count 0",
                r"\b(?:\w*_?)loss\b['\"]?\W{0,4}(?:tensor\()?(?P<what>-?nan|-?inf(?:inity)?)\b",
                source="common training loops",
            ),
            Signature(
                "Loss is ",
                "Loss is nan, stopping training",
                "Loss is 0.4",
                r"[Ll]oss is (?P<what>nan|inf|NaN)",
                source="torchvision references, timm",
            ),
            Signature(
                "NaN or Inf found in input tensor",
                "WARNING: NaN or Inf found in input tensor.",
                "NaN in the docs",
                r"(?P<what>NaN or Inf) found in input tensor",
                source="tensorboardX",
            ),
            Signature(
                "Input contains NaN",
                "ValueError: Input contains NaN.",
                "Input contains",
                r"Input contains (?P<what>NaN)",
                source="scikit-learn",
            ),
        ),
        kind=DEGRADED,
        judge=nan,
    ),
    Cause(
        "LOS202",
        "shapes-do-not-match",
        "Two tensors' shapes do not fit.",
        "A layer that was built for another input size, a missing batch dimension, or a target of another shape.",
        "shapes do not fit: {what}",
        Remediation(
            "Print the shapes before that line; check the layer's in_features, the batch dimension and the order "
            "of dimensions",
            ("print(x.shape)",),
        ),
        (
            Signature(
                "shapes cannot be multiplied",
                "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)",
                "cannot be multiplied",
                r"(?P<what>mat1 and mat2 shapes cannot be multiplied \([^)]*\))",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "must match the size of tensor",
                "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
                "dimension 1",
                "size of tensor",
                r"(?P<what>The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at non-singleton "
                r"dimension \d+)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Sizes of tensors must match except in dimension",
                "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 8 but got size 7 "
                "for tensor number 1 in the list.",
                "Sizes of tensors",
                r"(?P<what>Sizes of tensors must match except in dimension[^\n]*)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "size mismatch, ",
                "RuntimeError: size mismatch, m1: [32 x 512], m2: [256 x 10]",
                "size mismatch for fc.weight",
                r"(?P<what>size mismatch, m1: [^\n]*)",
                source="torch 0.4 to 1.5",
            ),
            Signature(
                "to have ",
                "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 224, 224] to "
                "have 3 channels, but got 1 channels instead",
                "expected to have 3",
                r"(?P<what>expected input\[[^\]]*\] to have \d+ channels, but got \d+ channels)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "is invalid for input of size",
                "RuntimeError: shape '[32, -1, 7]' is invalid for input of size 100",
                "invalid",
                r"(?P<what>shape '\[[^\]]*\]' is invalid for input of size \d+)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "batch_size (",
                "ValueError: Expected input batch_size (32) to match target batch_size (31).",
                "batch_size (32)",
                r"(?P<what>Expected input batch_size \(\d+\) to match target batch_size \(\d+\))",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "is different to the input size",
                "ValueError: Using a target size (torch.Size([32])) that is different to the input size "
                "(torch.Size([32, 1])) is not allowed.",
                "different input",
                r"(?P<what>target size \(torch\.Size\(\[[^\]]*\]\)\) [^\n]*different to the input size "
                r"\(torch\.Size\(\[[^\]]*\]\)\)) is",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "Expected more than 1 value per channel when training",
                "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, "
                "512])",
                "more than 1 value",
                r"(?P<what>Expected more than 1 value per channel when training[^\n]*)",
                source="torch 0.4 to 2.15: the last batch has one sample, use drop_last",
            ),
            Signature(
                "Index tensor must have the same number of dimensions",
                "RuntimeError: Index tensor must have the same number of dimensions as input tensor",
                "Index tensor",
                r"(?P<what>Index tensor must have the same number of dimensions[^\n]*)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "Dimension out of range",
                "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)",
                "out of range",
                r"(?P<what>Dimension out of range \([^)]*\))",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "The expanded size of the tensor",
                "RuntimeError: The expanded size of the tensor (5) must match the existing size (3) at "
                "non-singleton dimension 0",
                "expanded size",
                r"(?P<what>The expanded size of the tensor \(\d+\) must match the existing size \(\d+\))",
                source="torch 0.4 to 2.15",
            ),
        ),
        explains=("CMP2",),
    ),
    Cause(
        "LOS203",
        "index-out-of-range",
        "An index is larger than the table: a token beyond the vocabulary, a label beyond the classes.",
        "On the CPU the text is plain; on the GPU it is a device-side assert.",
        "an index is out of range ({what}): a token id beyond the embedding's rows, a position beyond the maximal "
        "length, or a label beyond the classes",
        Remediation(
            "Compare the largest index with num_embeddings or the number of classes; resize the embedding after "
            "adding tokens",
            (
                "assert ids.max() < model.get_input_embeddings().num_embeddings",
                "model.resize_token_embeddings(len(tokenizer))",
            ),
        ),
        (
            Signature(
                "index out of range in self",
                "IndexError: index out of range in self",
                "list index out of range",
                r"(?P<what>index out of range in self)",
                source="torch 1.5 to 2.15, embedding on the CPU",
            ),
            Signature(
                "index out of range: Tried to access index",
                "RuntimeError: index out of range: Tried to access index 50257 out of table with 50256 rows.",
                "index out of range",
                r"(?P<what>Tried to access index \d+ out of table with \d+ rows)",
                source="torch 1.0 to 1.4",
            ),
            Signature(
                "is out of bounds for dimension",
                "IndexError: index 10 is out of bounds for dimension 0 with size 10",
                "bounds",
                r"(?P<what>index -?\d+ is out of bounds for (?:dimension|axis) \d+ with size \d+)",
                source="torch 0.4 to 2.15, NumPy",
            ),
        ),
    ),
    Cause(
        "LOS204",
        "scalar-was-indexed",
        "A 0-dim tensor was indexed, as in loss.data[0].",
        "Since torch 0.5 a scalar is a 0-dim tensor; loss.data[0] is old code.",
        "a 0-dim tensor was indexed, as the old loss.data[0] does",
        Remediation("Use item()", ("loss.item()", "torch-doctor lint --fix train.py")),
        (
            Signature(
                "invalid index of a 0-dim tensor",
                "IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python",
                "0-dim tensor",
                source="torch 0.5 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP201",
        "data-types-do-not-match",
        "Two tensors' data types do not fit.",
        "Half-precision weights with float inputs, or the other way round; double from NumPy; integer labels or "
        "inputs where floats are expected.",
        "data types do not fit: {what}",
        Remediation(
            "Run the forward pass under autocast, convert inputs with .float() or .to(model.dtype), and labels "
            "with .long()",
            (
                "torch.autocast('cuda', dtype=torch.bfloat16)",
                "x = x.to(next(model.parameters()).dtype)",
                "torch.from_numpy(a).float()",
            ),
        ),
        (
            Signature(
                "must have the same dtype",
                "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half",
                "the same dtype",
                r"(?P<what>[^\n:]*must have the same dtype[^\n]*)",
                source="torch 1.13 to 2.15",
            ),
            Signature(
                "expected scalar type",
                "RuntimeError: expected scalar type Float but found Half",
                "scalar type",
                r"(?P<what>expected (?:m1 and m2 to have the same dtype|scalar type \w+ but found \w+)[^\n]*)",
                source="torch 1.4 to 2.15",
            ),
            Signature(
                "Expected object of scalar type",
                "RuntimeError: Expected object of scalar type Long but got scalar type Float for argument #2 "
                "'target'",
                "scalar",
                r"(?P<what>Expected object of scalar type \w+ but got scalar type \w+)",
                source="torch 1.0 to 1.4",
            ),
            Signature(
                "and weight type (",
                "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should "
                "be the same",
                "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be "
                "the same",
                r"(?P<what>Input type \(torch\.cuda\.\w+\) and (?:weight|bias) type \(torch\.cuda\.\w+\)|Input "
                r"type \(torch\.[A-Z]\w+\) and (?:weight|bias) type \(torch\.[A-Z]\w+\))",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "and bias type (",
                "RuntimeError: Input type (float) and bias type (c10::Half) should be the same",
                "bias type",
                r"(?P<what>Input type \([\w:]+\) and (?:weight|bias) type \([\w:]+\))",
                source="torch 1.12 to 2.15",
            ),
            Signature(
                "not implemented for '",
                "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
                "not implemented for x",
                r"(?P<what>\"\w+\" not implemented for '\w+')",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "result type ",
                "RuntimeError: result type Float can't be cast to the desired output type Long",
                "result type",
                r"(?P<what>result type \w+ can't be cast to the desired output type \w+)",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                "Expected floating point type for target",
                "RuntimeError: Expected floating point type for target with class probabilities, got Long",
                "floating point",
                r"(?P<what>Expected floating point type for target[^\n]*)",
                source="torch 1.10 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP202",
        "unscaled-fp16-gradients",
        "GradScaler was used against its rules.",
        "unscale_ twice in a step, no inf checks recorded (no gradients), or half-precision weights.",
        "GradScaler refused: {what}",
        Remediation(
            "Keep the weights in float32, call unscale_ at most once per step and optimizer, and step only when "
            "there are gradients",
            ("scaler.unscale_(optimizer); clip_grad_norm_(...); scaler.step(optimizer); scaler.update()",),
        ),
        (
            Signature(
                "Attempting to unscale FP16 gradients",
                "ValueError: Attempting to unscale FP16 gradients.",
                "unscale",
                r"(?P<what>Attempting to unscale FP16 gradients)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "No inf checks were recorded for this optimizer",
                "AssertionError: No inf checks were recorded for this optimizer.",
                "inf checks",
                r"(?P<what>No inf checks were recorded for this optimizer)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "unscale_() has already been called",
                "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
                "unscale_()",
                r"(?P<what>unscale_\(\) has already been called)",
                source="torch 1.6 to 2.15",
            ),
        ),
    ),
)


def _no_zero_grad(seen: Seen, verdict: Verdict) -> Verdict | None:
    if "trend" not in seen.groups:
        return with_message(verdict, verdict.message.replace("?", ""))
    pattern = r"(?:grad(?:ient)?[_ ]?norm|gnorm)\W{0,3}([\d.]+(?:e[+-]?\d+)?)"
    growth = rising(seen.log, len(seen.log.lines), pattern, least=6, by=5)
    losses = series(seen.log, len(seen.log.lines), r"\bloss\b\W{0,3}([\d.]+(?:e[+-]?\d+)?)")
    if growth is None or (losses and losses[-1] <= losses[0] and not seen.has(r"\bloss\b\W{0,3}nan")):
        return None
    return with_message(verdict, verdict.message.replace("?", f", from {growth[0]:g} to {growth[1]:g}"))

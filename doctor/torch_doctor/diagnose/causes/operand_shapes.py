"""Shapes of tensors that an operation or a loss does not take together."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.shapes import meaning, stacked_by_program
from torch_doctor.diagnose.words import TOO_LONG, TRUNCATE
from torch_doctor.model import Remediation


def shapes(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The numbers in the text say which argument of which layer to change."""
    what = seen.groups["what"]
    if "stack expects" in what and not stacked_by_program(seen):
        return None  # samples of a batch
    if "size of tensor" in what and seen.has(TOO_LONG):
        return with_message(verdict, f"{verdict.message}: the text is longer than the model's positions", TRUNCATE)
    told = meaning(what)
    return verdict if told is None else with_message(verdict, verdict.message + told[0], told[1])


register(
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
                "must have same reduction dim",
                "RuntimeError('a and b must have same reduction dim, but got [2, 8] X [16, 4].')",
                "the same reduction",
                r"(?P<what>a and b must have same reduction dim, but got \[[^\]]*\] X \[[^\]]*\])",
                source="torch 2.0 to 2.15, fake tensors under torch.compile and export",
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
                "different to the input size",
                "ValueError: Using a target size (torch.Size([32])) that is different to the input size "
                "(torch.Size([32, 1])) is not allowed.",
                "different input",
                r"(?P<what>target size \(torch\.Size\(\[[^\]]*\]\)\) [^\n]*different to the input size "
                r"\(torch\.Size\(\[[^\]]*\]\)\)) is",
                source="torch 1.0 to 2.15",
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
            Signature(
                "input to ",
                "RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [32, 784]",
                "input to conv2d",
                r"(?P<what>Expected \dD \(unbatched\) or \dD \(batched\) input to \w+, but got input of size: \[[^\]]*\])",
                source="torch 1.11 to 2.15",
            ),
            Signature(
                "Expected hidden",
                "RuntimeError: Expected hidden[0] size (2, 16, 128), got [2, 32, 128]",
                "hidden size 128",
                r"(?P<what>Expected hidden(?:\[\d\])? size \([^)]*\), got [\[(][^\])]*[\])])",
                source="torch 0.4 to 2.15, RNNs: the last batch is smaller (drop_last), or another batch dimension",
            ),
            Signature(
                "target tensor expected",
                "RuntimeError: 0D or 1D target tensor expected, multi-target not supported",
                "target tensor",
                r"(?P<what>(?:0D or )?1D target tensor expected, multi-target not supported)",
                source="torch 0.4 to 2.15: one-hot targets, use argmax or squeeze",
            ),
            Signature(
                "only batches of spatial targets supported",
                "RuntimeError: only batches of spatial targets supported (3D tensors) but got targets of dimension: 4",
                "spatial targets",
                r"(?P<what>only batches of spatial targets supported \(3D tensors\) but got targets of (?:dimension|size): [^\n]*)",
                source="torch 0.4 to 2.15: masks with a channel, squeeze(1)",
            ),
            Signature(
                "-dimensional input for",
                "RuntimeError: Expected 4-dimensional input for 4-dimensional weight [64, 3, 7, 7], but got 3-dimensional "
                "input of size [3, 224, 224] instead",
                "4-dimensional input",
                r"(?P<what>Expected \d-dimensional input for \d-dimensional weight [^\n]*but got \d-dimensional input of size "
                r"\[[^\]]*\])",
                source="torch 0.4 to 1.12, convolutions",
            ),
            Signature(
                "Mismatch in shape: grad_output",
                "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([8]) and output[0] has a shape of "
                "torch.Size([8, 1]).",
                "Mismatch in shape",
                r"(?P<what>Mismatch in shape: grad_output\[[^\n]*)",
                source="torch 1.0 to 2.15, backward with a gradient",
            ),
            Signature(
                "divide axis of length",
                " Shape mismatch, can't divide axis of length 225 in chunks of 16",
                "axis of length 225",
                r"(?P<what>Shape mismatch, can't divide axis of length \d+ in chunks of \d+)",
                source="einops 0.3 to 0.8",
            ),
            Signature(
                "must be same as input size",
                "ValueError: Target size (torch.Size([16])) must be same as input size (torch.Size([16, 1]))",
                "must be same as",
                r"(?P<what>Target size \(torch\.Size\([^)]*\)\) must be same as input size \(torch\.Size\([^)]*\)\))",
                source="torch 0.4 to 2.15, BCEWithLogitsLoss",
            ),
            Signature(
                "sizes don't match: target",
                "RuntimeError: input and target batch or spatial sizes don't match: target [4, 512, 512], input [4, 21, "
                "256, 256]",
                "spatial sizes",
                r"(?P<what>[Ii]nput and target batch or spatial sizes don't match: target [^\n]*)",
                source="torch 1.0 to 2.15, NLLLoss2d",
            ),
            Signature(
                ("Kernel size can't be greater", "Output size is too small"),
                "RuntimeError: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't "
                "be greater than actual input size",
                "kernel size 3",
                r"(?P<what>Calculated padded input size per channel: \([^)]*\)\. Kernel size: \([^)]*\)\. Kernel size can't "
                r"be greater|Given input size: \([^)]*\)\. Calculated output size: \([^)]*\)\. Output size is too small)",
                source="torch 0.4 to 2.15, convolutions and pooling",
            ),
            Signature(
                "must be equal to input_size",
                "RuntimeError: input.size(-1) must be equal to input_size. Expected 10, got 20",
                "input_size=10",
                r"(?P<what>input\.size\(-1\) must be equal to input_size\. Expected \d+, got \d+)",
                source="torch 0.4 to 2.15, RNNs",
            ),
            Signature(
                "should contain ",
                "RuntimeError: running_mean should contain 64 elements not 128",
                "the list should contain 64 elements",
                r"(?P<what>running_mean should contain \d+ elements not \d+)",
                source="torch 0.4 to 2.15, BatchNorm",
            ),
            Signature(
                "weight tensor should be defined either for all",
                "RuntimeError: weight tensor should be defined either for all 5 classes or no classes but got weight tensor "
                "of shape: [4]",
                "weight tensor of shape",
                r"(?P<what>weight tensor should be defined either for all \d* ?(?:\d+ )?classes or no classes[^\n]*)",
                source="torch 0.4 to 2.15, NLLLoss and CrossEntropyLoss",
            ),
            Signature(
                "The shape of the mask",
                "IndexError: The shape of the mask [32, 10] at index 1 does not match the shape of the indexed tensor [32, "
                "12, 768] at index 1",
                "the mask",
                r"(?P<what>The shape of the mask \[[^\]]*\] at index \d+ does not match the shape of the indexed tensor "
                r"\[[^\]]*\])",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                ("number of dims don't match in permute", "length of the desired ordering of dimensions"),
                "RuntimeError: number of dims don't match in permute",
                "permute(0, 2, 1)",
                r"(?P<what>number of dims don't match in permute|permute\(\w+\): number of dimensions in the tensor input does "
                r"not match the length of the desired ordering of dimensions[^\n]*)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "must have the same number of elements. target nelement",
                "ValueError: Target and input must have the same number of elements. target nelement (16) != input nelement (32)",
                "the same number of elements",
                r"(?P<what>Target and input must have the same number of elements\. target nelement \(\d+\) != input nelement "
                r"\(\d+\))",
                source="torch 0.3 to 1.4, BCELoss",
            ),
            Signature(
                ("input must have ", "should also be "),
                "RuntimeError: input must have 3 dimensions, got 2",
                "input must have values",
                r"(?P<what>input must have \d dimensions, got \d|For (?:un)?batched \d-D input, hx (?:and cx )?should also be "
                r"(?:\d-D|\(\d-D, \d-D\)) (?:tensor )?but got [^\n]*)",
                source="torch 0.4 to 2.15, RNNs",
            ),
            Signature(
                "was expecting embedding dimension of",
                "AssertionError: was expecting embedding dimension of 512, but got 256",
                "embedding dimension of 512",
                r"(?P<what>was expecting embedding dimension of \d+, but got \d+)",
                source="torch 1.9 to 2.15, MultiheadAttention",
            ),
            Signature(
                "attn_mask is torch.Size",
                "RuntimeError: The shape of the 2D attn_mask is torch.Size([10, 10]), but should be (5, 5).",
                "attn_mask of size",
                r"(?P<what>The shape of the \dD attn_mask is torch\.Size\(\[[^\]]*\]\), but should be \([^)]*\))",
                source="torch 1.9 to 2.15, MultiheadAttention",
            ),
            Signature(
                "mat1 dim 1 must match mat2 dim 0",
                "RuntimeError: mat1 dim 1 must match mat2 dim 0",
                "mat1 must match",
                r"(?P<what>mat1 dim 1 must match mat2 dim 0)",
                source="torch 1.5 to 1.8",
            ),
            Signature(
                "stack expects each tensor to be equal size",
                '  File "train.py", line 31, in step\n    z = torch.stack(outs)\nRuntimeError: stack expects each tensor to be '
                "equal size, but got [16, 128] at entry 0 and [12, 128] at entry 3",
                "RuntimeError: stack expects a non-empty TensorList",
                r"(?P<what>stack expects each tensor to be equal size, but got \[[^\]]*\] at entry \d+ and \[[^\]]*\])",
                source="torch 1.5 to 2.15, torch.stack in the program",
            ),
            Signature(
                "Padding size should be less than",
                "RuntimeError: Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
                "(3, 3) at dimension 3 of input [1, 3, 64, 2]",
                "Padding size 3",
                r"(?P<what>Padding size should be less than the corresponding input dimension, but got: padding [^\n]*)",
                source="torch 0.4 to 2.15, reflection padding",
            ),
        ),
        explains=("CMP2",),
        judge=shapes,
    ),
    Cause(
        "LOS232",
        "tensor-not-contiguous-for-view",
        "view() was called on a tensor whose memory order does not allow it.",
        "After transpose, permute or a slice the elements do not lie in the order that view() needs.",
        "view() was called on a tensor that is not contiguous, after transpose, permute or a slice",
        Remediation("Use reshape(), or contiguous() first", ("x.reshape(n, -1)", "x.contiguous().view(n, -1)")),
        (
            Signature(
                "view size is not compatible with input tensor's size and stride",
                "RuntimeError: view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
                "view size",
                source="torch 1.0 to 2.15",
            ),
        ),
        explains=("CMP2",),
    ),
)

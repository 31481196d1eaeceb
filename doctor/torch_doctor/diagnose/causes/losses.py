"""Losses, shapes and indexes."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.trends import rising
from torch_doctor.diagnose.words import LINT, TOO_LONG, TRUNCATE
from torch_doctor.model import Remediation


def nan(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Where an NLLLoss with the old arguments stands near it, raw scores went through log()."""
    if "norm" in seen.groups:
        if not _stays_nan(seen):
            return None
        return with_message(
            verdict,
            "the gradient norm is nan and stays nan: the weights no longer change for the better (a loss of 0.0 beside "
            "it is no success); an overflow in fp16, a learning rate that is too high, or a batch without any label",
        )
    if "logged" in seen.groups:
        verdict = with_message(
            verdict, "a value that was logged for TensorBoard is nan or infinite: the loss, a metric or a gradient"
        )
    if "data" in seen.groups:
        return with_message(
            verdict,
            "scikit-learn was given NaN: predictions of a model whose loss or weights became nan, or missing values in "
            "the data",
            Remediation(
                "Find the first nan: in the table, in the features, or in the predictions",
                (
                    "print(df.isna().sum())",
                    "print(np.isfinite(x).all(axis=0))",
                    "assert torch.isfinite(scores).all()",
                ),
            ),
        )
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
                    LINT,
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
                    LINT,
                ),
            ),
        )
    return verdict


def _stays_nan(seen: Seen) -> bool:
    """A gradient that overflows once is GradScaler at work; one that is nan to the end of the log is a dead run."""
    norms = re.findall(r"grad[_ ]norm['\"]?\W{0,4}(nan|inf|[\d.]+)", seen.log.text)
    return norms[-3:] == ["nan"] * 3


def _index(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A tokenizer that warned of a text that is too long has named the reason."""
    if seen.has(TOO_LONG) or seen.near(r"position_embeddings|embed_positions|wpe\(", 12, 0):
        return with_message(
            verdict,
            f"a position is beyond the model's maximal length ({seen.groups['what']}): the text is too long",
            TRUNCATE,
        )
    return verdict


register(
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
                ("nan", "inf"),
                "loss nan",
                "loss 0.5 nan_count 0",
                r"\b(?:\w*_?)loss\b['\"]?\W{0,4}(?:tensor\()?(?P<what>-?nan|-?inf(?:inity)?)\b"
                r"(?!\W{1,3}(?:count|steps?|batches|checks?|checking|values?|grads?|losses|guards?|handling|detection|detected: 0)\b)",
                source="common training loops",
            ),
            Signature(
                "oss is ",
                "Loss is nan, stopping training",
                "Loss is 0.4",
                r"[Ll]oss is (?P<what>nan|inf|NaN)",
                source="torchvision references, timm",
            ),
            Signature(
                "NaN or Inf found in input tensor",
                "WARNING: NaN or Inf found in input tensor.",
                "NaN in the docs",
                r"(?P<logged>)(?P<what>NaN or Inf) found in input tensor",
                source="tensorboardX",
            ),
            Signature(
                "Input contains NaN",
                "ValueError: Input contains NaN.",
                "Input contains",
                r"(?P<data>Input contains )(?P<what>NaN)",
                source="scikit-learn",
            ),
            Signature(
                "The loss returned in",
                "ValueError: The loss returned in `training_step` is nan.",
                "The loss returned in `training_step` is 0.3.",
                r"The loss returned in `\w+` is (?P<what>nan|inf)",
                source="Lightning 1.x and 2.x, terminate_on_nan",
            ),
            Signature(
                ("nan", "inf"),
                "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.9e-05, 'epoch': 0.1}\n{'loss': 0.0, 'grad_norm': nan, "
                "'learning_rate': 1.8e-05, 'epoch': 0.2}\n{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.7e-05, "
                "'epoch': 0.3}",
                "{'loss': 2.1, 'grad_norm': 3.2}",
                r"(?P<norm>)grad[_ ]norm['\"]?\W{0,4}(?P<what>nan|inf)\b",
                source="Transformers 4.38 to 5, common training loops",
            ),
        ),
        kind=DEGRADED,
        judge=nan,
    ),
    Cause(
        "LOS231",
        "batch-norm-on-one-sample",
        "BatchNorm in training mode got one value per channel.",
        "The variance of one value does not exist. Most often the last batch of an epoch holds a single sample, or a "
        "model in training mode is used for one image.",
        "BatchNorm in training mode got a batch of one sample[[ ({what})]]: the last batch of the epoch, or an "
        "inference without eval()",
        Remediation(
            "Drop the last incomplete batch, or switch to evaluation mode for single samples",
            ("DataLoader(..., drop_last=True)", "model.eval()"),
        ),
        (
            Signature(
                "Expected more than 1 value per channel when training",
                "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, "
                "512])",
                "more than 1 value",
                r"Expected more than 1 value per channel when training(?:, got input size (?P<what>[^\n]*))?",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "LOS206",
        "probabilities-out-of-range",
        "BCELoss got values outside 0 to 1.",
        "It expects probabilities: raw scores need a sigmoid, and nan is outside as well.",
        "BCELoss got values outside 0 to 1: raw scores without a sigmoid, or nan",
        Remediation("Use BCEWithLogitsLoss on the raw scores", ("nn.BCEWithLogitsLoss()(scores, y)", LINT)),
        (
            Signature(
                "all elements of ",
                "RuntimeError: all elements of input should be between 0 and 1",
                "all elements of the list",
                r"all elements of (?:input|target) should be between 0 and 1",
                source="torch 1.0 to 2.15, CPU",
            ),
            Signature(
                "input_val >= zero && input_val <= one",
                "/pytorch/aten/src/ATen/native/cuda/Loss.cu:92: operator(): block: [0,0,0], thread: [3,0,0] "
                "Assertion `input_val >= zero && input_val <= one` failed.",
                "input_val",
                source="torch 1.5 to 2.15, CUDA",
            ),
        ),
        explains=("GPU22", "GPU23"),
    ),
    Cause(
        "LOS233",
        "no-deterministic-implementation",
        "An operation has no deterministic form, and deterministic algorithms are demanded.",
        "torch.use_deterministic_algorithms(True) turns what is not reproducible into an error; cuBLAS needs a setting of its own.",
        "{what} is not deterministic, and use_deterministic_algorithms(True) demands that",
        Remediation(
            "Set CUBLAS_WORKSPACE_CONFIG before the start where cuBLAS is named; else allow this operation with warn_only",
            (
                "export CUBLAS_WORKSPACE_CONFIG=:4096:8",
                "torch.use_deterministic_algorithms(True, warn_only=True)",
            ),
        ),
        (
            Signature(
                "does not have a deterministic implementation",
                "RuntimeError: cumsum_cuda_kernel does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'.",
                "deterministic implementation",
                r"(?P<what>\w+) does not have a deterministic implementation",
                source="torch 1.8 to 2.15",
            ),
            Signature(
                "Deterministic behavior was enabled",
                "RuntimeError: Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or `at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses CuBLAS and you have CUDA >= 10.2.",
                "deterministic behavior",
                r"Deterministic behavior was enabled[^\n]*because it uses (?P<what>CuBLAS)",
                source="torch 1.8 to 2.15, CUDA 10.2 to 13",
            ),
        ),
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
                "Tried to access index",
                "RuntimeError: index out of range: Tried to access index 50257 out of table with 50256 rows.",
                "index out of range",
                r"(?P<what>Tried to access index \d+ out of table with \d+ rows)",
                source="torch 1.0 to 1.4",
            ),
            Signature(
                "is out of bounds for ",
                "IndexError: index 10 is out of bounds for dimension 0 with size 10",
                "bounds",
                r"(?P<what>index -?\d+ is out of bounds for (?:dimension|axis) \d+ with size \d+)",
                source="torch 0.4 to 2.15, NumPy",
            ),
        ),
        judge=_index,
    ),
    Cause(
        "LOS204",
        "scalar-was-indexed",
        "A 0-dim tensor was indexed, as in loss.data[0].",
        "Since torch 0.4 a scalar is a 0-dim tensor; loss.data[0] is older code.",
        "a 0-dim tensor was indexed or looped over, as the old loss.data[0] does",
        Remediation("Use item()", ("loss.item()", "torch-doctor lint --fix train.py")),
        (
            Signature(
                "invalid index of a 0-dim tensor",
                "IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python",
                "0-dim tensor",
                source="torch 0.5 to 2.15",
            ),
            Signature(
                "iteration over a 0-d tensor",
                "TypeError: iteration over a 0-d tensor",
                "iteration over a tensor",
                source="torch 0.4 to 2.15",
            ),
        ),
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
        "LOS249",
        "ctc-lengths-do-not-fit",
        "CTC loss got lengths that do not fit its inputs.",
        "Input lengths count the model's output frames, after its strides, and no target may be longer than its input.",
        "the lengths that CTC loss got do not fit: {what}",
        Remediation(
            "Compute the lengths after the model's strides, in frames of its output (T, N, C)",
            (
                "input_lengths = (lengths - 1) // stride + 1",
                "assert log_probs.size(0) >= input_lengths.max() and (target_lengths <= input_lengths).all()",
            ),
        ),
        (
            Signature(
                "_lengths to ",
                "RuntimeError: Expected input_lengths to have value at most 50, but got value 64 (while checking arguments for "
                "ctc_loss_gpu)",
                "lengths to sort",
                r"(?P<what>Expected (?:input|target)_lengths to have [^\n]*but got value -?\d+)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "LOS209",
        "stopped-on-nan-loss",
        "The program's own check ended the run, since the loss was nan or infinite.",
        "log of zero or of a negative number, a division by zero, half-precision overflow, a learning rate that is too high, "
        "or a broken sample. The check did its work; the fault lies before it.",
        "the program stopped itself, since the loss became {what}: log or division at zero, overflow in half precision, a "
        "learning rate that is too high, or a broken sample",
        Remediation(
            "Find the first operation with anomaly mode, check the inputs for nan, lower the learning rate, clip gradients, and "
            "use bf16 in place of fp16",
            (
                "torch.autograd.set_detect_anomaly(True)",
                "assert torch.isfinite(x).all()",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            ),
        ),
        (
            Signature(
                "oss is ",
                "AssertionError: loss is NaN, aborting",
                "AssertionError: loss is 0.3",
                r"^\w*(?:Error|Exception): [^\n]{0,60}\b[Ll]oss is (?P<what>nan|NaN|inf)\b",
                source="common training loops",
            ),
        ),
        judge=nan,
        explains=("LOS201",),
    ),
)

"""CUDA kernels and libraries that fail."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_BLOCKING = ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py")


_LATER = "; the Python line of the traceback is only where the error surfaced"
#: what an assertion of a kernel says -> (what it means, remedy). Source: ATen/native/cuda of torch 1.0 to 2.15, 2026-11
_ASSERTIONS: tuple[tuple[tuple[str, ...], str, Remediation | None], ...] = (
    (
        ("n_classes", "nll_loss", "cur_target"),
        "a label lies outside 0 to the number of classes (assertion t >= 0 && t < n_classes)",
        None,
    ),
    (
        ("srcIndex", "srcSelectDimSize"),
        "an index is larger than the table it looks up (assertion srcIndex < srcSelectDimSize): a token id beyond "
        "the embedding's rows, or a position beyond the maximal length",
        Remediation(
            "Compare the largest id with the embedding's size, resize the embedding after tokens were added, and "
            "cut sequences to the model's maximal length; run on the CPU, or with CUDA_LAUNCH_BLOCKING=1, for the "
            "true line",
            (
                "assert ids.min() >= 0 and ids.max() < model.get_input_embeddings().num_embeddings",
                "model.resize_token_embeddings(len(tokenizer))",
                "tokenizer(text, truncation=True, max_length=model.config.max_position_embeddings)",
                _BLOCKING[0],
            ),
        ),
    ),
    (
        ("idx_dim", "ScatterGather", "indexValue"),
        "an index of gather or scatter is out of bounds: a label such as -100 that was not masked before, or an "
        "index beyond the dimension",
        Remediation(
            "Mask the ignored labels before gather or scatter, and check the range of the index; run on the CPU, or "
            "with CUDA_LAUNCH_BLOCKING=1, for the true line",
            (
                "index = index.masked_fill(index == -100, 0)",
                "assert index.min() >= 0 and index.max() < x.size(dim)",
                _BLOCKING[0],
            ),
        ),
    ),
    (
        ("sizes[i]", "index out of bounds"),
        "an index of x[index] is out of bounds on the GPU (assertion -sizes[i] <= index && index < sizes[i])",
        Remediation(
            "Check the range of the index tensor against the size of the dimension that it indexes; run on the CPU, "
            "or with CUDA_LAUNCH_BLOCKING=1, for the true line",
            ("assert index.max() < x.size(0) and index.min() >= -x.size(0)", _BLOCKING[0]),
        ),
    ),
)
#: assertions that another cause explains: values that are nan or no probabilities
_OF_VALUES = ("probability tensor", "input_val >= zero", "cumdist", "isnan", "sampleMultinomial")


def _assertion(seen: Seen, verdict: Verdict) -> Verdict | None:
    text = seen.log.lines[seen.index].text
    if any(word in text for word in _OF_VALUES):
        return None
    for words, meaning, remedy in _ASSERTIONS:
        if any(word in text for word in words):
            return with_message(verdict, meaning + _LATER, remedy)
    if "target" in seen.groups:
        return with_message(verdict, f"label {seen.groups['target']} is outside the range of the classes")
    what = (
        f"assertion {seen.groups['assertion']} failed in a CUDA kernel"
        if "assertion" in seen.groups
        else "a CUDA kernel's assertion failed"
    )
    return with_message(verdict, verdict.message.replace("?", what, 1))


def _launch(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A time-out comes from the display's watchdog, too many resources from the kernel's own shape."""
    what = seen.groups.get("what", "")
    if "timed out" in what:
        return with_message(
            verdict,
            "a kernel ran longer than the display's watchdog allows (the launch timed out and was terminated): the "
            "GPU also drives a desktop",
            Remediation(
                "Train on a GPU without a display or stop the desktop; make the kernel shorter (a smaller batch) "
                "meanwhile",
                (
                    "nvidia-smi --query-gpu=index,name,display_active --format=csv",
                    "sudo systemctl isolate multi-user.target  # ends the desktop and what runs in it",
                    "CUDA_VISIBLE_DEVICES=1 python train.py",
                ),
            ),
        )
    if "too many resources" in what or "invalid configuration" in what:
        return with_message(
            verdict,
            f"CUDA refused a kernel's launch ({what}): its threads need more registers than a block may have, or "
            "its grid is empty or too large for this GPU",
            Remediation(
                "Find the kernel; lower its block size or rebuild the extension for this GPU, and look for a tensor "
                "with an empty or a huge dimension",
                (
                    _BLOCKING[0],
                    "TORCH_CUDA_ARCH_LIST=8.9 pip install --no-build-isolation --force-reinstall --no-deps EXTENSION",
                ),
            ),
        )
    return verdict


def _captured(seen: Seen, verdict: Verdict) -> Verdict | None:
    """An output that the next run overwrote is another fault than a call that breaks the capture."""
    if "overwritten" not in seen.log.lines[seen.index].text:
        return verdict
    return with_message(
        verdict,
        "an output of a CUDA graph was used after the next run of the compiled function had overwritten it (mode "
        "reduce-overhead or max-autotune): all its runs share one memory",
        Remediation(
            "Clone outside the compiled function what is kept over a step, call mark_step_begin before each step "
            "(with gradient accumulation before each micro-batch), or compile without CUDA graphs",
            (
                "out = compiled(x).clone()",
                "torch.compiler.cudagraph_mark_step_begin()",
                "torch.compile(model)  # in place of mode='reduce-overhead'",
                "torch.compile(model, mode='max-autotune-no-cudagraphs')",
            ),
        ),
    )


register(
    Cause(
        "GPU221",
        "device-side-assert",
        "A kernel's assertion failed: an index, most often a label, is out of range.",
        "Kernels run asynchronously: the Python line of the traceback is any later CUDA call. After the assert "
        "every CUDA call of the process fails, with other texts, too.",
        "{what}: an index or label is out of range on the GPU; the Python line of the traceback is only where the "
        "error surfaced",
        Remediation(
            "Check the labels' minimum and maximum against the number of classes (mask values such as 255 need "
            "ignore_index), or the indexes "
            "against the embedding's size; run with CUDA_LAUNCH_BLOCKING=1 or on the CPU to get the true line",
            (
                _BLOCKING[0],
                "assert labels.min() >= 0 and labels.max() < num_classes",
                "nn.CrossEntropyLoss(ignore_index=255)",
            ),
        ),
        (
            Signature(
                "Assertion `t >= 0 && t < n_classes` failed",
                "../aten/src/ATen/native/cuda/NLLLoss2d.cu:103: nll_loss2d_forward_kernel: block: [5,0,0], thread: "
                "[996,0,0] Assertion `t >= 0 && t < n_classes` failed.",
                "assertion passed",
                source="torch 1.0 to 2.15, NLLLoss2d.cu and Loss.cu",
            ),
            Signature(
                "Assertion `",
                "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectSmallIndex: block: [1,0,0], "
                "thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
                "Assertion `x` in the docs",
                r"\.(?:cu|cuh|cpp|h):\d+: [^\n]*block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion "
                r"`(?P<assertion>[^`]+)`",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "device-side assert triggered",
                "RuntimeError: CUDA error: device-side assert triggered",
                "assert",
                source="CUDA 9 to 13",
            ),
            Signature(
                "Target ",
                "IndexError: Target 3 is out of bounds.",
                "Target 3 reached",
                r"IndexError: Target (?P<target>-?\d+) is out of bounds",
                source="torch 1.3 to 2.15, CPU",
            ),
        ),
        explains=("GPU22", "GPU23", "MEM2", "DST"),
        judge=lambda seen, verdict: _assertion(seen, verdict),
    ),
    Cause(
        "GPU222",
        "illegal-memory-access",
        "A kernel read or wrote memory that is not its own.",
        "A custom kernel, a wrong index or stride, or a bug of a library. It is reported at a later call.",
        "a CUDA kernel accessed memory that is not its own ({what}); the Python line is only where it surfaced",
        Remediation(
            "Find the kernel with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; check custom kernels, index ranges "
            "and recently changed extensions",
            _BLOCKING,
        ),
        (
            Signature(
                "an illegal memory access was encountered",
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                "memory access pattern",
                r"(?P<what>an illegal memory access was encountered)",
                source="CUDA 9 to 13",
            ),
            Signature(
                ("misaligned address", "illegal instruction", "invalid program counter", "global/shared address"),
                "RuntimeError: CUDA error: misaligned address",
                "aligned address",
                r"CUDA error: (?P<what>misaligned address|an illegal instruction was encountered|invalid program "
                r"counter|operation not supported on global/shared address space)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "illegal instruction was encountered",
                "RuntimeError: CUDA error: an illegal instruction was encountered",
                "illegal instruction",
                r"CUDA error: (?P<what>an illegal instruction was encountered)",
                source="CUDA 9 to 13",
            ),
        ),
        explains=("DST", "GPU23"),
        kind=VAGUE,
        decide="CUDA_LAUNCH_BLOCKING=1 python train.py",
    ),
    Cause(
        "GPU223",
        "launch-failure",
        "A CUDA kernel failed to run.",
        "Unspecified launch failure: a fault in the kernel, or a GPU that failed; dmesg tells which by its Xid.",
        "CUDA reported '{what}': a kernel fault, or the GPU itself; the Xid in dmesg tells which",
        Remediation(
            "Look for an Xid in the host's dmesg; without one, find the kernel",
            ("dmesg -T | grep -i xid", *_BLOCKING),
        ),
        (
            Signature(
                "unspecified launch failure",
                "RuntimeError: CUDA error: unspecified launch failure",
                "launch failed",
                r"(?P<what>unspecified launch failure)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "the launch timed out and was terminated",
                "RuntimeError: CUDA error: the launch timed out and was terminated",
                "the launch timed",
                r"(?P<what>the launch timed out and was terminated)",
                source="CUDA 9 to 13, a display on the GPU",
            ),
            Signature(
                "CUDA error: unknown error",
                "RuntimeError: CUDA error: unknown error",
                "unknown error",
                r"CUDA error: (?P<what>unknown error)",
                source="CUDA 9 to 13",
            ),
            Signature(
                ("too many resources requested for launch", "CUDA error: invalid "),
                "RuntimeError: CUDA error: too many resources requested for launch",
                "too many resources",
                r"CUDA error: (?P<what>too many resources requested for launch|invalid configuration "
                r"argument|invalid argument)",
                source="CUDA 9 to 13",
            ),
        ),
        kind=VAGUE,
        judge=_launch,
        decide="dmesg -T | grep -i xid",
    ),
    Cause(
        "GPU225",
        "unsupported-during-graph-capture",
        "A CUDA call that is not allowed while a CUDA graph is captured.",
        "Synchronising, allocating outside the pool, or moving data to the host breaks the capture.",
        "a CUDA call was made that is not allowed while a CUDA graph is captured (item(), a print, a copy to the "
        "host, an allocation)",
        Remediation(
            "Take the call out of the captured part, warm up before the capture, or switch CUDA graphs off",
            (
                "torch.compile(model)  # in place of mode='reduce-overhead'",
                "TORCHINDUCTOR_CUDAGRAPHS=0 python train.py",
            ),
        ),
        (
            Signature(
                "operation not permitted when stream is capturing",
                "RuntimeError: CUDA error: operation not permitted when stream is capturing",
                "stream is capturing video",
                source="CUDA 11 to 13",
            ),
            Signature(
                "accessing tensor output of CUDAGraphs that has been overwritten",
                "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
                "subsequent run.",
                "CUDAGraphs overwritten",
                source="torch 2.1 to 2.15",
            ),
            Signature(
                "previous error during capture",
                "RuntimeError: CUDA error: operation failed due to a previous error during capture",
                "error during capture of the screen",
                r"operation failed due to a previous error during capture",
                source="CUDA 11 to 13",
            ),
        ),
        judge=_captured,
    ),
)

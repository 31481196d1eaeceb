"""CUDA kernels and libraries that fail."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_BLOCKING = ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py")


_CUBLAS: dict[str, str] = {
    "CUBLAS_STATUS_ALLOC_FAILED": "no GPU memory is left for its handle, or an earlier index error broke the context",
    "CUBLAS_STATUS_NOT_INITIALIZED": "no GPU memory is left for its handle, or an earlier index error broke the "
    "context",
    "CUBLAS_STATUS_EXECUTION_FAILED": "a kernel failed, often after an index out of range or with a mixed install",
    "CUBLAS_STATUS_INVALID_VALUE": "a second cuBLAS on LD_LIBRARY_PATH, or shapes that do not fit",
    "CUBLAS_STATUS_NOT_SUPPORTED": "the data type or shape is not supported on this GPU",
    "CUBLAS_STATUS_ARCH_MISMATCH": "this GPU's architecture is not supported",
    "CUBLAS_STATUS_INTERNAL_ERROR": "an index error before it, a mixed install, or GPU memory",
}


def _assertion(seen: Seen, verdict: Verdict) -> Verdict | None:
    text = seen.log.lines[seen.index].text
    if "n_classes" in text or "nll_loss" in text:
        what = "a label lies outside 0 to the number of classes (assertion t >= 0 && t < n_classes)"
        rest = "; the Python line of the traceback is only where the error surfaced"
        return with_message(verdict, what + rest)
    if "target" in seen.groups:
        return with_message(verdict, f"label {seen.groups['target']} is outside the range of the classes")
    what = (
        f"assertion {seen.groups['assertion']} failed in a CUDA kernel"
        if "assertion" in seen.groups
        else "a CUDA kernel's assertion failed"
    )
    return with_message(verdict, verdict.message.replace("?", what, 1))


register(
    Cause(
        "GPU221",
        "device-side-assert",
        "A kernel's assertion failed: an index, most often a label, is out of range.",
        "Kernels run asynchronously: the Python line of the traceback is any later CUDA call. After the assert "
        "every CUDA call of the process "
        "fails, with other texts, too.",
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
                "[996,0,0] Assertion `t >= 0 && t < "
                "n_classes` failed.",
                "assertion passed",
                source="torch 1.0 to 2.15, NLLLoss2d.cu and Loss.cu",
            ),
            Signature(
                "Assertion `",
                "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectSmallIndex: block: [1,0,0], "
                "thread: [32,0,0] Assertion `srcIndex < "
                "srcSelectDimSize` failed.",
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
        ),
    ),
    Cause(
        "GPU231",
        "cublas-failed",
        "cuBLAS failed: out of GPU memory for its handle, wrong shapes or labels, or a library of another version.",
        "cuBLAS has few words for many causes.",
        "cuBLAS failed ({what}): {why}",
        Remediation(
            "Run the same batch on the CPU for the true message, check shapes and label ranges, watch the GPU's "
            "free memory, and take other CUDA "
            "libraries out of LD_LIBRARY_PATH",
            ("CUDA_LAUNCH_BLOCKING=1 python train.py", "unset LD_LIBRARY_PATH", "pip list | grep -i nvidia-cublas"),
        ),
        (
            Signature(
                "CUBLAS_STATUS_",
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "CUBLAS_WORKSPACE_CONFIG=:4096:8",
                r"(?P<what>CUBLAS_STATUS_(?!SUCCESS)\w+)",
                source="torch 1.0 to 2.15",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(
                "?", _CUBLAS.get(seen.groups.get("what", ""), "shapes, labels, GPU memory or a mixed install")
            ),
        ),
        decide="run the batch on the CPU",
    ),
    Cause(
        "GPU232",
        "cudnn-failed",
        "cuDNN failed: no GPU memory for its workspace, another cuDNN in the way, or an unsupported shape.",
        "cuDNN has few words for many causes; a second cuDNN on LD_LIBRARY_PATH is the most frequent for version "
        "texts.",
        "cuDNN failed ({what}): {why}",
        Remediation(
            "Take other CUDA libraries out of LD_LIBRARY_PATH, leave GPU memory for its workspace (a smaller "
            "batch), and retry without it",
            (
                "unset LD_LIBRARY_PATH",
                'python -c "import torch; print(torch.backends.cudnn.version())"',
                "torch.backends.cudnn.enabled = False",
            ),
        ),
        (
            Signature(
                "CUDNN_STATUS_",
                "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                "CUDNN_STATUS_SUCCESS",
                r"(?P<what>CUDNN_STATUS_(?!SUCCESS)\w+)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "cuDNN version incompatibility",
                "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, 1, 0) but found "
                "runtime version (8, 9, 2).",
                "cuDNN version 90100",
                r"(?P<what>cuDNN version incompatibility)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "Unable to find a valid cuDNN algorithm to run convolution",
                "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
                "algorithm to run",
                r"(?P<what>Unable to find a valid cuDNN algorithm to run convolution)",
                source="torch 1.3 to 2.15",
            ),
            Signature(
                "was unable to find an engine",
                "RuntimeError: GET was unable to find an engine to execute this computation",
                "find an engine",
                r"(?P<what>GET was unable to find an engine to execute this computation|FIND was unable to find an "
                r"engine)",
                source="torch 2.0 to 2.3",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(
                "?",
                "another cuDNN than torch's is loaded"
                if "version" in seen.groups.get("what", "")
                else "GPU memory for its workspace is short, or another cuDNN is loaded",
            ),
        ),
    ),
)

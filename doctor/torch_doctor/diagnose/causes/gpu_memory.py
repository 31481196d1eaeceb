"""CUDA out of memory, read number by number."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.diagnose.oom import bare, oom
from torch_doctor.model import Remediation

_OOM = (
    r"(?:CUDA|HIP|MPS backend|XPU)?\s?out of memory\b[^\n]*?[Tt]ried to allocate "
    r"(?P<size>[\d.]+ ?[KMGT]i?B|\d+ bytes)[^\n]*"
)


register(
    Cause(
        "MEM201",
        "cuda-out-of-memory",
        "A CUDA allocation failed; the figures in the text say who has the memory.",
        "The text names this process, the others, what PyTorch reserved and did not use, and what was asked for. "
        "Each pattern has its own remedy: a smaller batch does not help against another process or a growing graph.",
        "the GPU's memory is full: this process asked for [[{size} ]]more",
        Remediation(
            "Use a smaller batch with gradient accumulation, bf16 autocast, activation checkpointing, or "
            "scaled_dot_product_attention",
            (
                "torch.autocast('cuda', torch.bfloat16)",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
            ),
        ),
        (
            Signature(
                "out of memory",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
                "capacity of 10.75 GiB of which 14.62 MiB is free.",
                "RuntimeError: CUDA error: out of memory",
                _OOM,
                source="torch 1.0 to 2.15, c10/cuda/CUDACachingAllocator.cpp",
            ),
            Signature(
                "No executable batch size found",
                "RuntimeError: No executable batch size found, reached zero.",
                "executable found",
                source="Accelerate 0.4 to 1.13, find_executable_batch_size: out of memory with one sample",
            ),
            Signature(
                "would exceed allowed memory",
                "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
                "memory)\nCurrently allocated : 22.1 GiB\n"
                "Requested : 2.00 GiB\ntried to allocate",
                "tried to allocate a name",
                r"Allocation on device (?:\d+ )?would exceed allowed memory",
                source="torch 2.0 to 2.15 with cudaMallocAsync",
            ),
            Signature(
                "Allocation on device",
                "torch.OutOfMemoryError: Allocation on device",
                "Allocation on host",
                r"OutOfMemoryError: Allocation on device",
                source="torch 2.1 to 2.15 with cudaMallocAsync",
            ),
        ),
        explains=("GPU2", "DST", "SES2", "WRK2"),
        judge=oom,
        decide="nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv",
    ),
    Cause(
        "MEM202",
        "cuda-driver-out-of-memory",
        "The driver reported out of memory outside PyTorch's allocator.",
        "A context, pinned memory or the mapping of it (BAR1) could not be had. Orphaned workers of a DDP run with "
        "pin_memory keep BAR1 and contexts, while nvidia-smi shows free memory.",
        "the CUDA driver is out of memory outside PyTorch's allocator: GPU memory or BAR1 space (pinned memory) is "
        "used up, most often by orphaned worker processes of an earlier run",
        Remediation(
            "Find and end orphaned processes that hold the device; nvidia-smi -q shows BAR1 beside the framebuffer",
            ("fuser -v /dev/nvidia*", "nvidia-smi -q -d MEMORY | grep -A3 BAR1", "kill PID"),
        ),
        (
            Signature(
                "NCCL WARN",
                "NCCL WARN Cuda failure 'out of memory'",
                "NCCL WARN Cuda failure 'invalid argument'",
                r"NCCL WARN[^\n]*Cuda failure (?:\d+ )?'out of memory'",
                source="NCCL 2.x",
            ),
            Signature(
                "CUDA error: out of memory",
                "RuntimeError: CUDA error: out of memory",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "Triton Error [CUDA]: out of memory",
                "RuntimeError: Triton Error [CUDA]: out of memory",
                "Triton Error [CUDA]: invalid argument",
                source="triton 2.x and 3.x, loading a kernel",
            ),
            Signature(
                "cuda runtime error (2)",
                "RuntimeError: cuda runtime error (2) : out of memory at "
                "/pytorch/aten/src/THC/generic/THCStorage.cu:58",
                "cuda runtime error (59)",
                source="torch 0.4 to 1.4",
            ),
            Signature(
                "CUDA_ERROR_OUT_OF_MEMORY",
                "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
                "CUDA_ERROR_UNKNOWN",
                source="CUDA driver API",
            ),
            Signature(
                "CUDA driver error: out of memory",
                "RuntimeError: CUDA driver error: out of memory",
                "CUDA driver error: invalid argument",
                source="torch 2.1 to 2.15, expandable segments",
            ),
        ),
        explains=("DST", "CMP222"),
        judge=bare,
        decide="nvidia-smi -q -d MEMORY; fuser -v /dev/nvidia*",
    ),
)

"""GPU memory that runs out where the text names no CUDA out of memory: MIG slices, inference engines."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _mig(seen: Seen, verdict: Verdict) -> Verdict | None:
    if not seen.has(r"\bMIG\b"):
        return verdict
    return with_message(
        verdict,
        "the GPU's memory is full, on a MIG slice: NVML does not answer there, so that torch fails an assertion in place "
        "of saying out of memory",
    )


register(
    Cause(
        "MEM231",
        "out-of-memory-hidden-by-nvml",
        "torch asked NVML for figures for its out-of-memory text, and NVML failed.",
        "The allocation failed first. On MIG slices, in containers without rights to NVML, on Jetson and with a MIG device "
        "named in CUDA_VISIBLE_DEVICES, NVML refuses, and the assertion hides what happened. It is not a bug to report.",
        "the GPU's memory is full: NVML, which torch asks for the figures, failed (a MIG slice, a container without NVML, "
        "or CUDA_VISIBLE_DEVICES that names another GPU), and its assertion hides the out of memory",
        Remediation(
            "Use less memory (a smaller batch, bf16, activation checkpointing) or a larger MIG slice; see how much the "
            "slice has, and switch expandable segments off where they ask NVML",
            (
                "nvidia-smi -L",
                'python -c "import torch; print(torch.cuda.mem_get_info())"',
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
            ),
        ),
        (
            Signature(
                "NVML_SUCCESS == ",
                'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830, '
                "please report a bug to PyTorch.",
                "NVML_SUCCESS",
                r"NVML_SUCCESS == (?:r|\w+) INTERNAL ASSERT FAILED[^\n]*",
                source="torch 2.0 to 2.15, c10/cuda/CUDACachingAllocator.cpp",
            ),
        ),
        judge=_mig,
        explains=("DST", "SES2"),
        decide='python -c "import torch; print(torch.cuda.mem_get_info())"',
    ),
    Cause(
        "MEM232",
        "engine-memory-share-not-free",
        "An inference engine wants a share of the GPU that is not free, or has none left for its cache.",
        "vLLM and its like reserve a share of the whole GPU at the start. Another process, or an engine of an earlier run "
        "that still lives, holds it; or the weights leave nothing for the key-value cache.",
        "the inference engine does not get the share of GPU memory that it reserves[[ (free: {free} GiB, wanted: {want} "
        "GiB)]]: another process, or the engine of an earlier run, holds it",
        Remediation(
            "See who holds the GPU and end what is left of earlier runs, or ask for a smaller share",
            (
                "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv",
                "kill PID",
                "vllm serve MODEL --gpu-memory-utilization 0.7",
            ),
        ),
        (
            Signature(
                "is less than desired GPU memory utilization",
                "ValueError: Free memory on device (5.11/23.52 GiB) on startup is less than desired GPU memory utilization "
                "(0.9, 21.17 GiB).",
                "desired GPU memory utilization 0.9",
                r"Free memory on device [^\n(]*\((?P<free>[\d.]+)/[\d.]+ GiB\) on startup is less than desired GPU memory "
                r"utilization \([\d.]+, (?P<want>[\d.]+) GiB\)",
                source="vLLM 0.8 to 0.14",
            ),
            Signature(
                ("No available memory for the cache blocks", "larger than the maximum number of tokens"),
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                "initializing the engine.",
                "cache blocks",
                r"(?P<cache>No available memory for the cache blocks|max seq len \(\d+\) is larger than the maximum number of "
                r"tokens)",
                source="vLLM 0.2 to 0.14",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "the model's weights leave no GPU memory for the engine's key-value cache",
                Remediation(
                    "Shorten the context, raise the engine's share of the GPU, quantise the model, or spread it over more "
                    "GPUs",
                    (
                        "vllm serve MODEL --max-model-len 8192 --gpu-memory-utilization 0.95",
                        "vllm serve MODEL --tensor-parallel-size 2",
                    ),
                ),
            )
            if "cache" in seen.groups
            else verdict
        ),
        explains=("MEM201", "SES2"),
    ),
)

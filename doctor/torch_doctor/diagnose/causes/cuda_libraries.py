"""CUDA's libraries, and what a GPU does not support."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

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


def _cublas(seen: Seen, verdict: Verdict) -> Verdict | None:
    what = seen.groups.get("what", "")
    return with_message(
        verdict, verdict.message.replace("?", _CUBLAS.get(what, "shapes, labels, GPU memory or a mixed install"))
    )


def _data_type(seen: Seen, verdict: Verdict) -> Verdict | None:
    named = seen.groups.get("what") or seen.groups.get("dtype") or "bf16"
    words = verdict.message if seen.groups.get("what") else verdict.message.replace("?", named)
    return with_message(verdict, words)


register(
    Cause(
        "GPU231",
        "cublas-failed",
        "cuBLAS failed: out of GPU memory for its handle, wrong shapes or labels, or a library of another version.",
        "cuBLAS has few words for many causes.",
        "cuBLAS failed ({what}): {why}",
        Remediation(
            "Run the same batch on the CPU for the true message, check shapes and label ranges, watch the GPU's "
            "free memory, and take other CUDA libraries out of LD_LIBRARY_PATH",
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
        judge=_cublas,
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
    Cause(
        "GPU236",
        "cuda-library-of-another-version",
        "Two versions of cuDNN, cuBLAS or another CUDA library are mixed in one process.",
        "The parts of a library are loaded one by one. A folder on LD_LIBRARY_PATH, or a second wheel, gives one part of "
        "another version, and its symbols do not fit. The process is often aborted at once.",
        "parts of two versions of {lib} are loaded: LD_LIBRARY_PATH or a second installation comes before torch's own",
        Remediation(
            "Take other CUDA folders out of LD_LIBRARY_PATH, and reinstall torch with the wheels that it pins",
            (
                "unset LD_LIBRARY_PATH",
                "pip list | grep -i -E 'nvidia-|torch'; find / -name 'libcudnn*.so*' -not -path '/proc/*' 2>/dev/null",
                "pip install --force-reinstall torch==VERSION  # that of pip show torch; without it pip takes the newest",
            ),
        ),
        (
            Signature(
                "undefined symbol: ",
                "Could not load library libcudnn_cnn_train.so.8. Error: /usr/local/cuda-12.1/lib64/libcudnn_cnn_train.so.8: "
                "undefined symbol: _ZN5cudnn3cnn34layerNormFwd, version libcudnn_cnn_infer.so.8",
                "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
                r"/(?P<lib>lib(?:cudnn|cublas|cusolver|cufft|nvrtc)\w*)[\w.-]*\.so[\w.]*: undefined symbol: (?!__nvJitLink)\w+",
                source="cuDNN 8 and 9, CUDA 11 to 13",
            ),
            Signature(
                ("Cannot load symbol cudnn", "_VERSION_MISMATCH"),
                "Could not load symbol cudnnGetLibConfig. Error: Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor",
                "symbol cudnn",
                r"Invalid handle\. Cannot load symbol (?P<lib>cudnn)\w+|CUDNN_STATUS_(?:SUBLIBRARY_)?VERSION_MISMATCH",
                source="cuDNN 9",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "cuDNN")),
        explains=("PKG2", "SES211", "GPU231", "GPU232"),
    ),
    Cause(
        "GPU233",
        "too-many-gpu-peers",
        "A GPU can map the memory of eight others at most.",
        "With more than eight visible GPUs that talk to each other directly (P2P), the mappings run out.",
        "a GPU cannot map the memory of more GPUs (peer mapping resources exhausted): more than eight talk to each other "
        "directly (P2P) in one process",
        Remediation(
            "Let each process see eight GPUs at most, run one process a GPU, or switch peer access off",
            (
                "CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py",
                "torchrun --nproc-per-node=gpu train.py  # in place of DataParallel or device_map",
                "export NCCL_P2P_DISABLE=1",
            ),
        ),
        (
            Signature(
                "peer mapping resources exhausted",
                "RuntimeError: CUDA error: peer mapping resources exhausted",
                "peer mapping",
                source="CUDA 9 to 13",
            ),
        ),
        explains=("DST",),
    ),
    Cause(
        "GPU234",
        "operation-not-supported-by-gpu",
        "CUDA says that this GPU, or this way to it, does not support an operation.",
        "A vGPU or MIG slice, WSL, or a hypervisor lacks some: sharing tensors between processes, peer access, managed "
        "memory, virtual memory (expandable segments).",
        "CUDA refused an operation that is not supported here: on a vGPU, a MIG slice or WSL sharing CUDA tensors between "
        "processes, peer access and expandable segments may be missing",
        Remediation(
            "See what the device is; send CPU tensors between processes, and switch off what is not supported",
            (
                "nvidia-smi -q | grep -i -E 'product name|virtualization|mig mode'",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False NCCL_P2P_DISABLE=1",
                "CUDA_LAUNCH_BLOCKING=1 python train.py",
            ),
        ),
        (
            Signature(
                "error: operation not supported",
                "RuntimeError: CUDA error: operation not supported",
                "operation not supported",
                r"CUDA (?:driver )?error: operation not supported(?! on global)",
                source="CUDA 9 to 13",
            ),
        ),
        kind=VAGUE,
        explains=("DST",),
    ),
    Cause(
        "GPU235",
        "data-type-not-supported-by-gpu",
        "This GPU cannot compute in the data type that was asked for.",
        "bf16 needs Ampere (compute capability 8.0), fp8 needs Ada or Hopper (8.9, 9.0) for most kernels. Older GPUs have "
        "float16.",
        "this GPU cannot compute in {what}: bf16 needs compute capability 8.0 (Ampere), fp8 8.9 or 9.0",
        Remediation(
            "Take float16 (with a GradScaler in training) or float32 on this GPU, or a newer GPU",
            (
                'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported())"',
                "TrainingArguments(fp16=True, bf16=False)",
                "torch.autocast('cuda', dtype=torch.float16)",
                "vllm serve MODEL --dtype half",
            ),
        ),
        (
            Signature(
                ("not supported in this architecture", "is only supported on GPUs with compute capability"),
                "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', "
                "'fp8e5')\")",
                "not supported in this version",
                r"type (?P<what>\w+) not supported in this architecture|(?P<dtype>[Bb]float16|FP8|fp8) is only supported on "
                r"GPUs with compute capability",
                source="triton 2.1 to 3.6, vLLM 0.2 to 0.14",
            ),
            Signature(
                "CUBLAS_STATUS_NOT_SUPPORTED",
                "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx( handle, opa, opb, m, n, k, "
                "&falpha, a, CUDA_R_16BF, lda, b, CUDA_R_16BF, ldb, &fbeta, c, CUDA_R_16BF, ldc, compute_type)`",
                "CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul( ltHandle, a, CUDA_R_32F)`",
                r"CUBLAS_STATUS_NOT_SUPPORTED when calling [^\n]*CUDA_R_16BF(?P<bf>)",
                source="torch 1.10 to 2.15, GPUs before Ampere",
            ),
            Signature(
                "does not support bfloat16",
                "RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16.",
                "supports bfloat16",
                r"Current (?:CUDA|HIP|XPU) Device does not support (?P<dtype>bfloat16)",
                source="torch 1.10 to 2.15, autocast",
            ),
        ),
        judge=_data_type,
        explains=("GPU231", "CMP2"),
    ),
    Cause(
        "GPU237",
        "no-attention-kernel",
        "No attention kernel takes these inputs on this GPU.",
        "flash-attn needs Ampere or later. scaled_dot_product_attention has several kernels; sdpa_kernel or a flag that "
        "allows one only, and inputs that it does not take (float32, a mask, a large head), leave none. The warnings above "
        "say why each was refused.",
        "no attention kernel takes these inputs on this GPU ({what})",
        Remediation(
            "Let torch choose the kernel, or use one that takes them; the fused ones want fp16 or bf16, flash-attn a GPU of "
            "compute capability 8.0 or later",
            (
                "AutoModel.from_pretrained(path, attn_implementation='sdpa')  # or 'eager'",
                "with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]): ...",
                'python -c "import torch; print(torch.cuda.get_device_capability())"',
            ),
        ),
        (
            Signature(
                "ttention only supports Ampere",
                "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
                "attention on Ampere",
                r"(?P<what>[Ff]lash ?[Aa]ttention only supports Ampere GPUs or newer)",
                source="flash-attn 2.0 to 2.8",
            ),
            Signature(
                "No available kernel",
                "RuntimeError: No available kernel. Aborting execution.",
                "available kernel",
                r"(?P<what>No available kernel)\. +Aborting execution",
                source="torch 2.0 to 2.15, scaled_dot_product_attention",
            ),
        ),
    ),
)

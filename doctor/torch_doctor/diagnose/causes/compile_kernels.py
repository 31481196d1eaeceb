"""torch.compile: kernels and code that were made, and do not run on this GPU or with these inputs."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "CMP214",
        "kernel-needs-more-on-chip-memory",
        "A triton kernel needs more of the GPU's on-chip memory than it has.",
        "The text says shared memory and means that of a GPU's multiprocessor; block sizes and stages were chosen "
        "for another GPU.",
        "a triton kernel needs {need} bytes of the multiprocessor's on-chip memory and the GPU has {have}: its "
        "block sizes or stages were chosen for another GPU",
        Remediation(
            "Lower the block sizes or num_stages of the kernel, or autotune on this GPU",
            ("torch._inductor.config.max_autotune = True", "TORCHINDUCTOR_MAX_AUTOTUNE=1 python train.py"),
        ),
        (
            Signature(
                ("out of resource: shared memory", "out of resource: tensor memory"),
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware "
                "limit: 101376. Reducing block sizes or `num_stages` may help.",
                "out of resource",
                r"out of resource: (?:shared|tensor) memory, Required: (?P<need>\d+), Hardware limit: (?P<have>\d+)",
                source="triton 2.1 to 3.6",
            ),
        ),
        explains=("CMP22",),
    ),
    Cause(
        "CMP237",
        "triton-kernel-not-loadable",
        "triton made a kernel that cannot be compiled or loaded for this GPU.",
        "A GPU older than the kernel's data type (bf16 before Ampere), a driver that is older than triton's PTX, or a cache of "
        "another machine.",
        "triton made a kernel that cannot be compiled or loaded on this GPU ({what}): bf16 on a GPU before Ampere, a driver "
        "older than triton's code, or a kernel cache of another machine",
        Remediation(
            "Clear the cache, compare GPU, driver and triton, use float16 in place of bf16 on GPUs before Ampere, and go on "
            "without torch.compile meanwhile",
            (
                "rm -rf ~/.triton/cache /tmp/torchinductor_*",
                'python -c "import torch, triton; print(torch.cuda.get_device_capability(), torch.version.cuda, '
                'triton.__version__)"; nvidia-smi',
                "TORCH_COMPILE_DISABLE=1 python train.py",
            ),
        ),
        (
            Signature(
                "Triton Error [CUDA]: ",
                "RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
                "Triton Error [CUDA]: an illegal memory access was encountered",
                r"Triton Error \[CUDA\]: (?P<what>device kernel image is invalid|no kernel image is available[^\n]*|invalid "
                r"argument|the provided PTX was compiled with an unsupported toolchain)",
                source="triton 2.x and 3.x",
            ),
            Signature(
                "PassManager::run failed",
                "RuntimeError: PassManager::run failed",
                "PassManager::run",
                r"(?P<what>PassManager::run failed)",
                source="triton 2.1 to 3.6",
            ),
        ),
        kind=VAGUE,
        explains=("CMP22", "GPU206", "GPU253", "GPU223"),
        decide='python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported())"',
    ),
    Cause(
        "CMP239",
        "compiled-code-got-another-shape",
        "Compiled code got a tensor of another size or stride than it was made for.",
        "The check belongs to inductor's code. A custom operator whose fake form is wrong, a parameter that was replaced "
        "after compiling, or a dimension that was marked static while it changes.",
        "inductor's code got a tensor of another size or stride than it was compiled for ({what})",
        Remediation(
            "Look at custom operators' fake forms and at tensors that change after compiling; mark the dimension dynamic, drop "
            "the last incomplete batch, and compare with the aot_eager back end",
            (
                "torch._dynamo.mark_dynamic(x, 0)",
                "DataLoader(..., drop_last=True)",
                "torch.compile(model, backend='aot_eager')",
                "torch.library.opcheck(op, args)",
            ),
        ),
        (
            Signature(
                "expected size ",
                "AssertionError: expected size 31==32, stride 128==128 at dim=0",
                "expected size 31",
                r"AssertionError: (?P<what>expected size \d+==\d+, stride \d+==\d+ at dim=\d+)",
                source="torch 2.0 to 2.15, assert_size_stride",
            ),
        ),
        kind=VAGUE,
    ),
)

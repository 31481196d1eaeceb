"""What was taken out to save bytes is not missed, and the doctor is a small last layer."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import containers

#: Triton turns a kernel into GPU code for compute capability 9.0 without a GPU: its NVIDIA backend, its
#: libdevice and its ptxas are all used
TRITON_TO_CUBIN = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def kernel(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.extra.cuda.libdevice.sin(tl.load(x + i, mask=i < n)), mask=i < n)


source = ASTSource(
    fn=triton.JITFunction(kernel), signature={"x": "*fp32", "n": "i32", "B": "constexpr"}, constexprs={(2,): 64}
)
built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
print(built.asm["cubin"][:4] == b"\\x7fELF", ".target sm_90" in built.asm["ptx"])
"""


def test_torch_imports_and_every_library_it_names_loads(host: Any) -> None:
    script = (
        "import torch, torch.distributed, torch.utils.data, torch.onnx, torch.profiler, torch.testing; print(1 + 1)"
    )
    assert host.check_output(f"python -W error -c '{script}'") == "2"
    broken = host.check_output(
        "find /opt/venv/lib/python3*/site-packages/torch /opt/venv/lib/python3*/site-packages/functorch"
        " -name '*.so*' -exec ldd {} + 2>/dev/null | grep 'not found' | grep -v libcuda.so.1 || :"
    )
    assert broken == ""


def test_torch_compiles_for_the_cpu(host: Any) -> None:
    script = (
        "import torch; f = torch.compile(lambda x: torch.sin(x) @ x.T + x.sum()); "
        "x = torch.ones(16, 16); print(torch.allclose(f(x), torch.sin(x) @ x.T + x.sum()))"
    )
    assert host.check_output(f"python -c '{script}'") == "True"


def test_triton_builds_gpu_code(image: str, row: dict[str, str]) -> None:
    if not row["TORCH_CUDA"]:
        done = containers.run(image, "python", "-c", "import triton", options=["--env=TORCH_DOCTOR_PREFLIGHT=off"])
        assert "No module named 'triton'" in done.stderr
        return
    script = "cat > /tmp/kernel.py && python /tmp/kernel.py"
    done = containers.docker(
        "run", "--rm", "--interactive", "--entrypoint=bash", image, "-c", script, stdin=TRITON_TO_CUBIN, check=False
    )
    assert done.stdout == "True True\n", done.stderr


def test_the_largest_libraries_are_stripped(host: Any) -> None:
    listing = host.check_output(
        "cd /opt/venv/lib/python3*/site-packages; for f in torch/lib/libtorch_c*.so triton/_C/libtriton.so; do"
        " test ! -e $f || readelf -SW $f | grep -E ' \\.(symtab|debug_info) ' || :; done; echo looked"
    )
    assert listing == "looked"


def layers(name: str) -> list[str]:
    return list(json.loads(containers.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name).stdout))


@pytest.fixture
def upgraded(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same repository with a changed doctor, built under a name of its own."""
    copy = tmp_path / "repository"
    ignore = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".mypy_cache", ".make", "tests")
    shutil.copytree(containers.ROOT, copy, ignore=ignore, symlinks=True)
    (copy / "doctor" / "torch_doctor" / "upgrade.py").write_text("NEW = True\n", encoding="utf-8")
    name = f"td-test-upgrade:{variant}"
    monkeypatch.setenv("TAG", name)
    built = subprocess.run([copy / "images" / "build.sh", variant], capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stderr
    yield name
    containers.docker("image", "rm", "--force", name)


def test_an_upgrade_of_the_doctor_moves_only_the_last_layer(image: str, upgraded: str) -> None:
    assert layers(upgraded)[:-1] == layers(image)[:-1]
    assert layers(upgraded)[-1] != layers(image)[-1]

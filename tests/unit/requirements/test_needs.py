"""What --need, --gpus and --sample-bytes take, and what they say of what they do not take."""

from __future__ import annotations

from typing import Any

import pytest

from torch_doctor.errors import DoctorError
from torch_doctor.requirements import needs

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16g", 16 * GIB),
        ("16G", 16 * GIB),
        ("16GiB", 16 * GIB),
        ("16gb", 16 * GIB),
        ("1.5g", 3 * GIB // 2),
        ("512m", 512 << 20),
        ("64k", 64 << 10),
        ("2t", 2 << 40),
        ("1000", 1000),
        ("1000b", 1000),
        (" 8 g ", 8 * GIB),
    ],
)
def test_a_size_is_read_as_docker_reads_it(text: str, expected: int) -> None:
    assert needs.size(text, "--need shm") == expected


@pytest.mark.parametrize("text", ["", "g", "-1g", "16x", "0x10", "1,5g", "inf", "nan", "16 g g"])
def test_what_is_no_size_is_refused_with_the_input_named(text: str) -> None:
    with pytest.raises(DoctorError) as caught:
        needs.size(text, f"--need shm={text}")
    assert str(caught.value).startswith(f"--need shm={text}: ") and caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["gpus=8"], {"gpus": 8}),
        (["gpus=all"], {"gpus": None}),
        (["gpus=none"], {"gpus": 0}),
        (["gpus=device=0,2"], {"gpus": 2}),
        (["gpus=1,shm=8g"], {"gpus": 1, "shm_bytes": 8 * GIB}),
        (["gpus=1, shm=8g", "cpus=4"], {"gpus": 1, "shm_bytes": 8 * GIB, "cpus": 4}),
        (["gpu-memory=70g"], {"gpu_memory_bytes": 70 * GIB}),
        (["GPU_MEMORY=70g"], {"gpu_memory_bytes": 70 * GIB}),
        (["vram=24g"], {"gpu_memory_bytes": 24 * GIB}),
        (["ram=64g", "disk=1t"], {"memory_bytes": 64 * GIB, "disk_bytes": 1 << 40}),
        (["compute-capability=8.0"], {"min_compute_capability": (8, 0)}),
        (["compute-capability=sm_90"], {"min_compute_capability": (9, 0)}),
        (["compute-capability=120"], {"min_compute_capability": (12, 0)}),
        (["shm=1g", "shm=2g"], {"shm_bytes": 2 * GIB}),
        (["compile"], {"uses": frozenset({"compile"})}),
        (["compile=yes,h5py"], {"uses": frozenset({"compile", "h5py"})}),
        (["compile=no"], {}),
        ([""], {}),
        ([], {}),
    ],
)
def test_needs_become_fields(items: list[str], expected: dict[str, Any]) -> None:
    assert needs.parse(items)[0] == expected


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("gpu_count=8", "unknown need 'gpu-count'"),
        ("shm", "shm has no value"),
        ("shm=", "shm has no value"),
        ("=8g", "unknown need ''"),
        ("gpus=two", "'two' is not a number of GPUs"),
        ("gpus=-1", "'-1' is not a number of GPUs"),
        ("cpus=1.5", "'1.5' is not a whole number"),
        ("compute-capability=ampere", "'ampere' is not a compute capability"),
        ("compile=maybe", "'maybe' is neither yes nor no"),
    ],
)
def test_a_wrong_need_is_named_with_what_to_write(item: str, told: str) -> None:
    with pytest.raises(DoctorError) as caught:
        needs.parse([item])
    assert str(caught.value) == f"--need {item}: {told}"
    assert caught.value.hint


def test_an_unknown_need_lists_the_known_ones() -> None:
    with pytest.raises(DoctorError) as caught:
        needs.parse(["bogus=1"])
    for key in ("gpus", "gpu-memory", "shm", "memory", "disk", "cpus", "compile"):
        assert key in caught.value.hint

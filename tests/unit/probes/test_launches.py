"""How a script is started in a container, read from what stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_doctor import linting, registry
from torch_doctor.probes.launches import Launches, size

COMPOSE = """\
services:
  train:
    image: torch-doctor
    command: python train.py --epochs 3
{extra}  other:
    image: busybox
volumes:
  data:
"""


def launches(tmp_path: Path, name: str, text: str) -> list[tuple[str, int, int | None, bool]]:
    (tmp_path / name).write_text(text)
    return [(x.what, x.line, x.shm_bytes, x.host_ipc) for x in Launches(tmp_path / "train.py")]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("", [("service train", 2, None, False)]),
        ("    shm_size: 8gb\n", [("service train", 2, 8 << 30, False)]),
        ('    shm_size: "64m"\n', [("service train", 2, 64 << 20, False)]),
        ("    ipc: host\n", [("service train", 2, None, True)]),
        ("    shm_size: ${SHM}\n", []),
        ("    <<: *gpu\n", []),
        ("    tmpfs:\n      - /dev/shm:size=8g\n", []),
    ],
)
def test_compose(tmp_path: Path, extra: str, expected: list[tuple[str, int, int | None, bool]]) -> None:
    assert launches(tmp_path, "docker-compose.yml", COMPOSE.format(extra=extra)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker run --gpus all image python train.py\n", [("docker run", 1, None, False)]),
        ("set -e\ndocker run \\\n  --shm-size=8g \\\n  image python train.py\n", [("docker run", 2, 8 << 30, False)]),
        ("docker run --shm-size 1g image train.py\n", [("docker run", 1, 1 << 30, False)]),
        ("docker run --ipc=host image train.py\n", [("docker run", 1, None, True)]),
        ("docker run $DOCKER_ARGS image train.py\n", []),
        ("# docker run image train.py\n", []),
        ("docker run image python other.py\n", []),
        ("docker build . # train.py\n", []),
    ],
)
def test_docker_run(tmp_path: Path, text: str, expected: list[tuple[str, int, int | None, bool]]) -> None:
    assert launches(tmp_path, "run.sh", text) == expected


@pytest.mark.parametrize(
    ("text", "value"), [("8g", 8 << 30), ("512mb", 512 << 20), ("'1.5G'", 3 << 29), ("1024", 1024), ("$X", None)]
)
def test_size(text: str, value: int | None) -> None:
    assert size(text) == value


LOADER = (
    "from torch.utils.data import DataLoader\ndef main(d):\n    return DataLoader(d, 256, num_workers={workers})\n"
)


@pytest.mark.parametrize(("workers", "extra", "found"), [(8, "", 1), (0, "", 0), (8, "    shm_size: 8g\n", 0)])
def test_the_rule(tmp_path: Path, workers: int, extra: str, found: int) -> None:
    (tmp_path / "train.py").write_text(LOADER.format(workers=workers))
    (tmp_path / "compose.yaml").write_text(COMPOSE.format(extra=extra))
    checks = registry.select(registry.load("lint"), ["SHM101"])
    pairs = linting.lint([tmp_path / "train.py"], checks).findings[str(tmp_path / "train.py")]
    assert [(f.location.line, f.message) for _, f in pairs if f.location] == [
        (3, "8 workers share 64 MiB of /dev/shm in service train (compose.yaml:2)")
    ] * found

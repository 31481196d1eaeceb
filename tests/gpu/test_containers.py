"""On a GPU host with Docker: how a container is started decides what it says about GPUs."""

from __future__ import annotations

import pytest
from support import containers

pytestmark = [pytest.mark.gpu, pytest.mark.engine]


@pytest.fixture(scope="module", params=[v for v in containers.variants() if v != "cpu"] or ["cuda"])
def image(request: pytest.FixtureRequest) -> str:
    return containers.image(str(request.param))


def judged(image: str, *options: str, args: tuple[str, ...] = ("--ignore", "torch")) -> containers.Report:
    return containers.check(image, "--select", "gpu", *args, options=(*containers.ROOMY, *options))


#: states that a healthy machine may be in
TRUE_OF_SOME_MACHINES = {"GPU030", "GPU033", "GPU034", "GPU035", "GPU036"}


def test_with_gpus_nothing_is_red(image: str) -> None:
    report = judged(image, "--gpus", "all", args=("--timeout", "120"))
    assert report.red() <= TRUE_OF_SOME_MACHINES and report.exit_code == 0


def test_without_gpus_the_flag_is_named(image: str) -> None:
    report = judged(image)
    assert report.red() == {"GPU002"}
    assert "docker run --gpus all ..." in report.commands("GPU002")


def test_one_of_several_is_enough(image: str) -> None:
    report = judged(image, "--gpus", "device=0")
    assert report.red() <= TRUE_OF_SOME_MACHINES


def test_without_the_compute_capability(image: str) -> None:
    report = judged(image, "--gpus", "all", "--env", "NVIDIA_DRIVER_CAPABILITIES=utility")
    assert report.red() - TRUE_OF_SOME_MACHINES == {"GPU023"}


def test_hidden_by_the_variable(image: str) -> None:
    report = judged(image, "--gpus", "all", "--env", "CUDA_VISIBLE_DEVICES=97")
    assert report.red() - TRUE_OF_SOME_MACHINES == {"GPU005"}


def test_hardened(image: str) -> None:
    hardened = ("--read-only", "--tmpfs", "/tmp:exec", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    report = judged(image, "--gpus", "all", "--user", "12345:12345", *hardened, args=("--timeout", "120"))
    assert report.red() <= TRUE_OF_SOME_MACHINES

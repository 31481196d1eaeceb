"""GPU faults in real containers, without a GPU: the fake driver libraries in the place of the true ones."""

from __future__ import annotations

import pytest
from support import containers, fake_gpu

FOLDER = "/usr/local/nvidia/lib64"


def options(scenario: str, *more: str) -> tuple[str, ...]:
    """What `--gpus` does: libraries, a device node, and here a scenario to play."""
    return (
        *containers.ROOMY,
        *("--volume", f"{fake_gpu.libraries()}:{FOLDER}:ro"),
        *("--volume", f"{fake_gpu.scenario(scenario)}:/scenario.conf:ro"),
        *("--env", f"LD_LIBRARY_PATH={FOLDER}"),
        *("--env", "TORCH_DOCTOR_FAKE_GPU=/scenario.conf"),
        *("--device", "/dev/null:/dev/nvidia0"),
        *("--device", "/dev/null:/dev/nvidiactl"),
        *more,
    )


def judged(image: str, scenario: str, *more: str) -> containers.Report:
    return containers.check(image, "--select", "gpu", "--ignore", "torch", options=options(scenario, *more))


@pytest.mark.parametrize(
    ("scenario", "red"),
    [
        ("healthy8", set()),
        ("mismatch", {"GPU010"}),
        ("unknown-error", {"GPU011"}),
        ("lost", {"GPU012"}),
        ("none", {"GPU013"}),
        ("no-permission", {"GPU016"}),
        ("cuinit-802", {"GPU021"}),
        ("cuinit-999", {"GPU021"}),
        ("memory-held", {"GPU030"}),
        ("ecc", {"GPU031", "GPU032", "GPU033"}),
        ("throttled", {"GPU034"}),
    ],
)
def test_a_fault_turns_its_own_check_red(image: str, scenario: str, red: set[str]) -> None:
    assert judged(image, scenario).red() == red


def test_as_a_user_without_a_name_and_without_capabilities(image: str) -> None:
    hardened = ("--user", "12345:12345", "--read-only", "--cap-drop", "ALL", "--network", "none")
    assert judged(image, "lost", *hardened).red() == {"GPU012"}


def test_a_hang_ends_at_the_limit(image: str) -> None:
    report = containers.check(
        image, "--select", "gpu", "--ignore", "torch", "--timeout", "3", options=options("hang-init")
    )
    assert report.red() == {"GPU014"} and report.exit_code == 1


CHECK = "exec torch-doctor check --select gpu --ignore torch --format json"


@pytest.mark.parametrize(
    ("prepare", "id", "words"),
    [
        # the device cgroup lets no container open a GPU that it was not given: what a daemon-reload leaves behind
        (f"mknod -m 666 /dev/nvidiactl c 195 255 && {CHECK}", "GPU011", "the device cgroup denies /dev/nvidiactl"),
        # a node that the container may open, and this user may not
        (
            "mknod -m 600 /dev/nvidiactl c 1 3 && exec setpriv --reuid=12345 --regid=12345 --clear-groups "
            f"sh -c '{CHECK}'",
            "GPU016",
            "this user may not open /dev/nvidiactl",
        ),
    ],
)
def test_a_node_that_cannot_be_opened(image: str, prepare: str, id: str, words: str) -> None:
    flags = (
        *containers.ROOMY,
        *("--user", "0", "--env", "TORCH_DOCTOR_PREFLIGHT=off"),
        *("--volume", f"{fake_gpu.libraries()}:{FOLDER}:ro"),
        *("--volume", f"{fake_gpu.scenario('unknown-error')}:/scenario.conf:ro"),
        *("--env", f"LD_LIBRARY_PATH={FOLDER}", "--env", "TORCH_DOCTOR_FAKE_GPU=/scenario.conf"),
    )
    report = containers.Report.of(containers.run(image, "sh", "-c", prepare, options=flags))
    assert report.red() == {id}
    (finding,) = [f for f in report.document["findings"] if f["id"] == id]
    assert words in finding["message"]


def test_a_lost_container_is_told_to_be_recreated(image: str) -> None:
    report = judged(image, "unknown-error")
    assert "docker rm -f CONTAINER && docker run --gpus all ..." in report.commands("GPU011")


def test_memory_of_another_namespace_explains_pid_host(image: str) -> None:
    report = judged(image, "memory-held-unseen")
    assert any(c.startswith("docker run --pid=host") for c in report.commands("GPU030"))


def test_the_compute_capability_is_missing(image: str) -> None:
    hidden = ("--volume", f"/dev/null:{FOLDER}/libcuda.so.1:ro", "--env", "NVIDIA_DRIVER_CAPABILITIES=utility")
    report = judged(image, "healthy8", *hidden)
    assert report.red() == {"GPU023"}
    assert any("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in c for c in report.commands("GPU023"))


@pytest.mark.parametrize(("value", "red"), [("0,1", set()), ("9", {"GPU005"}), ("", {"GPU005"})])
def test_cuda_visible_devices(image: str, value: str, red: set[str]) -> None:
    assert judged(image, "healthy8", "--env", f"CUDA_VISIBLE_DEVICES={value}").red() == red


def test_a_plain_container_on_a_machine_without_a_gpu_has_a_note_and_nothing_red(image: str) -> None:
    report = containers.check(image, "--select", "gpu", options=containers.ROOMY)
    assert report.red() - {"GPU002", "GPU003"} == set()  # those two where the host has a GPU
    assert {i for i in report.found("note") if i.startswith("GPU")} <= {"GPU001", "GPU002", "GPU003"}
    assert report.exit_code == 0


def test_asked_for_in_the_image_without_a_gpu_is_an_error(image: str) -> None:
    report = containers.check(image, "--select", "gpu", options=("--env", "NVIDIA_VISIBLE_DEVICES=0"))
    assert report.found("error") & {"GPU001", "GPU002", "GPU003"} and report.exit_code == 1


def test_torchs_own_build_is_judged(image: str, row: dict[str, str]) -> None:
    """The arch list and CUDA version are those of the image's torch: only the GPU and its driver are made up."""
    cuda = row["TORCH_CUDA"]

    def red(scenario: str) -> set[str]:
        # importing torch may take long on a busy machine; GPU026 needs a driver that computes
        args = ("--select", "gpu", "--ignore", "GPU026", "--timeout", "300")
        return {i for i in containers.check(image, *args, options=options(scenario)).red() if i.startswith("GPU")}

    assert ("GPU020" in red("old-driver")) is bool(cuda)
    assert ("GPU025" in red("retired")) is cuda.startswith("13")  # a V100
    assert red("healthy8") == set()

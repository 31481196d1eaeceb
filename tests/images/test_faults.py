"""What goes wrong in containers, made to go wrong: the right ID appears, nothing else turns red, and it is
gone once the remedy is done as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import containers
from support.containers import Report

ROOMY = containers.ROOMY


@pytest.fixture(scope="session")
def variant() -> str:
    """The faults are the containers', not the variants': the smallest image shows them."""
    return containers.smallest()


@pytest.fixture(scope="session")
def image(variant: str) -> str:
    return containers.image(variant)


@dataclass(frozen=True)
class Fault:
    """Options of docker run that make the fault, and what has to be found.

    Attributes:
        red: IDs of the errors and warnings, all of them.
        args: more arguments of check.
        base: options that keep the rest healthy.
    """

    name: str
    options: tuple[str, ...]
    red: frozenset[str]
    args: tuple[str, ...] = ()
    base: tuple[str, ...] = ROOMY


def fault(name: str, *options: str, red: str, args: tuple[str, ...] = (), base: tuple[str, ...] = ROOMY) -> Fault:
    return Fault(name, options, frozenset(red.split()), args, base)


FAULTS = (
    fault("64 MiB /dev/shm", "--shm-size=64m", "--env=TORCH_DOCTOR_SHM=off", red="SHM001", base=()),
    fault("read-only, no tmpfs", "--read-only", red="FS002 FS003 CMP004"),
    fault("noexec /tmp", "--tmpfs=/tmp", red="FS004 CMP005"),
    fault("512 MiB of memory", "--memory=512m", red="MEM001"),
    fault("one CPU", "--cpus=1", red="CPU001"),
    fault("64 processes", "--pids-limit=64", red="WRK004"),
    fault("64 open files", "--ulimit=nofile=64", red="WRK002"),
    fault("unknown TERM", "--env=TERM=xterm-unknown", red="SES004"),
    fault("LANG=C", "--env=LANG=C", red="SES003"),
)

#: what a container may be given without any fault
HARMLESS = (
    (),
    ("--user=12345:12345",),
    ("--read-only", "--tmpfs=/tmp:exec"),
    ("--network=none",),
    ("--cap-drop=ALL",),
    ("--cap-drop=ALL", "--security-opt=no-new-privileges"),
)


def remedies(report: Report, ids: frozenset[str], **places: str) -> list[str]:
    """The options of the `docker run ... ` lines that the report prints for these findings, as typed."""
    options: list[str] = []
    for id in sorted(ids):
        for command in report.commands(id):
            if match := re.fullmatch(r"docker run (.*?) \.\.\.", command):
                options += shlex.split(os.path.expandvars(match[1]))
                break
    return options


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_fault_is_named_and_its_remedy_works(image: str, case: Fault) -> None:
    report = containers.check(image, *case.args, options=[*case.base, *case.options])
    assert report.red() == case.red, report.document["findings"]
    # docker takes the last of two equal options, as a user does who adds the printed one
    options = [*case.base, *case.options, *remedies(report, case.red)]
    mended = containers.check(image, *case.args, options=options)
    assert mended.red() == frozenset(), (options, mended.document["findings"])


@pytest.mark.parametrize("options", HARMLESS, ids=lambda options: " ".join(options) or "plain")
def test_what_is_no_fault_is_not_reported(image: str, options: tuple[str, ...]) -> None:
    report = containers.check(image, options=[*ROOMY, *options])
    assert (report.exit_code, report.red()) == (0, frozenset()), report.document["findings"]


def test_the_default_check_of_every_variant_finds_nothing_untrue() -> None:
    for variant in containers.variants():
        report = containers.check(containers.image(variant), options=ROOMY)
        assert (report.exit_code, report.red()) == (0, frozenset()), (variant, report.document["findings"])


def test_64_mib_of_shm_are_a_note_where_the_fallback_serves_them(image: str) -> None:
    report = containers.check(image)
    assert (report.exit_code, report.red()) == (0, frozenset()), report.document["findings"]
    assert "SHM001" in report.found("note")
    assert "SHM001" not in containers.check(image, options=ROOMY).found()


def test_docker_exec_sees_what_docker_run_sees(image: str) -> None:
    hard = ["--user=12345:12345", "--read-only", "--tmpfs=/tmp:exec", "--cap-drop=ALL", "--network=none"]
    with containers.container(image, [*ROOMY, *hard]) as running:
        report = running.report()
    # the home is the image's own there: an entrypoint moves it, and `docker exec` passes none
    assert report.red() <= {"FS003"}, report.document["findings"]


def test_a_workspace_of_another_owner_is_named_with_the_flag_that_helps(image: str, tmp_path: Path) -> None:
    subprocess.run(["chmod", "755", *(str(parent) for parent in (tmp_path, *tmp_path.parents[:2]))], check=True)
    containers.docker(
        "run", "--rm", "--user=0", "--entrypoint=chown", f"--volume={tmp_path}:/w", image, "4321:4321", "/w"
    )
    mount = [*ROOMY, f"--volume={tmp_path}:/workspace"]
    try:
        report = containers.check(image, options=mount)
        assert report.red() == {"FS001"}, report.document["findings"]
        remedy = remedies(report, frozenset({"FS001"}))
        assert remedy == ["--user", "4321:4321"]
        mended = containers.check(image, options=[*mount, *remedy])
        assert mended.red() == frozenset(), mended.document["findings"]
    finally:
        containers.docker(
            "run",
            "--rm",
            "--user=0",
            "--entrypoint=chown",
            f"--volume={tmp_path}:/w",
            image,
            f"{os.getuid()}:{os.getgid()}",
            "/w",
        )


@contextmanager
def derived(image: str, *commands: str) -> Iterator[str]:
    """An image in which root has run these commands on top."""
    name = f"td-test-derived:{uuid.uuid4().hex[:8]}"
    started = containers.docker(
        "run", "--detach", "--user=0", "--entrypoint=bash", image, "-euxc", "\n".join(commands)
    ).stdout.strip()
    try:
        status = containers.docker("wait", started, timeout=600).stdout.strip()
        assert status == "0", containers.docker("logs", started).stderr
        containers.docker(
            "commit",
            "--change",
            "USER 1000:1000",
            "--change",
            'ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/usr/local/bin/torch-doctor-entrypoint"]',
            "--change",
            "CMD []",
            started,
            name,
        )
        yield name
    finally:
        containers.docker("rm", "--force", started, check=False)
        containers.docker("image", "rm", "--force", name, check=False)


def test_a_missing_compiler_is_named_and_its_package_mends_it(image: str) -> None:
    with derived(image, "apt-get purge -y binutils") as bare:  # the compilers depend on it and go with it
        report = containers.check(bare, options=ROOMY)
        assert report.red() and {id[:3] for id in report.red()} == {"CMP"}, report.document["findings"]
        lines = [line for id in sorted(report.red()) for line in report.commands(id)]
        commands = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN apt-get ")]
        assert commands, report.document["findings"]
        with derived(bare, *commands) as mended:
            after = containers.check(mended, options=ROOMY)
            assert after.red() == frozenset(), after.document["findings"]


def test_a_torch_with_a_library_missing_is_named_and_a_reinstall_mends_it(image: str, variant: str) -> None:
    remove = "rm /opt/venv/lib/python3*/site-packages/torch/lib/libc10.so"
    with derived(image, remove) as broken:
        report = containers.check(broken, options=ROOMY)
        assert report.red() == {"PKG002"}, report.document["findings"]
        assert "libc10.so" in str(report.document["findings"])
        (command,) = [line for line in report.commands("PKG002") if "pip install" in line]
        wheels = containers.ROOT / "images" / variant / "wheels"
        if not wheels.is_dir():
            pytest.skip(f"{variant} has no local wheel to reinstall from")
        # the command as printed; where its packages come from is pip's configuration, as at a user's
        settings = ["PIP_NO_DEPS=1", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels"]
        with containers.container(
            broken,
            [*ROOMY, "--user=0", f"--volume={wheels}:/wheels:ro", *(f"--env={entry}" for entry in settings)],
        ) as running:
            running.exec("bash", "-c", command)
            mended = Report.of(
                containers.docker(
                    "exec", "--user=1000:1000", running.id, "torch-doctor", "check", "--format", "json", check=False
                )
            )
        assert mended.red() == frozenset(), mended.document["findings"]

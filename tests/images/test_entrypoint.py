"""What `docker run IMAGE [ARGUMENTS]` does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support import containers

#: enough shared memory, so that the preflight has nothing to say
HEALTHY = containers.ROOMY
#: what Docker gives, 64 MiB, with nothing that stands in for it
FAULTY = ("--env=TORCH_DOCTOR_SHM=off",)


def test_no_argument_is_check(image: str) -> None:
    bare = containers.run(image, options=HEALTHY)
    assert bare.returncode == 0, bare.stdout + bare.stderr
    assert re.search(r"^check: ", bare.stdout, re.MULTILINE)


def test_options_go_to_torch_doctor(image: str, manifest: dict[str, Any]) -> None:
    done = containers.run(image, "--version")
    assert (done.stdout, done.stderr) == (f"torch-doctor {manifest['doctor']}\n", "")


def test_every_subcommand_of_the_command_line_is_known(host: Any) -> None:
    help_text = host.check_output("torch-doctor --help")
    listed = re.findall(r"^  ([a-z]+) ", help_text.split("Commands:")[1], re.MULTILINE)
    assert listed
    assert host.file(f"{containers.SHARE}/subcommands").content_string.split() == sorted(listed)


def test_a_subcommand_wins_over_a_program_of_that_name(image: str) -> None:
    assert "Usage: torch-doctor diff" in containers.run(image, "diff", "--help").stdout


def test_anything_else_is_run_as_given(image: str) -> None:
    done = containers.run(image, "sh", "-c", 'echo "$1|$2"; exit 9', "_", "a b", "*", options=HEALTHY)
    assert (done.returncode, done.stdout, done.stderr) == (9, "a b|*\n", "")


def test_the_preflight_warns_on_stderr_and_the_command_runs(image: str) -> None:
    done = containers.run(image, "echo", "ran", options=FAULTY)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "SHM001" in done.stderr and "--shm-size" in done.stderr


def test_a_plain_start_says_nothing_where_the_fallback_serves(image: str) -> None:
    done = containers.run(image, "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("size", ["1023m", "1024m"])
def test_the_quick_look_and_the_check_agree_on_how_much_is_enough(image: str, size: str) -> None:
    options = [*FAULTY, f"--shm-size={size}"]
    found = "SHM001" in containers.check(image, options=options).red()
    assert found == (size == "1023m")
    assert ("SHM001" in containers.run(image, "true", options=options).stderr) == found


def test_strict_refuses_to_start(image: str) -> None:
    options = ["--env=TORCH_DOCTOR_PREFLIGHT=strict", *FAULTY]
    done = containers.run(image, "echo", "ran", options=options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "SHM001" in done.stderr and "TORCH_DOCTOR_PREFLIGHT=warn" in done.stderr
    assert containers.run(image, "echo", "ran", options=[*options, *HEALTHY]).stdout == "ran\n"


def test_off_says_nothing(image: str) -> None:
    done = containers.run(image, "echo", "ran", options=["--env=TORCH_DOCTOR_PREFLIGHT=off"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_mode_that_does_not_exist_is_wrong_usage(image: str) -> None:
    done = containers.run(image, "true", options=["--env=TORCH_DOCTOR_PREFLIGHT=loud"])
    assert done.returncode == 2
    assert "off, warn, strict" in done.stderr and "docker run -e TORCH_DOCTOR_PREFLIGHT=warn" in done.stderr


@pytest.mark.parametrize("shell", [("bash",), ("bash", "-l"), ("sh",)], ids=" ".join)
def test_an_interactive_shell_gets_no_preflight(image: str, shell: tuple[str, ...]) -> None:
    done = containers.docker("run", "--rm", "--interactive", image, *shell, stdin="echo ran\n")
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_terminal_that_terminfo_does_not_know_becomes_one_that_it_knows(image: str) -> None:
    done = containers.run(image, "tput", "colors", options=[*HEALTHY, "--env=TERM=xterm-unknown"])
    assert (done.returncode, done.stdout) == (0, "256\n")
    assert "xterm-unknown" in done.stderr and "docker run -e TERM=xterm-256color" in done.stderr


def test_a_read_only_home_is_moved_to_where_it_can_be_written(image: str) -> None:
    options = [*HEALTHY, "--read-only", "--tmpfs=/tmp:exec", "--env=TORCH_DOCTOR_PREFLIGHT=off"]
    done = containers.run(image, "sh", "-c", "touch ~/x && echo ~", options=options)
    assert done.stdout == "/tmp/home-1000\n"


def test_a_missing_command_fails_as_docker_does(image: str) -> None:
    done = containers.run(image, "no-such-command", options=HEALTHY)
    assert done.returncode == 127


def test_the_container_becomes_healthy(image: str, config: dict[str, Any]) -> None:
    assert config["Healthcheck"]["Test"] == ["CMD", "torch-doctor", "health"]
    with containers.container(image, containers.ROOMY) as running:
        done = containers.docker("exec", running.id, "torch-doctor", "health", check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_json_goes_to_stdout_alone(image: str) -> None:
    done = containers.run(image, "check", "--format", "json", options=HEALTHY)
    assert json.loads(done.stdout)["command"] == "check"
    assert done.stderr == ""

"""Who may do what: one test for each promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import containers

#: where anybody may write
WRITABLE = ("/workspace", "/workspace/.torch-doctor", "/home/trainer", "/tmp", "/tmp/torch-doctor-cache")


def test_the_user_is_trainer_and_has_no_sudo(host: Any, config: dict[str, Any]) -> None:
    assert config["User"] == "1000:1000"
    assert host.check_output("id -un; id -gn; id -G") == "trainer\ntrainer\n1000"
    assert not host.exists("sudo") and not host.exists("doas")


def test_no_file_is_setuid_or_setgid(image: str) -> None:
    found = containers.run(
        image, "-c", "find / -xdev -perm /6000 -not -path '/proc/*'", options=["--user=0", "--entrypoint=bash"]
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("user", ["1000:1000", "12345:12345"])
def test_nothing_else_is_writable(image: str, user: str) -> None:
    script = "find / -xdev -writable ! -type l ! -path '/proc*' ! -path '/sys*' ! -path '/dev*' 2>/dev/null; :"
    found = containers.run(image, "-c", script, options=[f"--user={user}", "--entrypoint=bash"])
    assert sorted(found.stdout.split()) == sorted(WRITABLE)


def test_the_virtual_environment_is_roots_and_read_only(host: Any) -> None:
    assert host.check_output("command -v python") == "/opt/venv/bin/python"
    assert host.check_output("find /opt/venv ! -user root -o ! -group root") == ""
    assert host.run("touch /opt/venv/lib/python3*/site-packages/x").rc != 0


#: everything at once
STRICT = (
    "--user=12345:12345",
    "--read-only",
    "--tmpfs=/tmp:exec",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=none",
)
COMPILE = "import torch; print(torch.compile(lambda x: x * 2 + 1)(torch.ones(8)).sum().item())"


def test_torch_runs_and_compiles_with_everything_taken_away(hosts: Callable[..., Any]) -> None:
    assert hosts(*STRICT).check_output(f"python -c '{COMPILE}'") == "24.0"


@pytest.mark.parametrize(
    "options",
    [
        ("--user=12345:12345",),
        ("--user=0:0",),
        ("--read-only", "--tmpfs=/tmp:exec"),
        ("--cap-drop=ALL", "--security-opt=no-new-privileges"),
        ("--network=none",),
    ],
    ids=lambda options: "+".join(option.strip("-").split("=")[0] for option in options),
)
def test_torch_runs_and_compiles_under(options: tuple[str, ...]) -> None:
    """On the smallest variant: the options act on the container, not on what is in it."""
    image = containers.image(containers.smallest())
    with containers.container(image, [*containers.ROOMY, *options]) as running:
        assert running.exec("python", "-c", COMPILE) == "24.0\n"


def test_every_cache_is_one_folder_that_any_uid_can_write(hosts: Callable[..., Any], config: dict[str, Any]) -> None:
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    caches = {key: value for key, value in environment.items() if value.startswith("/tmp/torch-doctor-cache")}
    assert set(caches) >= {
        "XDG_CACHE_HOME",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "TORCH_HOME",
        "CUDA_CACHE_PATH",
        "HF_HOME",
        "MPLCONFIGDIR",
    }
    for options in [(), ("--user=54321:54321", "--read-only", "--tmpfs=/tmp:exec")]:
        for folder in caches.values():
            hosts(*options).check_output(f"mkdir -p {folder} && touch {folder}/x && rm {folder}/x")


def test_any_uid_has_a_name_and_a_home(hosts: Callable[..., Any]) -> None:
    host = hosts("--user=12345:12345")
    script = "import getpass, os, pwd; print(getpass.getuser(), os.path.expanduser('~'), pwd.getpwuid(12345).pw_uid)"
    assert host.check_output(f'python -c "{script}"') == "trainer /home/trainer 12345"
    assert host.check_output("touch ~/x && rm ~/x; whoami") == "uid-12345"

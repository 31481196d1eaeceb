"""How long the command takes to say something, and what the entrypoint adds to a start."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness import Row, medians, ratio
from support import containers

IMPORTS = ["python", "-c", "import typer, rich.console"]
COMMANDS = {
    "imports": IMPORTS,
    "help": ["torch-doctor", "--help"],
    "quick": ["torch-doctor", "check", "--select", "shm,gpu,fs,ses"],
}
WHOLE = {
    "check": ["torch-doctor", "check"],
    "collect_env": ["python", "-m", "torch.utils.collect_env"],
}
MOST_MS = 60


def inside(container: containers.Container, commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    """Medians, timed within the container: Docker's own share is in none of them."""
    harness = (containers.ROOT / "tests" / "bench" / "harness.py").read_text(encoding="utf-8")
    task = json.dumps({"commands": commands, "rounds": rounds})
    done = containers.docker("exec", "--interactive", container.id, "python", "-c", harness, stdin=task, timeout=900)
    return dict(json.loads(done.stdout))


def entrypoint(image: str, *options: str) -> tuple[float, float]:
    """Milliseconds that the entrypoint adds to a start of `true`, and those of the start without it."""
    run = [containers.client(), "run", "--rm", *options]
    times = medians({"with": [*run, image, "true"], "without": [*run, "--entrypoint", "true", image]}, rounds=25)
    return (times["with"] - times["without"]) * 1000, times["without"] * 1000


def rows() -> Iterator[Row]:
    image = containers.image("cuda" if "cuda" in containers.variants() else containers.variants()[0])
    with containers.container(image, containers.ROOMY) as container:
        quick = inside(container, COMMANDS, rounds=11)
        yield ratio('`torch-doctor --help` / `python -c "import typer, rich.console"`', quick, "help", "imports", 1.5)
        yield ratio("`check --select shm,gpu,fs,ses` / the same", quick, "quick", "imports", 4)
        whole = inside(container, WHOLE, rounds=5)
        yield ratio("`check` / `python -m torch.utils.collect_env`", whole, "check", "collect_env", 1)
    for name, options in (("plain `docker run`", ()), ("--shm-size=2g", containers.ROOMY)):
        added, without = entrypoint(image, *options)
        what = f"entrypoint, over `--entrypoint` bypassing it, {name}"
        yield Row(what, f"at most {MOST_MS} ms", f"{added:.0f} ms (on {without:.0f} ms)", added <= MOST_MS)
    warned, without = entrypoint(image, "--env=TORCH_DOCTOR_SHM=off")
    yield Row(
        "entrypoint, where the preflight has something to say", "", f"{warned:.0f} ms (on {without:.0f} ms)", None
    )

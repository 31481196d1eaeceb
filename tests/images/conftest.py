"""Fixtures over the variants under test. Every test in this folder needs a Docker engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import testinfra
from support import containers

HERE = Path(__file__).parent

#: starts a container with these options once, and returns testinfra's view of it
Hosts = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session", params=containers.variants())
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def image(variant: str) -> str:
    return containers.image(variant)


@pytest.fixture(scope="session")
def hosts(image: str) -> Iterator[Hosts]:
    """``hosts("--user", "12345:12345")``: one container per set of options, kept for the session."""
    with ExitStack() as stack:
        running: dict[tuple[str, ...], Any] = {}

        def start(*options: str) -> Any:
            if options not in running:
                container = stack.enter_context(containers.container(image, (*containers.ROOMY, *options)))
                running[options] = testinfra.get_host(f"docker://{container.id}")
            return running[options]

        yield start


@pytest.fixture(scope="session")
def host(hosts: Hosts) -> Any:
    """A plain container with enough shared memory."""
    return hosts()


@pytest.fixture(scope="session")
def manifest(host: Any) -> dict[str, Any]:
    return dict(json.loads(host.file(f"{containers.SHARE}/manifest.json").content_string))


@pytest.fixture(scope="session")
def config(image: str) -> dict[str, Any]:
    """The image's configuration: environment, labels, user, entrypoint."""
    inspected = json.loads(containers.docker("image", "inspect", image).stdout)
    return dict(inspected[0]["Config"])


@pytest.fixture(scope="session")
def row(variant: str) -> dict[str, str]:
    """The variant's row of images/versions.toml, as the build arguments that come from it."""
    import subprocess

    listing = subprocess.run(
        ["python3", containers.ROOT / "images" / "versions.py", "build-args", variant],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return dict(line.split("=", 1) for line in listing.stdout.splitlines())

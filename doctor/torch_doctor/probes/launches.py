"""Finds how the script beside it is started in a container: compose services and docker run lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from torch_doctor.facts.script import Launch

COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
SHELL = ("*.sh", "Makefile", "*.mk", "justfile")
#: larger files are no launch scripts, in bytes
MAX_BYTES = 1 << 18
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Launches(Sequence[Launch]):
    """The launches of one script, looked for when they are asked for."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._found: list[Launch] | None = None

    def _all(self) -> list[Launch]:
        if self._found is None:
            self._found = list(_find(self._script))
        return self._found

    @overload
    def __getitem__(self, at: int) -> Launch: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Launch]: ...
    def __getitem__(self, at: int | slice) -> Launch | Sequence[Launch]:
        """One launch, or some."""
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all())


def _find(script: Path) -> Iterator[Launch]:
    for name in COMPOSE:
        yield from compose(str(script.parent / name), _text(script.parent / name), script.name)
    for pattern in SHELL:
        for path in sorted(script.parent.glob(pattern)):
            yield from docker_run(str(path), _text(path), script.name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MAX_BYTES else ""
    except OSError:
        return ""


def size(text: str) -> int | None:
    """``8g``, ``512mb``, ``"1gb"`` or a number of bytes, as bytes; None where it is none (a variable)."""
    match = re.fullmatch(r"['\"]?(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?['\"]?", text.strip().lower())
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def compose(path: str, text: str, script: str) -> Iterator[Launch]:
    """The services of a compose file whose command names the script, read by indentation."""
    if script not in text:
        return
    block: list[tuple[int, str]] = []
    inside = False
    for number, line in enumerate([*text.split("\n"), "end:"], 1):
        if re.match(r"\S", line) and not line.startswith("#"):
            yield from _service(path, block, script)
            block, inside = [], line.startswith("services:")
            continue
        if inside and re.match(r"(?:  |\t)[\w.-]+:\s*(?:#.*)?$", line):
            yield from _service(path, block, script)
            block = [(number, line)]
        elif inside and block:
            block.append((number, line))


def _service(path: str, block: list[tuple[int, str]], script: str) -> Iterator[Launch]:
    text = "\n".join(line.split(" #")[0] for _, line in block)
    if not block or script not in text or "<<:" in text or "extends:" in text:
        return
    shm = re.search(r"^\s+shm_size:\s*(.+?)\s*$", text, re.MULTILINE)
    host = re.search(r"^\s+ipc:\s*['\"]?(?:host|shareable|service:|container:)", text, re.MULTILINE)
    if (shm is not None and size(shm[1]) is None) or re.search(r":\s*/dev/shm|/dev/shm\b", text):
        return
    name = block[0][1].strip().rstrip(":")
    yield Launch(path, block[0][0], f"service {name}", size(shm[1]) if shm else None, host is not None)


def docker_run(path: str, text: str, script: str) -> Iterator[Launch]:
    """The ``docker run`` commands of a shell script or Makefile that name the script."""
    if script not in text:
        return
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first, command = at, lines[at]
        while command.endswith("\\") and at + 1 < len(lines):
            at += 1
            command = command[:-1] + " " + lines[at]
        at += 1
        if not re.search(r"\b(?:docker|podman|nerdctl)\s+(?:container\s+)?run\b", command) or script not in command:
            continue
        if command.lstrip().startswith("#") or "/dev/shm" in command:
            continue
        shm = re.search(r"--shm-size[= ]\s*(\S+)", command)
        if (shm is not None and size(shm[1]) is None) or re.search(r"\$\{?\w*(?:ARGS|OPTS|FLAGS)", command):
            continue
        host = re.search(r"--ipc[= ]\s*(?:host|container|shareable)", command)
        yield Launch(path, first + 1, "docker run", size(shm[1]) if shm else None, host is not None)

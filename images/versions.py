#!/usr/bin/env python3
"""Reads images/versions.toml and hands its values to make, to uv and to the Dockerfile.

Standard library only: it runs before anything is installed. Python 3.10 has no tomllib; there pip's own copy
of the parser serves.

    versions.py variants                  names, one a line, the default first
    versions.py default                   the default's name
    versions.py get VARIANT KEY           one value, e.g. `get cuda minimum_driver`
    versions.py build-args VARIANT        NAME=VALUE lines for `docker build --build-arg`
    versions.py pins VARIANT|tools        requirement lines that fix the versions in a lock
    versions.py sync-dockerfile [--check] the default variant's values as ARG defaults in the Dockerfile
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).resolve().parent
TABLE = HERE / "versions.toml"
DOCKERFILE = HERE.parent / "Dockerfile"
BLOCK = re.compile(r"(?<=# versions\.toml: begin\n).*?(?=# versions\.toml: end\n)", re.DOTALL)


def load(path: Path = TABLE) -> dict[str, Any]:
    """Returns the table; raises OSError or tomllib.TOMLDecodeError."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def variants(table: dict[str, Any]) -> list[str]:
    """Names of the rows, the default first."""
    return sorted(table["variant"], key=lambda name: (name != table["default"], name))


def row(table: dict[str, Any], variant: str) -> dict[str, Any]:
    """One variant with the values of its Debian release merged in; raises KeyError for an unknown name."""
    own = table["variant"][variant]
    debian = table["debian"][own["debian"]]
    digest = f"@{debian['digest']}" if debian["digest"] else ""
    return {"local_wheel": False, **own, **debian, "variant": variant, "base_image": debian["image"] + digest}


def doctor_version() -> str:
    """The version that doctor/pyproject.toml states."""
    project = tomllib.loads((HERE.parent / "doctor" / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def build_args(table: dict[str, Any], variant: str) -> dict[str, str]:
    """What the Dockerfile declares as ARG, in its order."""
    values = row(table, variant)
    return {
        "BASE_IMAGE": values["base_image"],
        "VARIANT": variant,
        "PYTHON_VERSION": values["python"],
        "DEBIAN_RELEASE": values["debian"],
        "TORCH_VERSION": values["torch"],
        "TORCH_CUDA": values["torch_cuda"],
        "MINIMUM_DRIVER": values["minimum_driver"],
        "REQUIRE_CUDA": values["require_cuda"],
        "DOCTOR_VERSION": doctor_version(),
        "SOURCE_DATE_EPOCH": str(table["tools"]["source_date_epoch"]),
    }


def pins(table: dict[str, Any], name: str) -> list[str]:
    """Requirement lines for `uv pip compile --constraints`."""
    tools = table["tools"]
    own = [] if name == "tools" else [f"torch=={row(table, name)['torch']}"]
    return own + [f"{tool}=={tools[tool]}" for tool in ("uv", "pip", "hatchling")]


def dockerfile_with_defaults(table: dict[str, Any], text: str) -> str:
    """The Dockerfile's text with the ARG block written from the default variant; ValueError without one."""
    args = build_args(table, table["default"])
    block = "".join(f'ARG {name}="{value}"\n' for name, value in args.items())
    if not BLOCK.search(text):
        raise ValueError("the Dockerfile has no '# versions.toml: begin' block")
    return BLOCK.sub(lambda _: block, text, count=1)


def sync_dockerfile(table: dict[str, Any], check: bool) -> int:
    """Rewrites the block; with check only compares. Returns an exit status."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    wanted = dockerfile_with_defaults(table, text)
    if text == wanted:
        return 0
    if check:
        print("Dockerfile: ARG defaults differ from images/versions.toml; run: make lock", file=sys.stderr)
        return 1
    DOCKERFILE.write_text(wanted, encoding="utf-8")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("variants")
    commands.add_parser("default")
    get = commands.add_parser("get")
    get.add_argument("variant")
    get.add_argument("key")
    for name in ("build-args", "pins"):
        commands.add_parser(name).add_argument("variant")
    commands.add_parser("sync-dockerfile").add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    table = load()
    known = [*variants(table), "tools"]
    if getattr(args, "variant", known[0]) not in known:
        print(f"no variant {args.variant!r}; there are: {', '.join(known[:-1])}", file=sys.stderr)
        return 2
    if args.command == "sync-dockerfile":
        return sync_dockerfile(table, args.check)
    print("\n".join(_lines(table, args)))
    return 0


def _lines(table: dict[str, Any], args: argparse.Namespace) -> list[str]:
    if args.command == "variants":
        return variants(table)
    if args.command == "default":
        return [table["default"]]
    if args.command == "get":
        value = row(table, args.variant)[args.key]
        return [str(value).lower() if isinstance(value, bool) else str(value)]
    if args.command == "pins":
        return pins(table, args.variant)
    return [f"{name}={value}" for name, value in build_args(table, args.variant).items()]


if __name__ == "__main__":
    sys.exit(main())

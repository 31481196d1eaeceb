"""Compressed size of the default image, layer by layer, and of what an upgrade of the doctor moves."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO

from harness import Row
from support import containers

#: the official runtime image, compressed, in MB, and the share of it that is the budget
OFFICIAL_MB = 4260
SHARE = 0.72
UPGRADE_MB = 2

#: gzip takes minutes: sizes are kept by the layer's digest
CACHE = containers.ROOT / ".make" / "layer-sizes.json"


def compressed(stream: IO[bytes]) -> int:
    """Bytes after gzip, level 6 as registries use."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    total = 0
    while block := stream.read(1 << 20):
        total += len(packer.compress(block))
    return total + len(packer.flush())


def saved_layers(image: str) -> dict[str, int]:
    """Compressed size of each layer by its name in `docker save`."""
    sizes: dict[str, int] = {}
    with subprocess.Popen([containers.client(), "save", image], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        names: list[str] = []
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if member.name == "manifest.json":
                    names = json.loads(content.read())[0]["Layers"]
                elif not member.name.endswith((".json", "VERSION", "repositories", "index.json")):
                    sizes[member.name] = compressed(content)
    return {name: sizes[name] for name in names}


def layer_sizes(image: str) -> list[int]:
    """Compressed bytes of each layer, the base first."""
    digests = json.loads(containers.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)
    known: dict[str, int] = json.loads(CACHE.read_text(encoding="utf-8")) if CACHE.exists() else {}
    if not set(digests) <= set(known):
        known |= dict(zip(digests, saved_layers(image).values(), strict=True))
        CACHE.parent.mkdir(exist_ok=True)
        CACHE.write_text(json.dumps(known), encoding="utf-8")
    return [known[digest] for digest in digests]


def rows() -> Iterator[Row]:
    image = "torch-doctor:latest"
    sizes = layer_sizes(image)
    total = sum(sizes) / 1e6
    budget = SHARE * OFFICIAL_MB
    each = ", ".join(f"{size / 1e6:.1f}" for size in sizes if size > 50_000)
    yield Row(
        "default image, compressed",
        f"at most {SHARE:g} x the official runtime image's {OFFICIAL_MB / 1000:g} GB: {budget:.0f} MB",
        f"{total:.0f} MB = {total / OFFICIAL_MB:.3f} x; layers above 50 kB, base first: {each} MB",
        total <= budget,
    )
    yield Row(
        "upgrade of the doctor alone",
        f"at most {UPGRADE_MB} MB to pull",
        f"{sizes[-1] / 1e6:.2f} MB",
        sizes[-1] <= UPGRADE_MB * 1e6,
    )

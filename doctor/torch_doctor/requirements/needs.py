"""``--need KEY=VALUE``, ``--gpus`` and ``--sample-bytes``: what the user states about the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch_doctor.errors import DoctorError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_CAPABILITY = re.compile(r"(?:sm_?)?(\d{1,2})\.?(\d)", re.IGNORECASE)

ALL = "all"


def size(text: str, reference: str) -> int:
    """``16g``, ``512MiB``, ``1.5G`` or plain bytes, as bytes. Powers of 1024, as docker reads them.

    Raises:
        DoctorError: where it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise DoctorError(reference, f"{text!r} is not a size", "write bytes, or a number with k, m, g or t: 16g")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


def count(text: str, reference: str) -> int:
    """A whole number from 0 on.

    Raises:
        DoctorError: where it is none.
    """
    if not text.strip().isdecimal():
        raise DoctorError(reference, f"{text!r} is not a whole number", "write a number from 0 on")
    return int(text)


def gpu_count(text: str, reference: str) -> int | None:
    """A number of GPUs; None for ``all``; ``device=0,2`` and ``none`` as docker and people write them.

    Raises:
        DoctorError: where it is neither.
    """
    word = text.strip().strip("\"'").lower()
    if word == ALL:
        return None
    if word in ("none", "no"):
        return 0
    if word.startswith("device="):
        return len([d for d in word.removeprefix("device=").split(",") if d])
    if not word.isdecimal():
        raise DoctorError(reference, f"{text!r} is not a number of GPUs", "write a number, all or none")
    return int(word)


def capability(text: str, reference: str) -> tuple[int, int]:
    """``8.0``, ``80`` or ``sm_80`` as (8, 0).

    Raises:
        DoctorError: where it is no compute capability.
    """
    match = _CAPABILITY.fullmatch(text.strip())
    if not match:
        raise DoctorError(reference, f"{text!r} is not a compute capability", "write it as 8.0 or sm_80")
    return int(match[1]), int(match[2])


#: key of --need -> field of Requirements, and how its value is read
KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "gpus": ("gpus", gpu_count),
    "gpu-memory": ("gpu_memory_bytes", size),
    "shm": ("shm_bytes", size),
    "memory": ("memory_bytes", size),
    "disk": ("disk_bytes", size),
    "cpus": ("cpus", count),
    "workers": ("stated_workers", count),
    "world-size": ("world_size", count),
    "compute-capability": ("min_compute_capability", capability),
}
ALIASES = {"gpu": "gpus", "vram": "gpu-memory", "shm-size": "shm", "ram": "memory", "mem": "memory", "cpu": "cpus"}
#: words of --need without a value: what the run uses
FLAGS = frozenset({"compile", "h5py", "lmdb", "zarr", "sqlite3", "ddp", "fsdp", "bf16", "fp16", "fp8"})


def parse(items: Iterable[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Fields of Requirements that ``--need`` states, and each need as written under its key.

    Several may stand in one item, parted by commas (``gpus=1,shm=8g``). A key given twice: the last wins.

    Raises:
        DoctorError: for an unknown key, a missing value, or one that cannot be read.
    """
    values: dict[str, Any] = {}
    stated: dict[str, str] = {}
    uses: set[str] = set()
    for item in _split(items):
        key, separator, text = (part.strip() for part in item.partition("="))
        key = key.lower().replace("_", "-")
        key = ALIASES.get(key, key)
        if key in FLAGS:
            _flag(key, separator, text, item, uses, stated)
            continue
        if key not in KEYS:
            raise DoctorError(
                f"--need {item}", f"unknown need {key!r}", f"known: {', '.join([*KEYS, *sorted(FLAGS)])}"
            )
        if not text:
            raise DoctorError(f"--need {item}", f"{key} has no value", f"write {key}=VALUE")
        field, read = KEYS[key]
        values[field] = read(text, f"--need {item}")
        stated[key] = text
    if uses:
        values["uses"] = frozenset(uses)
    return values, stated


def _flag(key: str, separator: str, text: str, item: str, uses: set[str], stated: dict[str, str]) -> None:
    word = text.lower() if separator else "yes"
    if word in ("yes", "true", "1", "on"):
        uses.add(key)
    elif word in ("no", "false", "0", "off"):
        uses.discard(key)
    else:
        raise DoctorError(f"--need {item}", f"{text!r} is neither yes nor no", f"write --need {key}")
    stated[key] = word


def _split(items: Iterable[str]) -> Iterable[str]:
    # device=0,2 keeps its comma: a part that has no "=" and no known word belongs to the one before it
    for item in items:
        pending = ""
        for part in item.split(","):
            if pending and part.strip().isdecimal():
                pending += f",{part}"
                continue
            if pending:
                yield pending
            pending = part.strip()
        if pending:
            yield pending

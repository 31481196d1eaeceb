"""A redacted archive of a post-mortem, to be sent to somebody else."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from torch_doctor.errors import DoctorError
from torch_doctor.facts.log import LogFacts
from torch_doctor.files import write_atomic
from torch_doctor.redact import redact_text, user_names


def write(path: Path, files: Mapping[str, str]) -> None:
    """Write the texts as files of one .tar.gz, each without secrets, user names and home folders.

    Raises:
        DoctorError: where the archive cannot be written.
    """
    names = user_names()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            data = redact_text(text, names).encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"torch-doctor-bundle/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    try:
        write_atomic(path, packed.getvalue())
    except OSError as error:
        raise DoctorError(
            str(path), f"cannot be written: {error.strerror}", "give --bundle a writable file"
        ) from error


def excerpt(log: LogFacts) -> str:
    """The lines that were kept of a log, with their numbers, and the gaps marked."""
    shown: list[str] = []
    previous = 0
    for line in log.lines:
        if line.number > previous + 1:
            shown.append("...")
        rank = f" [rank{line.rank}]" if line.rank is not None else ""
        shown.append(f"{line.number}{rank} {line.text}")
        previous = line.number
    return "\n".join(shown) + "\n"


def plain(values: object) -> str:
    """Values as indented JSON."""
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) + "\n"

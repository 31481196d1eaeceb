"""Child-process scripts for what can hang or crash: CUDA init, workers, HDF5, compile, torch's import.

Each script stands alone (standard library, and what it probes): it runs in the user's interpreter, which need
not have torch_doctor. It reads one JSON object from stdin and writes one to the file descriptor in its last
argument; stdout and stderr stay free for whatever the probed library prints.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_doctor import process
from torch_doctor.model import FailureKind, ProbeFailure

HERE = Path(__file__).parent
#: without the site module and its .pth files, which can take longer than such a script
ALONE = ("-I", "-S", "-u")
_LIMIT_BYTES = 8 << 20


def call(
    script: str,
    payload: Mapping[str, Any],
    *,
    python: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    flags: Sequence[str] = ("-u",),
) -> dict[str, Any] | ProbeFailure:
    """Run ``probes/isolated/<script>.py`` in ``python`` and return the object that it wrote.

    ``flags`` go to the interpreter: ``ALONE`` for a script that needs nothing but the standard library.

    Returns:
        The child's JSON object; or ProbeFailure(TIMEOUT | SIGNAL | ERROR) with the signal named and the last
        lines of stderr as evidence; or ProbeFailure(UNAVAILABLE) where the interpreter does not exist.
    """
    reader, writer = os.pipe()
    chunks: list[bytes] = []
    thread = threading.Thread(target=_read_all, args=(reader, chunks), daemon=True)
    thread.start()
    command: Sequence[str] = [python, *flags, str(HERE / f"{script}.py"), str(writer)]
    try:
        done = process.run(command, timeout=timeout, env=env, cwd=cwd, input=json.dumps(payload), pass_fds=(writer,))
    finally:
        os.close(writer)
    thread.join(timeout=2)
    data = b"".join(chunks)
    if isinstance(done, ProbeFailure):
        return replace(done, evidence={**done.evidence, "wrote_bytes": len(data)})
    return _result(script, done, data)


def _read_all(descriptor: int, chunks: list[bytes]) -> None:
    total = 0
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while total < _LIMIT_BYTES and (chunk := stream.read(1 << 16)):
            chunks.append(chunk)
            total += len(chunk)


def _result(script: str, done: process.Completed, data: bytes) -> dict[str, Any] | ProbeFailure:
    evidence = {"status": done.status, "stderr_tail": process.tail(done.stderr), "wrote_bytes": len(data)}
    if done.signal_name:
        reason = f"the {script} probe was killed by {done.signal_name}"
        return ProbeFailure(reason, FailureKind.SIGNAL, {**evidence, "signal": done.signal_name})
    try:
        value = json.loads(data)
    except ValueError:
        last = process.tail(done.stderr, 1)
        reason = f"the {script} probe ended with status {done.status}" + (f": {last[0]}" if last else "")
        return ProbeFailure(reason, FailureKind.ERROR, evidence)
    return value if isinstance(value, dict) else {"value": value}

"""What the command's environment gets so that a crash explains itself. What the user has set is never touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch_doctor.errors import DoctorError

#: name -> value; {folder} is the session's. None of it slows a run down.
#: TORCHELASTIC_ERROR_FILE: torch.distributed.elastic.multiprocessing.errors. TORCH_FR_*, TORCH_NCCL_DUMP_ON_TIMEOUT:
#: the flight recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp, ProcessGroupNCCL.hpp; torch 2.9 and later,
#: looked up 2026-11). The rank is added to the dump's name.
CRASH_SETTINGS: Mapping[str, str] = {
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "TORCHELASTIC_ERROR_FILE": "{folder}/error.json",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_FR_DUMP_TEMP_FILE": "{folder}/flight-recorder-",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
#: older names: where the user has set one, its newer name would override it
_OLDER = {
    "TORCH_FR_BUFFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE": "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
}
#: of the view that run was typed in; the command has a terminal of its own
_NOT_INHERITED = frozenset({"TMUX", "TMUX_PANE", "STY", "WINDOW", "COLUMNS", "LINES"})
#: options of ``run`` itself, which would otherwise reach a torch-doctor inside the session
_OPTIONS = frozenset(
    f"TORCH_DOCTOR_{n}" for n in ("NAME", "BACKEND", "CHECK", "RESTART", "GRACE", "DETACH", "ENV", "CWD")
)


def for_command(
    inherited: Mapping[str, str], added: Mapping[str, str], name: str, folder: Path, term: str
) -> dict[str, str]:
    """The environment of a session's command.

    Args:
        inherited: of the process that starts it.
        added: what --env gives; it wins over everything else.
    """
    kept = {k: v for k, v in inherited.items() if k not in _NOT_INHERITED and k not in _OPTIONS}
    settings = {
        key: value.format(folder=folder)
        for key, value in CRASH_SETTINGS.items()
        if key not in kept and _OLDER.get(key, "") not in kept
    }
    own = {"TERM": term, "TORCH_DOCTOR_SESSION": name, "TORCH_DOCTOR_SESSION_DIR": str(folder)}
    return {**kept, **settings, **own, **added}


def parse(pairs: list[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """``--env K=V`` as a mapping; ``--env K`` passes the present value on, as docker does.

    Raises:
        DoctorError: where a pair has no name.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or "\0" in pair:
            raise DoctorError(f"--env {pair!r}", "is not NAME=VALUE")
        if equals:
            found[key] = value
        elif key in inherited:
            found[key] = inherited[key]
    return found

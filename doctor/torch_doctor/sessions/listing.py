"""``ps``: what there is to say about every session."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_doctor import __version__
from torch_doctor.errors import DoctorError
from torch_doctor.model import SCHEMA_VERSION, mib
from torch_doctor.sessions import gpu, launch, log, proc, store, verdict
from torch_doctor.sessions.state import STARTING, State


@dataclass(frozen=True)
class Row:
    """One session. ``age_s`` since its start; ``gpu_memory_bytes`` of its process tree, None where not visible."""

    name: str
    state: str
    age_s: float
    duration_s: float | None
    exit_status: int | None
    signal: str
    reason: str
    cause: str
    command: list[str]
    cwd: str
    backend: str
    last_line: str
    gpu_memory_bytes: int | None
    peak_rss_bytes: int | None
    restarts: int
    log: str
    log_error: str
    log_lost_bytes: int
    created: float
    ended: float | None
    pid: int | None
    oom_kills: int | None
    stopped_by: str


def rows() -> list[Row]:
    """Every session, running ones first, then by age, the youngest first."""
    found = []
    for place in store.session_folders():
        try:
            found.append((place, launch.current(place)))
        except DoctorError as error:
            found.append((place, State(place.name, (), status="unreadable", log_error=error.message)))
    found += [(place, _unstarted(place)) for place in launch.in_preflight()]
    memory = _gpu_memory([known for _, known in found if known.live])
    listed = [_row(str(place / store.LOG), known, memory.get(known.name)) for place, known in found]
    return sorted(listed, key=lambda r: (r.pid is None, r.age_s, r.name))


def _unstarted(place: Path) -> State:
    try:
        since = (place / store.LOCK).stat().st_mtime
    except OSError:  # given up in this moment
        since = time.time()
    return State(place.name, (), status=STARTING, created=since)


def _row(path: str, known: State, gpu_memory: int | None) -> Row:
    how = known.exit if not known.live else None
    return Row(
        name=known.name,
        state=known.status,
        age_s=round(age(known), 1),
        duration_s=how.duration if how else None,
        exit_status=known.exit_status if not known.live else None,
        signal=how.signal if how else "",
        reason=how.reason if how else "",
        cause=known.postmortem,
        command=list(known.command),
        cwd=known.cwd,
        backend=known.backend,
        last_line=log.last_line(Path(path)),
        gpu_memory_bytes=gpu_memory,
        peak_rss_bytes=how.peak_tree_rss_bytes if how else None,
        restarts=max(0, len(known.attempts) - 1),
        log=path,
        log_error=known.log_error,
        log_lost_bytes=sum(g.lost_bytes for g in known.log_gaps),
        created=known.created,
        ended=known.ended,
        pid=known.child.pid if known.live and known.child else None,
        oom_kills=how.oom_kills if how else None,
        stopped_by=how.stopped_by if how else "",
    )


def age(known: State) -> float:
    """Seconds since the start: by a clock that nobody can set while it runs on this boot, else by the wall clock."""
    if known.live and known.started_boottime and not proc.elsewhere(known.supervisor):
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - known.started_boottime)
    return max(0.0, time.time() - known.created)


def _gpu_memory(live: Sequence[State]) -> dict[str, int]:
    if not live:
        return {}
    used = gpu.memory_of_processes()
    if not used:
        return {}
    processes = proc.all_processes()
    found = {}
    for known in live:
        if known.supervisor and proc.alive(known.supervisor):
            tree = [s.pid for s in proc.descendants(known.supervisor.pid, processes)]
            found[known.name] = sum(used.get(pid, 0) for pid in tree)
    return found


def as_json(listed: Sequence[Row]) -> str:
    """The list as one JSON object."""
    tool = {"name": "torch-doctor", "version": __version__}
    sessions = [asdict(row) for row in listed]
    return (
        json.dumps({"schema_version": SCHEMA_VERSION, "tool": tool, "command": "ps", "sessions": sessions}, indent=2)
        + "\n"
    )


_HEAD = ("NAME", "STATE", "AGE", "EXIT", "GPU", "COMMAND", "LAST LINE")


def as_table(listed: Sequence[Row], width: int) -> str:
    """The list for a person, at most ``width`` columns; below a failed session, why it ended."""
    cells = [_HEAD, *(_cells(row) for row in listed)]
    widths = [max(len(row[i]) for row in cells) for i in range(5)]
    rest = max(20, width - sum(widths) - 2 * 6)
    widths.append(min(max(len(row[5]) for row in cells), rest // 2))
    lines = []
    for row, source in zip(cells, [None, *listed], strict=True):
        text = "  ".join(_cut(cell, size).ljust(size) for cell, size in zip(row, widths, strict=False))
        lines.append(f"{text}  {_cut(row[6], max(0, width - len(text) - 2))}".rstrip())
        if source is not None and (why := source.cause or source.reason or source.log_error):
            lines.append(_cut(f"    {why}", width))
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    exit = "" if row.exit_status is None else row.signal or str(row.exit_status)
    memory = "-" if row.gpu_memory_bytes is None else mib(row.gpu_memory_bytes)
    command = printable(shlex.join(row.command))
    return (row.name, row.state, verdict.duration(row.age_s), exit, memory, command, printable(row.last_line))


def printable(text: str) -> str:
    """Nothing in a command or an output line may steer the terminal: such characters are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."

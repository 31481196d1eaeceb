"""What the user asked for: the facts that come from the command line instead of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch_doctor.facts.requirements import Requirements


@dataclass(frozen=True)
class Request:
    """What a preflight is asked to judge. Every probe is given this.

    Args:
        script: the training script, parsed and never executed; None without one.
        requirements: what that script and ``--need`` ask of the machine.
        timeout: seconds that one isolated probe may take.
        deep: run the slow probes too (a real torch.compile).
        log: the log to explain; ``-`` is standard input.
        log_offset: bytes of the log that belong to an earlier attempt, and are passed over.
        facts: a JSON report of ``check`` from the machine that the log is of.
        live: this machine is the one that the log is of: look at it.
        session: the session whose end is to be explained.
        python: interpreter that has the user's torch; isolated probes run in it.
        data: the folder or file of the training data, where ``--data`` names it.
        start_methods: under which a real DataLoader is tried; ``default`` is the interpreter's own. Empty: no
            loader is tried.
    """

    script: Path | None = None
    requirements: Requirements = field(default_factory=Requirements)
    timeout: float = 30.0
    deep: bool = False
    log: Path | None = None
    log_offset: int = 0
    facts: Path | None = None
    live: bool = False
    session: str = ""
    python: str = "python3"
    data: Path | None = None
    start_methods: tuple[str, ...] = ()

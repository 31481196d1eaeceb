"""Options that several commands share, once each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Format = Annotated[
    Literal["table", "json", "junit", "sarif", "github", "nagios"],
    typer.Option("--format", help="How the report is written."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to this file.")]
Select = Annotated[list[str] | None, typer.Option(help="Only these IDs, names, families or tags.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these IDs, names, families or tags.")]
FailOn = Annotated[
    Literal["error", "warning", "note", "never"], typer.Option(help="Exit with 1 from this severity on.")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds that one probe may take.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List what passed and what was skipped, too.")]

"""The command ``torch-doctor``, also ``python -m torch_doctor``: the application, quick to start and to end."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import NoReturn

gc.set_threshold(200_000, 20, 20)  # before the imports: they make much, and nothing of it is garbage

from torch_doctor.cli import app  # noqa: E402


def main() -> NoReturn:
    """Run the application. What it wrote is out before the end; its memory is left to the kernel.

    To take every module apart costs a tenth of a short command.
    """
    try:
        app.main()
    except SystemExit as end:
        # where the output cannot be written, the interpreter's own way out says so
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
            if isinstance(end.code, int):
                os._exit(end.code)
        raise


if __name__ == "__main__":
    main()

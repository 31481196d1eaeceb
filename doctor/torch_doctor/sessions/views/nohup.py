"""No window at all: the log is followed. Works everywhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from torch_doctor.sessions.viewer import View
from torch_doctor.sessions.views import Subject


class Nohup:
    """The backend."""

    def unusable(self, environment: Mapping[str, str]) -> str:
        """Never: it needs nothing."""
        return ""

    def attach(self, subject: Subject, environment: Mapping[str, str]) -> str:
        """Follow the log until the session ends; Ctrl-C leaves it running."""
        sys.stdout.flush()
        try:
            View(subject.folder, output=sys.stdout.fileno()).run()
        except KeyboardInterrupt:
            print(file=sys.stderr)
        except OSError as error:
            return f"the supervisor does not answer: {error.strerror}"
        return ""


BACKEND = Nohup()

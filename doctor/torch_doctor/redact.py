"""Takes secrets and user names out of what leaves the machine (reports, bundles). Keys stay."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from collections.abc import Mapping

REDACTED = "[redacted]"

_SECRET_KEY = re.compile(
    r"token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|_key$|^key$|auth|cookie|"
    r"dsn|connection_?string|webhook|netrc|session_?id|license_?key",
    re.IGNORECASE,
)
# shapes of well-known tokens, wherever they stand
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_URL_PASSWORD = re.compile(r"(\w[\w+.-]*://)[^/\s:@]*:[^/\s@]+@")
_URL_TOKEN = re.compile(r"([?&](?:[\w-]*(?:token|key|secret|signature|password))=)[^&\s]+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"((?:^|[\s\"'{,(])[\"']?--?[\w-]*(?:token|secret|password|passwd|api[_-]?key)[\"']?[=\s]+[\"']?|"
    r"\b\w*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY(?:_ID)?)[\"']?\s*[=:]\s*[\"']?)[^\s\"',}&]+",
    re.IGNORECASE,
)
_HOME = re.compile(r"(/home/|/Users/)([^/\s:\"']+)")
_AUTH_HEADER = re.compile(r"(Authorization:\s*\w+\s+)\S+", re.IGNORECASE)


def user_names() -> frozenset[str]:
    """Login names of this process's user, from the environment and the password database."""
    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER")}
    with contextlib.suppress(KeyError, OSError):  # a uid without a name has none to hide
        names.add(getpass.getuser())
    # names of the system, and too short ones, say nothing about a person
    return frozenset(n for n in names if len(n) > 2 and n not in {"root", "trainer", "nobody", "user"})


def redact_text(text: str, names: frozenset[str] = frozenset()) -> str:
    """``text`` without tokens, passwords in URLs, values of secret-looking assignments, and user names."""
    text = _URL_PASSWORD.sub(rf"\1{REDACTED}@", text)
    text = _URL_TOKEN.sub(rf"\1{REDACTED}", text)
    text = _AUTH_HEADER.sub(rf"\1{REDACTED}", text)
    text = _ASSIGNED.sub(rf"\1{REDACTED}", text)
    text = _SECRET_VALUE.sub(REDACTED, text)
    text = _HOME.sub(rf"\1{REDACTED}", text)
    for name in names:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", REDACTED, text)
    return text


def redact_environment(environment: Mapping[str, object]) -> dict[str, object]:
    """A copy with the values of secret-looking names, and secrets and user names within values, redacted."""
    names = user_names()
    return {
        key: REDACTED
        if value and _SECRET_KEY.search(key)
        else (redact_text(value, names) if isinstance(value, str) else value)
        for key, value in environment.items()
    }

"""Words that make a line worth keeping. Coarse on purpose: the signatures judge, this only saves them work."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence

#: in lower case; one is in each line that a signature matches, or in a line near it (a test holds that)
STEMS = tuple(
    stem.encode()
    for stem in [
        # words of failure, of the machine, and of what explains a failure
        "error",
        "exception",
        "traceback",
        "warn",
        "fail",
        "fatal",
        "abort",
        "kill",
        "signal",
        "dumped",
        "crash",
        "segmentation",
        "panic",
        "unable",
        "invalid",
        "mismatch",
        "missing",
        "unexpected",
        "exited",
        "oom",
        "stall",
        "stuck",
        "dead",
        "hang",
        "deadlock",
        "leaked",
        "corrupt",
        "malformed",
        "unsupported",
        "undefined",
        "duplicate",
        "death",
        "refused",
        "denied",
        "interrupt",
        "freed",
        "evict",
        "preempt",
        "gradient overflow",
        "slowdown",
        "inconsisten",
        "abruptly",
        "insufficient",
        "assert",
        "xid",
        "nvrm",
        "recompile",
        "restart",
        "resource_tracker",
        "num_workers",
        "num-workers",
        "read-only",
        "ld_preload",
        "torchrun",
        "git-lfs",
        "out_of_memory",
        "with_phil",
        "cache_size_limit",
        "torch-doctor",
        "strict=false",
        "suspend",
        "disconnected",
        "backtrace",
        "deadline",
    ]
) + tuple(
    stem.encode()
    for stem in (
        "cannot", "can't", "could not", "couldn't", "not found", "not compatible", "no such", "no space", "no usable",
        "no module", "exit code", "exit status", "out of memory", "out of range", "timed out", "timeout", "nccl warn",
        '  file "', "too old", "too many",
        "closing", "direct cause", "during handling", "unsafe permissions",
        "need utf", "not a terminal", "not a tty", "have no name", "locked", "already", "address family",
        "broken pipe", "reset by peer", "not initiali", "not yet", "forward compat", "no longer", "fallen off",
        "is lost", "disk i", "disk q", "disk is", "quota", "expected ", "must be", "must have", "should be",
        "does not", "doesn't", "limit reached", "core dump", "core file", "bad ", "bad_", "terminate", "owned by",
        "unknown terminal", "requires reset", "low on resource", "new process", "no server", "were found",
        "no screen",
        "never reach", "python ", "python3", "truncated", "hangup", "memory",
        "(idle)", "conflict", "limit)", "temporarily", "stopped", "password", "sigterm", "repeated", "[lost",
        "not responding", "only ", "reset ", "exceed", "badzip", "not supported", "not enough", "attempt",
    )
)  # fmt: skip
#: a figure that is none: a stem only where the word ends
STEMS += tuple(f"{word}{end}".encode() for word in ("nan", "inf", "infinity") for end in "\n ,;)]}'\"")
#: metrics and settings whose names only sound alarming
_METRIC = re.compile(
    rb"\b[\w/.]*(?:err|error|errors|loss|fail\w*|miss\w*|timeout\w*|warn\w*|invalid|signal|nan|memory|mem|limit)"
    rb"[\w/]*"
    rb"\s?[=:]\s?-?\.?\d[\d.]*(?:e-?\d+)?%?",
    re.IGNORECASE,
)


def alarming(lines: Sequence[bytes]) -> set[int]:
    """Indexes of the lines that hold an alarming word outside the name of a metric."""
    hits = _holding(lines, STEMS)
    kept = list(hits)
    bare = [_METRIC.sub(b"", lines[i]) for i in kept]
    return {kept[i] for i in _holding(bare, STEMS)}


def _holding(lines: Sequence[bytes], stems: Sequence[bytes]) -> set[int]:
    """Indexes of the lines that hold one of the stems. One search per stem over all lines is what makes it fast."""
    text = b"\n".join(lines).lower() + b"\n"  # a stem may want the end of the line, also of the last one
    ends = list(itertools.accumulate(len(line) + 1 for line in lines))
    found: set[int] = set()
    for stem in stems:
        position = text.find(stem)
        while position >= 0:
            index = bisect.bisect_right(ends, position)
            found.add(index)
            position = text.find(stem, ends[index])
    return found

"""Words that make a line worth keeping. Coarse on purpose: the signatures judge, this only saves them work."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: one of these is in every line that any signature matches, or in a line near it (a test holds that)
WORDS = (
    rb"error|exception|traceback|warn|fail|fatal|abort|kill|signal|dumped|crash|segmentation|panic"
    rb"|cannot|can't|could not|couldn't|unable|not found|not compatible|no such|no space|no usable|no "
    rb"module|denied|refused|invalid|mismatch"
    rb"|missing|unexpected|exited|exit code|exit status|oom|out of memory|out of range|timed "
    rb"out|timeout|stall|hang|deadlock"
    rb"|xid|nvrm|nccl warn|nccl\w*error|  file "
    rb"\"|recompile|cache_size_limit|nan\b|inf\b|restart|preempt|evict|leaked|corrupt|malformed"
    rb"|torch-doctor|python[\d.]* |torchrun|too old|too many|unsupported|undefined|duplicate|death|closing|direct "
    rb"cause"
    rb"|freed|\bbad[_ ]|terminate called|owned by|must have|not a tty|unknown terminal|deadline|requires? reset|git-lfs"
    rb"|out_of_memory|low on resource|interrupt|with_phil|new process|core dump|inconsisten|backtrace|never reach|no server|no screen|abruptly"
    rb"|during handling|unsafe permissions|need utf|not a terminal|have no "
    rb"name|read-only|locked|resource_tracker|sig[a-z]{3,4}\b"
    rb"|num_workers|num-workers|strict=false|suspend|ncclinvalid|ld_preload|already in use|address family|broken "
    rb"pipe|reset by peer|disconnected"
    rb"|not initiali[sz]ed|not yet|forward compat|no longer|lost|fallen|disk|quota|expected|must be|should be|does "
    rb"not|doesn't|only |insufficient|reached|core file|assert"
)
_ALARM = re.compile(WORDS, re.IGNORECASE)
#: metrics whose names only sound alarming
_METRIC = re.compile(
    rb"\b[\w/.]*(?:err|error|errors|loss|fail\w*|miss\w*|timeout|warn\w*|invalid|signal"
    rb"|nan)[\w/]*\s?[=:]\s?-?[\d.]+(?:e-?\d+)?%?",
    re.IGNORECASE,
)


def alarming(lines: Iterable[bytes]) -> list[bool]:
    """For each line, whether it holds an alarming word outside the name of a metric."""
    return [_is_alarming(line) for line in lines]


def _is_alarming(line: bytes) -> bool:
    if not _ALARM.search(line):
        return False
    return _ALARM.search(_METRIC.sub(b"", line)) is not None

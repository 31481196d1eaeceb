"""Lines that frighten and mean nothing: taken out before the signatures look."""

from __future__ import annotations

import re
from dataclasses import replace

from torch_doctor.facts.log import LogFacts

#: (pattern, why it means nothing). Collected from healthy runs of torch 1.9 to 2.15, 2026-11.
BENIGN = (
    (
        r"NCCL INFO (?!Channel [^\n]*via |NET/Socket : Using)",
        "what NCCL_DEBUG=INFO prints on the way, with paths that it tried",
    ),
    (r"\[c10d\][^\n]*errno: (?:97|99)\b", "a node without IPv6: the store goes on with IPv4"),
    (r"^[^\n]*Unable to register cu(?:DNN|FFT|BLAS) factory", "TensorFlow loaded beside torch"),
    (r"Could not load dynamic library|TF-TRT Warning|tensorrt\.so", "optional libraries of TensorFlow"),
    (
        r"huggingface/tokenizers: The current process just got forked",
        "tokenizers switches its threads off, and goes on",
    ),
    (r"fatal: not a git repository", "an experiment tracker that looks for a commit"),
    (r"AssertionError: can only test a child process", "a DataLoader that is torn down at exit"),
    (r"Could not initialize NNPACK", "an old CPU: torch uses other kernels"),
    (r"OOMKilled\W{1,6}false", "docker inspect of a container that was not killed"),
    (r"libibverbs: Warning|Failed to open libibverbs", "no InfiniBand on this node"),
)
_BENIGN = re.compile("|".join(f"(?:{pattern})" for pattern, _ in BENIGN))
#: Python prints errors of __del__, of exit handlers and of logging; they end nothing
_IGNORED = re.compile(
    r"^Exception ignored in|^Error in atexit\._run_exitfuncs|^Exception in thread QueueFeederThread"
    r"|^--- Logging error ---"
)


def without_benign(log: LogFacts) -> LogFacts:
    """The log with those lines emptied; their numbers and places stay."""
    lines = list(log.lines)
    skipping = False
    for i, line in enumerate(lines):
        if _IGNORED.search(line.text):
            skipping = True
        elif skipping:
            skipping = line.text.startswith((" ", "Traceback")) or not line.text
            if not skipping:
                lines[i] = replace(line, text="")
                continue
        if skipping or _BENIGN.search(line.text):
            lines[i] = replace(line, text="")
    return replace(log, lines=tuple(lines))

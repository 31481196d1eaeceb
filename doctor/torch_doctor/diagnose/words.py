"""Expressions and commands that several causes share."""

from __future__ import annotations

#: the run uses worker processes
WORKER = (
    r"DataLoader worker process|num_workers|multiprocessing|Process-\d|worker\.py|_worker_loop|forked|ForkProcess"
)
LINT = "torch-doctor lint train.py"

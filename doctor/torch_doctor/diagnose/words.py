"""Expressions and commands that several causes share."""

from __future__ import annotations

from torch_doctor.model import Remediation

#: the run uses worker processes
WORKER = (
    r"DataLoader worker process|num_workers|multiprocessing|Process-\d|worker\.py|_worker_loop|forked|ForkProcess"
)
LINT = "torch-doctor lint train.py"
#: a tokenizer's warning of a text that the model cannot take, and what mends it
TOO_LONG = r"Token indices sequence length is longer than the specified maximum sequence length"
TRUNCATE = Remediation(
    "Truncate texts to the model's maximal length, split them, or take a model for longer ones",
    (
        "tokenizer(text, truncation=True, max_length=model.config.max_position_embeddings)",
        "tokenizer(text, truncation=True, return_overflowing_tokens=True, stride=64)",
    ),
)

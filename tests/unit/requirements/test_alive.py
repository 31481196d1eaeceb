"""Loaders that have workers at the same time."""

from __future__ import annotations

import ast
import textwrap

import pytest

from torch_doctor.facts.requirements import Requirements
from torch_doctor.requirements.complete import complete
from torch_doctor.requirements.infer import infer
from torch_doctor.requirements.source import Source

SETUP = """
import torch
from itertools import cycle
from torch.utils.data import DataLoader, TensorDataset
big, small = TensorDataset(torch.zeros(9, 1000)), TensorDataset(torch.zeros(9, 10))
train = DataLoader(big, 8, num_workers=2)
val = DataLoader(small, 8, num_workers=2)
"""
BIG, SMALL = 4000 * 8 * 2 * 2, 40 * 8 * 2 * 2


def needed(code: str, setup: str = SETUP) -> int | None:
    source = Source("train.py", ast.parse(setup + textwrap.dedent(code)), 4)
    found: Requirements = complete(infer([source]), {}, needs={}, sample_bytes=None, gpus="")
    return found.shm_bytes


@pytest.mark.parametrize(
    "code",
    [
        "for x in train: ...\nfor x in val: ...",
        "for e in range(3):\n    for x in train:\n        step(x)\n    for x in val:\n        test(x)",
        "for x in train:\n    model.val()\nfor x in val:\n    model.train()",
        "for e in range(3):\n    fit(model, train)\n    evaluate(model, val)",
        "",
    ],
)
def test_loaders_that_follow_each_other_need_the_largest(code: str) -> None:
    assert needed(code) == BIG


@pytest.mark.parametrize(
    "code",
    [
        "for x in train:\n    for y in val: ...",
        "for i, x in enumerate(train):\n    if i % 100 == 0:\n        evaluate(model, val)",
        "for a, b in zip(train, val): ...",
        "for a, b in zip(train, cycle(val)): ...",
        "it = iter(val)\nfor x in train: ...",
        "for x in tqdm(train):\n    self.validate(self.val)",
    ],
)
def test_loaders_that_are_alive_together_need_the_sum(code: str) -> None:
    assert needed(code) == BIG + SMALL


def test_persistent_workers_stay() -> None:
    assert needed("", SETUP.replace("num_workers=2", "num_workers=2, persistent_workers=True")) == BIG + SMALL


def test_loaders_that_a_framework_asks_for_stay() -> None:
    setup = """
import torch
from torch.utils.data import DataLoader, TensorDataset
class Data:
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(9, 1000)), 8, num_workers=2)
    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(9, 10)), 8, num_workers=2)
"""
    assert needed("", setup) == BIG + SMALL


def test_a_helper_that_makes_both() -> None:
    setup = """
import torch
from torch.utils.data import DataLoader, TensorDataset
def make(data):
    return DataLoader(data, 8, num_workers=2)
train = make(TensorDataset(torch.zeros(9, 1000)))
val = make(TensorDataset(torch.zeros(9, 10)))
"""
    assert needed("for x in train: ...\nfor x in val: ...", setup) == BIG
    assert needed("for x in train:\n    test(val)", setup) == BIG + SMALL

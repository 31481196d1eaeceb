"""The DataLoaders of a script: workers, batch size, prefetch, sample size."""

from __future__ import annotations

import ast
import textwrap

import pytest

from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.requirements.infer import infer
from torch_doctor.requirements.source import Source

IMPORTS = """
import argparse, os
import numpy as np
import torch
import torchvision
import torchvision.transforms as T
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""
IMAGE = 3 * 224 * 224 * 4
LABEL = 8


def needs_of(code: str) -> Requirements:
    source = Source("train.py", ast.parse(IMPORTS + textwrap.dedent(code)), cpu_count=6)
    return infer([source], "train.py")


def loader_of(code: str) -> LoaderNeed:
    (loader,) = needs_of(code).loaders
    return loader


@pytest.mark.parametrize(
    ("code", "workers", "batch", "prefetch"),
    [
        ("DataLoader(d)", 0, 1, None),
        ("DataLoader(d, 32)", 0, 32, None),
        ("DataLoader(d, batch_size=32, num_workers=4)", 4, 32, None),
        ("DataLoader(d, 32, True, None, None, 4)", 4, 32, None),
        ("DataLoader(d, batch_size=32, num_workers=4, prefetch_factor=8)", 4, 32, 8),
        ("DataLoader(d, batch_size=B, num_workers=4)", 4, None, None),
        ("DataLoader(d, batch_sampler=s, num_workers=4)", 4, None, None),
        ("DataLoader(d, num_workers=os.cpu_count())", 6, 1, None),
        ("import torch.utils.data as tud\ntud.DataLoader(d, num_workers=2)", 2, 1, None),
        ("torch.utils.data.DataLoader(d, num_workers=2)", 2, 1, None),
        ("kw = {'num_workers': 4, 'batch_size': 16}\nDataLoader(d, **kw)", 4, 16, None),
        ("kw = dict(num_workers=4)\nDataLoader(d, 16, **kw)", 4, 16, None),
        ("kw = {'batch_size': 16}\nif cuda:\n    kw.update({'num_workers': 1})\nDataLoader(d, **kw)", 1, 16, None),
        ("kw = {'batch_size': 16}\nextra = {'num_workers': 3}\nkw.update(extra)\nDataLoader(d, **kw)", 3, 16, None),
        ("kw = {}\nkw['num_workers'] = 5\nDataLoader(d, **kw)", 5, 1, None),
        ("kw = {'num_workers': 4} if use_cuda else {}\nDataLoader(d, **kw)", 4, 1, None),
        ("base = {'num_workers': 2}\nDataLoader(d, **{**base, 'batch_size': 8})", 2, 8, None),
        ("p.add_argument('--workers', default=8)\nDataLoader(d, num_workers=args.workers)", 8, 1, None),
        ("p.add_argument('--workers', default='8', type=int)\nDataLoader(d, num_workers=args.workers)", 8, 1, None),
        ("DataLoader(d, num_workers=args.workers)", None, 1, None),
        ("class My(DataLoader):\n    pass\nMy(d, num_workers=3)", 3, 1, None),
        ("def make(ds, bs, n):\n    return DataLoader(ds, bs, num_workers=n)\nmake(d, 64, 8)", 8, 64, None),
        ("def make(ds, bs=16, n=2):\n    return DataLoader(ds, bs, num_workers=n)\nmake(d, n=8)", 8, 16, None),
        ("def make(ds, n=2):\n    return DataLoader(ds, num_workers=n)", 2, 1, None),
    ],
)
def test_what_the_source_fixes_is_read(
    code: str, workers: int | None, batch: int | None, prefetch: int | None
) -> None:
    loader = loader_of(code)
    assert (loader.workers, loader.batch_size, loader.prefetch_factor) == (workers, batch, prefetch)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("TensorDataset(torch.randn(1000, 3, 224, 224), torch.randint(0, 10, (1000,)))", IMAGE + LABEL),
        ("TensorDataset(torch.randn(N, 3, 224, 224), torch.zeros(N))", IMAGE + 4),
        ("TensorDataset(torch.zeros((10, 8), dtype=torch.float64))", 64),
        ("TensorDataset(torch.zeros(10, 8, dtype=torch.uint8))", 8),
        ("TensorDataset(torch.zeros(10, 8).half())", 16),
        ("TensorDataset(torch.from_numpy(np.zeros((10, 8))))", 64),
        ("TensorDataset(torch.from_numpy(np.zeros((10, 8), dtype=np.float32)))", 32),
        ("TensorDataset(torch.arange(100))", LABEL),
        ("TensorDataset(x)", None),
        ("torchvision.datasets.FakeData(100, (3, 64, 64), transform=T.ToTensor())", 3 * 64 * 64 * 4 + LABEL),
        ("torchvision.datasets.MNIST('d', transform=T.ToTensor())", 28 * 28 * 4 + LABEL),
        ("torchvision.datasets.CIFAR10('d', transform=T.Compose([T.RandomCrop(32), T.ToTensor()]))", 12288 + LABEL),
        ("torchvision.datasets.ImageFolder('d', T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))", IMAGE + LABEL),
        ("torchvision.datasets.ImageFolder('d', T.Compose([T.Resize((64, 32)), T.ToTensor()]))",
         3 * 64 * 32 * 4 + LABEL),
        ("torchvision.datasets.ImageFolder('d', T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()]))",
         IMAGE + LABEL),
        ("torchvision.datasets.ImageFolder('d', T.Compose([T.Resize(256), T.ToTensor()]))", None),
        ("torchvision.datasets.ImageFolder('d', T.Compose([T.RandomResizedCrop(224)]))", None),
        ("torchvision.datasets.ImageFolder('d')", None),
        ("torchvision.datasets.MNIST('d')", None),
        ("something()", None),
    ],
)  # fmt: skip
def test_the_size_of_a_sample_of_a_known_data_set(dataset: str, expected: int | None) -> None:
    assert loader_of(f"DataLoader({dataset}, num_workers=2)").sample_bytes == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return torch.zeros(3, 512, 512)", 3 * 512 * 512 * 4),
        ("return torch.zeros(3, 512, 512), i", 3 * 512 * 512 * 4 + LABEL),
        ("return torch.randn(3, 8), 1", 96 + LABEL),
        ("x = torch.ones(3, 8)\nreturn x, torch.tensor(0)", 96 + LABEL),
        ("return {'x': torch.zeros(4), 'y': torch.zeros(2, dtype=torch.int64)}", 32),
        ("return np.zeros((3, 8), dtype='float32')", 96),
        ("return np.random.rand(3, 8).astype('float32')", None),
        ("return torch.randn(3, 8) * 2 + 1", 96),
        ("return self.data[i]", 800),
        ("return load(i)", None),
        ("if i:\n    return torch.zeros(3)\nreturn torch.zeros(4)", None),
    ],
)
def test_the_size_of_a_sample_of_an_own_data_set(body: str, expected: int | None) -> None:
    code = f"""
class Data(Dataset):
    def __init__(self):
        self.data = torch.zeros(1000, 200)
    def __getitem__(self, i):
{textwrap.indent(body, " " * 8)}
DataLoader(Data(), num_workers=2)
"""
    assert loader_of(code).sample_bytes == expected


def test_options_that_lead_to_themselves_end() -> None:
    code = "kw = {**kw, 'num_workers': 2}\nkw.update(kw)\nother = {**kw}\nkw.update(other)\nDataLoader(d, **kw)"
    assert loader_of(code).workers == 2


def test_real_and_fake_data_of_one_size() -> None:
    code = """
if args.dummy:
    data = torchvision.datasets.FakeData(1000, (3, 224, 224), 10, T.ToTensor())
else:
    data = torchvision.datasets.ImageFolder(root, T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
DataLoader(data, 256, num_workers=4)
"""
    assert loader_of(code).sample_bytes == IMAGE + LABEL
    assert loader_of(code.replace("(3, 224, 224)", "(3, 32, 32)")).sample_bytes is None


def test_an_iterable_data_set_yields_its_samples() -> None:
    code = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(16)
DataLoader(Stream(), 4, num_workers=2)
"""
    assert loader_of(code).sample_bytes == 64


def test_shared_memory_is_batch_times_prefetch_times_workers() -> None:
    loader = loader_of("DataLoader(TensorDataset(torch.zeros(9, 1000)), 64, num_workers=8, prefetch_factor=4)")
    assert loader.shm_bytes == 4000 * 64 * 8 * 4


def test_a_start_method_is_read_from_the_loader_and_from_the_script() -> None:
    assert loader_of("DataLoader(d, num_workers=1, multiprocessing_context='spawn')").start_method == "spawn"
    code = (
        "import multiprocessing as mp\nDataLoader(d, num_workers=1, multiprocessing_context=mp.get_context('fork'))"
    )
    assert loader_of(code).start_method == "fork"
    assert needs_of("torch.multiprocessing.set_start_method('spawn')").start_method == "spawn"
    assert needs_of("import multiprocessing\nmultiprocessing.set_start_method('forkserver', force=True)").start_method


def test_the_settings_of_a_trainer_are_a_loader() -> None:
    code = """
from transformers import TrainingArguments as A
A('o', dataloader_num_workers=4, per_device_train_batch_size=2)
"""
    assert (loader_of(code).workers, loader_of(code).batch_size) == (4, 2)


def test_a_helper_that_makes_two_loaders_is_two_loaders() -> None:
    code = "def make(ds, n):\n    return DataLoader(ds, num_workers=n)\nmake(a, 4)\nmake(b, 2)"
    assert sorted(n.workers or 0 for n in needs_of(code).loaders) == [2, 4]

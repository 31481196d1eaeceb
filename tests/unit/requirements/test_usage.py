"""What a script uses, whether it wants a GPU, where its data and checkpoints are."""

from __future__ import annotations

import ast
import textwrap

import pytest

from torch_doctor.facts.requirements import Requirements
from torch_doctor.requirements.complete import complete
from torch_doctor.requirements.infer import infer
from torch_doctor.requirements.source import Source

IMPORTS = "import os\nimport torch\nimport torch.nn as nn\n"


def needs_of(code: str) -> Requirements:
    return infer([Source("train.py", ast.parse(IMPORTS + textwrap.dedent(code)), 4)], "train.py")


@pytest.mark.parametrize(
    ("code", "use"),
    [
        ("import h5py", "h5py"),
        ("from h5py import File", "h5py"),
        ("import lmdb as l", "lmdb"),
        ("import zarr", "zarr"),
        ("import sqlite3", "sqlite3"),
        ("import h5py\nh5py.File('a', swmr=True)", "swmr"),
        ("import h5py\nf.swmr_mode = True", "swmr"),
        ("torch.compile(m)", "compile"),
        ("from torch import compile as c\nc(m)", "compile"),
        ("@torch.compile\ndef f(x): ...", "compile"),
        ("@torch.compile(fullgraph=True)\ndef f(x): ...", "compile"),
        ("model.compile()", "compile"),
        ("model.compile(mode='max-autotune')", "compile"),
        ("from transformers import TrainingArguments\nTrainingArguments('o', torch_compile=True)", "compile"),
        ("nn.parallel.DistributedDataParallel(m)", "ddp"),
        ("from torch.nn.parallel import DistributedDataParallel as DDP\nDDP(m)", "ddp"),
        ("torch.distributed.init_process_group('gloo')", "ddp"),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", "ddp"),
        ("from torch.distributed.fsdp import FullyShardedDataParallel as F\nF(m)", "fsdp"),
        ("from torch.distributed.fsdp import fully_shard\nfully_shard(m)", "fsdp"),
        ("with torch.autocast('cuda', dtype=torch.bfloat16): ...", "bf16"),
        ("model.to(torch.bfloat16)", "bf16"),
        ("model.bfloat16()", "bf16"),
        ("model.half()", "fp16"),
        ("with torch.autocast('cuda', dtype=torch.float16): ...", "fp16"),
        ("x.to(torch.float8_e4m3fn)", "fp8"),
        ("with torch.autocast('cuda'): ...", "amp"),
    ],
)
def test_a_use_is_seen(code: str, use: str) -> None:
    assert use in needs_of(code).uses


@pytest.mark.parametrize(
    ("code", "use"),
    [
        ("import re\nre.compile('x')", "compile"),
        ("compile('x', 'f', 'exec')", "compile"),
        ("model.compile(optimizer='adam', loss='mse')", "compile"),  # Keras
        ("torch.compile(m, disable=True)", "compile"),
        ("import h5pyd", "h5py"),
        ("if x.dtype == torch.bfloat16: ...", "bf16"),
        ("d = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16", "bf16"),
        ("t = {'bf16': torch.bfloat16}[args.dtype]", "bf16"),
        ("if args.mixed:\n    p = MixedPrecision(param_dtype=torch.bfloat16)", "bf16"),
        ("# torch.compile(m)", "compile"),
        ("s = 'torch.compile(m)'", "compile"),
    ],
)
def test_a_near_miss_is_not_a_use(code: str, use: str) -> None:
    assert use not in needs_of(code).uses


@pytest.mark.parametrize(
    ("code", "compiles"),
    [
        ("torch.compile(m)", True),
        ("m(x)", False),
        ("import lightning", None),
        ("from transformers import Trainer", None),
        ("import lightning\ntorch.compile(m)", True),
    ],
)
def test_whether_a_script_compiles_is_known_or_not(code: str, compiles: bool | None) -> None:
    assert needs_of(code).compiles is compiles


def test_no_script_leaves_it_open() -> None:
    assert complete(Requirements(), {}, needs={}, sample_bytes=None, gpus="").compiles is None


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("model.cuda()", 1),
        ("x.cuda(non_blocking=True)", 1),
        ("model.to('cuda')", 1),
        ("model.to('cuda:3')", 4),
        ("device = torch.device('cuda')", 1),
        ("device = 'cuda'", 1),
        ("torch.zeros(3, device='cuda:1')", 2),
        ("torch.cuda.set_device(0)", 1),
        ("torch.set_default_device('cuda')", 1),
        ("torch.distributed.init_process_group(backend='nccl')", 1),
        ("if not torch.cuda.is_available():\n    raise SystemExit('needs a GPU')\nmodel.cuda()", 1),
        ("assert torch.cuda.is_available()\nmodel.cuda()", 1),
    ],
)
def test_a_script_that_cannot_do_without_a_gpu_asks_for_it(code: str, count: int) -> None:
    needs = needs_of(code)
    assert needs.gpus == count
    assert needs.gpus_asked.startswith("train.py:")


@pytest.mark.parametrize(
    "code",
    [
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')",
        "if torch.cuda.is_available():\n    model.cuda()",
        "use_cuda = torch.cuda.is_available() and not args.no_cuda\nif use_cuda:\n    model.cuda()",
        "use_cuda = torch.cuda.is_available()\ndevice = torch.device('cuda' if use_cuda else 'cpu')",
        "device = 'cpu'\nif torch.cuda.is_available():\n    device = 'cuda'",
        "device = 'cuda'\nif not torch.cuda.is_available():\n    device = 'cpu'",
        "class T:\n    def __init__(self):\n        self.cuda_on = torch.cuda.is_available()\n"
        "    def f(self):\n        if self.cuda_on:\n            m.cuda()",
        "if torch.cuda.device_count() > 1:\n    m.cuda()",
        "if args.gpu:\n    model.cuda()",
        "def f():\n    if not torch.cuda.is_available():\n        return\n    model.cuda()",
        "try:\n    model.cuda()\nexcept RuntimeError:\n    pass",
        "torch.cuda.is_available() and model.cuda()",
        "p.add_argument('--device', default='cuda')",
        "with torch.autocast(device_type='cuda'): ...",
        "print('cuda')",
        "if device == 'cuda': ...",
        "model.to(device)",
        "torch.accelerator.current_accelerator()",
    ],
)
def test_a_script_that_is_content_without_a_gpu_does_not_ask(code: str) -> None:
    assert (needs_of(code).gpus, needs_of(code).gpus_asked) == (None, "")


@pytest.mark.parametrize(
    ("code", "size"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)", 4),
        ("import torch.multiprocessing as mp\nmp.spawn(main, (1,), 4)", 4),
        ("torch.distributed.init_process_group('gloo', world_size=2, rank=0)", 2),
        ("import torch.multiprocessing as mp\nW = 3\nmp.spawn(main, nprocs=W)", 3),
        ("torch.distributed.init_process_group('gloo')", None),
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=torch.cuda.device_count())", None),
    ],
)
def test_the_world_size(code: str, size: int | None) -> None:
    assert needs_of(code).world_size == size


@pytest.mark.parametrize(
    ("code", "capability"),
    [
        ("with torch.autocast('cuda', dtype=torch.bfloat16): ...", (8, 0)),
        ("x.to(torch.float8_e4m3fn)\ny.to(torch.bfloat16)", (8, 9)),
        ("with torch.autocast('cuda', dtype=torch.float16): ...", None),
        ("a = Policy(torch.bfloat16)\nb = Policy(torch.float16)", None),
        ("m(x)", None),
    ],
)
def test_a_dtype_asks_for_a_compute_capability(code: str, capability: tuple[int, int] | None) -> None:
    assert needs_of(code).min_compute_capability == capability


@pytest.mark.parametrize(
    ("code", "data", "checkpoints"),
    [
        ("import h5py\nh5py.File('data/a.h5', 'r')", ("data/a.h5",), ()),
        ("import h5py\nP = 'data/a.h5'\nh5py.File(P)", ("data/a.h5",), ()),
        ("import h5py\nfrom pathlib import Path\nR = Path('/data')\nh5py.File(R / 'a.h5')", ("/data/a.h5",), ()),
        ("import h5py\nh5py.File(os.path.join('/data', 'a.h5'))", ("/data/a.h5",), ()),
        ("import h5py\nh5py.File(os.path.join('/data', name))", ("/data",), ()),
        ("import h5py\np.add_argument('--data', default='/d/a.h5')\nh5py.File(args.data)", ("/d/a.h5",), ()),
        ("import h5py\nh5py.File('out.h5', 'w')", (), ()),
        ("import h5py\nh5py.File(name)", (), ()),
        ("import lmdb\nlmdb.open('/data/train.lmdb', readonly=True)", ("/data/train.lmdb",), ()),
        ("import sqlite3\nsqlite3.connect(':memory:')", (), ()),
        ("import torchvision\ntorchvision.datasets.CIFAR10('./data')", ("./data",), ()),
        ("import torchvision\ntorchvision.datasets.CIFAR10(root='./data')", ("./data",), ()),
        ("torch.save(m, 'ckpt/last.pt')", (), ("ckpt/last.pt",)),
        ("torch.save(m, f'ckpt/{epoch}.pt')", (), ("ckpt/",)),
        ("torch.save(m, f=os.path.join('out', 'm.pt'))", (), ("out/m.pt",)),
        ("torch.save(m, 's3://bucket/m.pt')", (), ()),
        ("torch.save(m, buffer)", (), ()),
        ("path = 'out'\ndef f(path):\n    path = os.path.join(path, 'x')\n    torch.save(m, path)", (), ()),
    ],
)
def test_paths(code: str, data: tuple[str, ...], checkpoints: tuple[str, ...]) -> None:
    needs = needs_of(code)
    assert (needs.data_paths, needs.checkpoint_paths) == (data, checkpoints)


# -- what is stated overrules what is inferred ---------------------------------------------------------------

LOADER = "from torch.utils.data import DataLoader, TensorDataset as T\n"


def completed(code: str, stated: dict[str, object] | None = None, **options: object) -> Requirements:
    values = {"needs": {}, "sample_bytes": None, "gpus": "", **options}
    return complete(needs_of(LOADER + code), stated or {}, **values)  # type: ignore[arg-type]


def test_the_loaders_together_need_shared_memory() -> None:
    code = """
DataLoader(T(torch.zeros(9, 1000)), 10, num_workers=2)
DataLoader(T(torch.zeros(9, 500)), 10, num_workers=4)
"""
    needs = completed(code)
    assert needs.shm_bytes == 4000 * 10 * 2 * 2 + 2000 * 10 * 2 * 4
    assert needs.shm_source == "train.py:6: 2 workers x 2 batches x 10 samples and 1 more"


def test_each_rank_of_the_machine_has_its_own_loaders() -> None:
    code = """
import torch.multiprocessing as mp
mp.spawn(f, nprocs=4)
DataLoader(T(torch.zeros(9, 1000)), 10, num_workers=2)
"""
    needs = completed(code)
    assert needs.local_processes == 4 and needs.shm_bytes == 4 * 4000 * 10 * 2 * 2


def test_a_stated_number_of_gpus_is_the_number_of_ranks() -> None:
    code = "torch.distributed.init_process_group('gloo')\nDataLoader(T(torch.zeros(9, 1000)), 10, num_workers=2)"
    needs = completed(code, {"gpus": 8}, needs={"gpus": "8"})
    assert needs.local_processes == 8 and needs.shm_bytes == 8 * 4000 * 10 * 2 * 2


def test_no_worker_needs_no_shared_memory() -> None:
    assert completed("DataLoader(T(torch.zeros(9, 1000)), 10)").shm_bytes == 0


def test_an_unknown_size_needs_an_unknown_amount() -> None:
    assert completed("DataLoader(d, 10, num_workers=2)").shm_bytes is None


def test_a_sample_size_that_is_given_fills_what_the_source_does_not_say() -> None:
    assert completed("DataLoader(d, 10, num_workers=2)", sample_bytes=1000).shm_bytes == 1000 * 10 * 2 * 2


def test_a_stated_need_wins() -> None:
    needs = completed("DataLoader(T(torch.zeros(9, 1000)), 10, num_workers=2)", {"shm_bytes": 5}, needs={"shm": "5"})
    assert (needs.shm_bytes, needs.shm_source) == (5, "--need shm=5")


@pytest.mark.parametrize(
    ("gpus", "stated", "needs", "asked"),
    [
        ("all", {"gpus": None}, {}, "--gpus all"),
        ("2", {"gpus": 2}, {}, "--gpus 2"),
        ("", {"gpus": 2}, {"gpus": "2"}, "--need gpus=2"),
        ("0", {"gpus": 0}, {}, ""),
    ],
)
def test_who_asked_for_gpus(gpus: str, stated: dict[str, object], needs: dict[str, str], asked: str) -> None:
    assert completed("model.cuda()", stated, needs=needs, gpus=gpus).gpus_asked == asked

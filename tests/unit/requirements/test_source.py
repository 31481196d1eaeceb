"""Which values a source fixes, and which it leaves open."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from torch_doctor.requirements.source import UNKNOWN, Source, option_name


def value_of(code: str) -> Any:
    """The value of the argument of the last ``want(...)`` in the code; 6 CPUs."""
    source = Source("train.py", ast.parse(textwrap.dedent(code)), cpu_count=6)
    calls = [call for call, name in source.calls() if name == "want"]
    return source.value(calls[-1].args[0])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("want(4)", 4),
        ("N = 4\nwant(N)", 4),
        ("A = 2\nB = A * 4 + 1\nwant(B)", 9),
        ("A, B = 3, 5\nwant(B)", 5),
        ("N: int = 4\nwant(N)", 4),
        ("def f(n=3):\n    want(n)", 3),
        ("def f(*, n=3):\n    want(n)", 3),
        ("N = 1\ndef f():\n    N = 2\n    want(N)", 2),
        ("N = 1\ndef f():\n    def g():\n        want(N)", 1),
        ("import os\nwant(os.cpu_count())", 6),
        ("import os as o\nwant(min(4, o.cpu_count()))", 4),
        ("from os import cpu_count\nwant(cpu_count() // 2)", 3),
        ("import os\nwant(len(os.sched_getaffinity(0)))", 6),
        ("import os\nwant(os.cpu_count() or 1)", 6),
        ("import multiprocessing as mp\nwant(max(1, mp.cpu_count() - 2))", 4),
        ("p.add_argument('--workers', '-j', type=int, default=8)\nargs = p.parse_args()\nwant(args.workers)", 8),
        ("p.add_argument('-j', '--num-workers', default=8)\nwant(args.num_workers)", 8),
        ("p.add_argument('--w', dest='workers', default=2)\nwant(opt.workers)", 2),
        ("class C:\n    workers = 3\nwant(C().workers)", 3),
        ("@dataclass\nclass C:\n    workers: int = 3\nwant(cfg.workers)", 3),
        ("class T:\n    def __init__(self):\n        self.n = 5\n    def f(self):\n        want(self.n)", 5),
        ("C = {'workers': 4}\nwant(C['workers'])", 4),
        ("C = dict(workers=4)\nwant(C['workers'])", 4),
        ("C = {'a': {'b': 7}}\nwant(C['a']['b'])", 7),
        ("C = {}\nwant(C.get('workers', 2))", 2),
        ("C = {'workers': 4}\nwant(C.get('workers', 2))", 4),
        ("from types import SimpleNamespace as S\nc = S(workers=4)\nwant(c.workers)", 4),
        ("want(1 << 20)", 1 << 20),
        ("want(8 if True else 2)", 8),
        ("import sys\nwant(4 if sys.platform == 'linux' else 4)", 4),
        ("if (n := 4):\n    want(n)", 4),
    ],
)
def test_a_fixed_value_is_read(code: str, expected: Any) -> None:
    assert value_of(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "want(N)",
        "def f(n):\n    want(n)",
        "N = 4\nN = 0\nwant(N)",  # which of the two is not said
        "N = 4\nif debug:\n    N = 0\nwant(N)",
        "N = 4\nN += 1\nwant(N)",
        "want(int(input()))",
        "import os\nwant(int(os.environ['WORKERS']))",
        "want(args.workers)",
        "class A:\n    n = 1\nclass B:\n    n = 2\nwant(cfg.n)",
        "C = {'workers': 4}\nwant(C['other'])",
        "want(1 // 0)",
        "want(1 << 9999999999)",
        "A = B\nB = A\nwant(A)",  # a circle ends
        "import sys\nwant(4 if sys.platform == 'linux' else 0)",
        "want(open('x').read())",
        "for N in range(4):\n    want(N)",
    ],
)
def test_what_the_source_does_not_fix_stays_unknown(code: str) -> None:
    assert value_of(code) is UNKNOWN


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch\nx(torch.utils.data.DataLoader)", "torch.utils.data.DataLoader"),
        ("import torch.utils.data as d\nx(d.DataLoader)", "torch.utils.data.DataLoader"),
        ("from torch.utils.data import DataLoader as DL\nx(DL)", "torch.utils.data.DataLoader"),
        ("from torch import nn\nx(nn.functional.relu)", "torch.nn.functional.relu"),
        ("x(unknown.name)", "unknown.name"),
    ],
)
def test_aliases_are_resolved(code: str, expected: str) -> None:
    source = Source("train.py", ast.parse(code))
    call = next(call for call, name in source.calls() if name == "x")
    assert source.dotted(call.args[0]) == expected


def test_a_deep_file_does_not_exhaust_the_stack() -> None:
    code = "x = " + "[" * 80 + "1" + "]" * 80 + "\n" + "y = 1" + " + 1" * 800
    source = Source("deep.py", ast.parse(code))
    assert source.value(source.definition(ast.parse("y").body[0].value)) is UNKNOWN  # type: ignore[attr-defined]


def test_option_names_follow_argparse() -> None:
    assert option_name(["-j", "--num-workers"]) == "num_workers"
    assert option_name(["-j"]) == "j"
    assert option_name(["data"]) == "data"

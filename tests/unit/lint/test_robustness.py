"""No source makes a rule crash or hang."""

from __future__ import annotations

import ast
import random
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.linting import CHECKS, SOURCES_OF_CASES, judge

from torch_doctor import fixing, linting
from torch_doctor.facts.script import parse
from torch_doctor.model import Outcome

STDLIB = Path(sysconfig.get_paths()["stdlib"])


@pytest.mark.parametrize("name", ["ast.py", "asyncio/base_events.py", "typing.py", "tarfile.py", "dataclasses.py"])
def test_real_files_that_mention_torch(name: str) -> None:
    judge(parse(name, "import torch\n" + (STDLIB / name).read_text(encoding="utf-8")))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_mutated_sources(random_: random.Random) -> None:
    source = random_.choice(SOURCES_OF_CASES)
    text = mutate(source, random_)
    try:
        script = parse("train.py", text)
    except (SyntaxError, ValueError):
        return
    judge(script)
    change = fixing.mend(script, CHECKS, unsafe=True, per_file_ignores={})
    if change is not None:
        ast.parse(change.after)


def mutate(source: str, random_: random.Random) -> str:
    """The source with statements dropped, doubled or swapped, and names exchanged."""
    lines = source.split("\n")
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(lines))
        what = random_.randrange(4)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(at, lines[at])
        elif what == 2:
            other = random_.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            old, new = random_.choice(NAMES), random_.choice(NAMES)
            lines[at] = lines[at].replace(old, new)
        if not lines:
            lines = [""]
    return "\n".join(lines)


NAMES = [
    "model",
    "loss",
    "x",
    "opt",
    "loader",
    "self",
    "zero_grad",
    "step",
    "backward",
    "torch",
    "None",
    "[0]",
    "(x)",
    "*x",
]


@pytest.mark.parametrize(
    "source",
    [
        "x = x\nx = x.cuda()\nx.cuda()\n",
        "model = model(model)\nmodel.eval()\nfor x in model: model(x)\n",
        "def f(x):\n    return f(x)\nf(f).backward()\nfor l in loader: f(l).backward(); opt.step()\n",
        "class A(A):\n    def __init__(self): self.x = self.x[self.x]\n",
        "class A(B): pass\nclass B(A): pass\nA().step()\nself.x.y.z = 1\n",
        "loss = loss + loss\nfor x in loader:\n    loss += loss\n    loss.backward(); opt.step()\n",
        "global x\n(lambda: (yield))()\n[x := 1 for _ in y]\n",
        "def f(a, /, b, *c, d=1, **e): return a\nf(*x, **y)\n",
        "async def f():\n    async for x in loader:\n        async with y: await model(x).backward()\n",
        "match x:\n    case {'a': [b, *c]} | A(d=1): pass\n",
        "a.b.c[0].d().e = torch.load(*p, **k)\n",
        "def f():\n    net = torch.nn.Linear(2, 2)\n    x, y = y, x\n    net(x)\n    net(y)\n",
        "for x in y:\n    x.cuda()\nfor y in x:\n    y.cuda()\n[x.cuda() for x in batch]\n[batch for batch in x]\n",
        "for batch in batch:\n    batch.cuda()\nbatch.cuda()\n",
        "x = [x, *x]\ndef f(): return list(f())\nfor o in f(): o[0].step(); x['a'].backward(); x[f()].step()\n",
        "try:\n    pass\nfinally:\n    pass\n",
        "",
    ],
)  # fmt: skip
def test_odd_sources(source: str) -> None:
    judge(parse("odd.py", "import torch\n" + source))


TRAINING = """
def train(model, loader, opt, loss_fn):
    for x, y in loader:
        opt.zero_grad()
        loss_fn(model(x), y).backward()
        opt.step()
"""


def test_a_chain_of_calls_takes_no_time(tmp_path: Path) -> None:
    script = tmp_path / "chain.py"
    script.write_text("import torch\nx = a" + ".b()" * 4000 + "\n")
    start = time.process_time()
    assert linting.lint([script], CHECKS).files == 1
    assert time.process_time() - start < 5


def test_a_function_that_calls_itself() -> None:
    judge(
        parse(
            "loop.py",
            "import torch\ndef loop(model, loader):\n    for x, y in loader:\n        model(x)\n"
            "    return loop(model, loader)\n",
        )
    )


def test_a_deep_expression_is_judged_or_named(tmp_path: Path) -> None:
    for name, text in {
        "chain.py": "import torch\nx = " + "+".join(["1"] * 5000) + "\n",
        "trained.py": "import torch\nx = " + "+".join(["1"] * 20_000) + "\n" + TRAINING,
        "calls.py": "import torch\nx = a" + ".b()" * 3000 + "\n",
        "nested.py": "import torch\nx = " + "(" * 150 + "1" + ")" * 150 + "\n",
        "brackets.py": "import torch\nx = " + "[" * 5000 + "]" * 5000 + "\n",
        "unary.py": "import torch\nx = " + "-" * 3000 + "1\n",
        "blocks.py": "import torch\n" + "".join(f"{' ' * n}if x:\n" for n in range(90)) + " " * 90 + "pass\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = linting.lint([tmp_path], CHECKS)
    assert not [r.reason for r in found.results if r.outcome is Outcome.CRASHED]
    assert found.files == 7
    assert all(Path(n.location.path).is_file() for n in found.notifications if n.location)


def test_a_huge_literal_takes_no_time(tmp_path: Path) -> None:
    script = tmp_path / "data.py"
    script.write_text("import torch\nx = [" + "1, " * 300_000 + "]\ny = '" + "a" * 1_000_000 + "'\n")
    start = time.process_time()
    assert linting.lint([script], CHECKS).files == 1
    assert time.process_time() - start < 5


STEP = (
    "    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n        loss.backward(); opt.step()\n"
    "        total += loss\n"
)


@pytest.mark.parametrize(("steps", "named"), [(60, 0), (2000, 1)])
def test_many_training_steps_end(tmp_path: Path, steps: int, named: int) -> None:
    script = tmp_path / "many.py"
    head = "import torch.nn.functional as F\ndef train(model, loader, opt):\n    model.eval()\n    total = 0\n"
    script.write_text(head + STEP * steps)
    start = time.process_time()
    assert len(linting.lint([script], CHECKS).notifications) == named
    assert time.process_time() - start < 15

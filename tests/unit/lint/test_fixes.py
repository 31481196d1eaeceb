"""Fixes change what they must and nothing else, and the result parses and is stable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.linting import CHECKS, CORPUS, cases

from torch_doctor import fixing
from torch_doctor.errors import CannotRun
from torch_doctor.lint.fixes import apply
from torch_doctor.model import Edit, Fix


def mended(source: str, unsafe: bool = False) -> str:
    """The source after ``--fix``."""
    from torch_doctor.facts.script import parse

    normal = source.replace("\r\n", "\n").replace("\r", "\n")
    script = parse("train.py", normal, original=source if source != normal else "")
    change = fixing.mend(script, CHECKS, unsafe=unsafe, per_file_ignores={})
    return change.after if change is not None else source


LOSS = (
    "import torch.nn.functional as F\ndef train(model, loader, opt):\n    total = 0\n    log = []\n"
    "    for x, y in loader:\n        opt.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n"
    "        loss.backward()\n        opt.step()\n        {}\n    return total\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("total += loss", "total += loss.item()"),
        ("total += loss  # sum", "total += loss.item()  # sum"),
        ("total = total + loss", "total = total + loss.item()"),
        ("log.append(loss)", "log.append(loss.item())"),
        ("log.append((1, loss))", "log.append((1, loss.item()))"),
        ("total += loss * x.size(0)", "total += loss.item() * x.size(0)"),
        ("print(loss.data[0])", "print(loss.item())"),
        ("print(loss.data.cpu().numpy()[0])", "print(loss.item())"),
        ("total += loss.data", "total += loss.item()"),
        ("opt.zero_grad  # again", "opt.zero_grad()  # again"),
    ],
)
def test_a_kept_loss(before: str, after: str) -> None:
    assert mended(LOSS.format(before)) == LOSS.format(after)


def test_a_loss_that_must_stay_a_tensor_is_detached() -> None:
    source = LOSS.format("log.append(loss)").replace("return total", "return torch.stack(log)")
    source = "import torch\n" + source
    assert "log.append(loss.detach())" in mended(source)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nn.MSELoss(size_average=False)", 'nn.MSELoss(reduction="sum")'),
        ("nn.MSELoss(size_average=True)", 'nn.MSELoss(reduction="mean")'),
        ("nn.MSELoss(reduce=False)", 'nn.MSELoss(reduction="none")'),
        ("nn.MSELoss(reduce=True)", 'nn.MSELoss(reduction="mean")'),
        ("nn.MSELoss(size_average=False, reduce=False)", 'nn.MSELoss(reduction="none")'),
        ("nn.MSELoss(size_average=False, reduce=True)", 'nn.MSELoss(reduction="sum")'),
        ("nn.MSELoss(False)", 'nn.MSELoss(reduction="sum")'),
        ("nn.MSELoss(False, False)", 'nn.MSELoss(reduction="none")'),
        ("nn.BCELoss(w, size_average=False)", 'nn.BCELoss(w, reduction="sum")'),
        ("nn.NLLLoss(w, False)", 'nn.NLLLoss(w, reduction="sum")'),
        ("nn.NLLLoss(w, False, 255)", "nn.NLLLoss(w, False, 255)"),
        ("nn.MSELoss(\n    size_average=False,  # why\n)", 'nn.MSELoss(\n    reduction="sum",  # why\n)'),
    ],
)
def test_deprecated_arguments(before: str, after: str) -> None:
    head = "from torch import nn\nw = None\nloss = "
    assert mended(head + before + "\n") == head + after + "\n"


IMPORTED = "from torch.{old}amp import autocast{alias}\nwith {call}:\n    pass\n"


@pytest.mark.parametrize(
    ("alias", "before", "after"),
    [
        ("", "autocast()", 'autocast("cuda")'),
        (" as ac", "ac(enabled=True)", 'ac("cuda", enabled=True)'),
        ("", "autocast(True, torch.float16)", 'autocast("cuda", enabled=True, dtype=torch.float16)'),
    ],
)
def test_the_old_amp_api_imported(alias: str, before: str, after: str) -> None:
    source = IMPORTED.format(old="cuda.", alias=alias, call=before)
    assert mended(source) == IMPORTED.format(old="", alias=alias, call=after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.amp.autocast(True)", 'torch.amp.autocast("cuda", enabled=True)'),
        ("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")'),
        ("torch.cuda.amp.GradScaler(enabled=x)", 'torch.amp.GradScaler("cuda", enabled=x)'),
        ("torch.cuda.amp.GradScaler(1024.)", 'torch.amp.GradScaler("cuda", 1024.)'),
    ],
)
def test_the_old_amp_api_by_its_full_name(before: str, after: str) -> None:
    assert mended(f"import torch\ns = {before}\n") == f"import torch\ns = {after}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.amp.custom_fwd", 'torch.amp.custom_fwd(device_type="cuda")'),
        (
            "torch.cuda.amp.custom_fwd(cast_inputs=x)",
            'torch.amp.custom_fwd(device_type="cuda", cast_inputs=x)',
        ),
        ("torch.cuda.amp.custom_bwd", 'torch.amp.custom_bwd(device_type="cuda")'),
    ],
)
def test_the_old_amp_api_as_a_decorator(before: str, after: str) -> None:
    source = (
        "import torch\nclass Double:\n    @staticmethod\n    @{}\n    def forward(ctx, x):\n        return x * 2\n"
    )
    assert mended(source.format(before)) == source.format(after)
    imported = source.replace("import torch", "from torch.{}amp import custom_fwd, custom_bwd")
    short, new = before.removeprefix("torch.cuda.amp."), after.removeprefix("torch.amp.")
    assert mended(imported.format("cuda.", short)) == imported.format("", new)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss.backward()\n        opt.step()\n", "opt.zero_grad()\n        loss.backward()\n        opt.step()\n"),
        ("loss.backward(); opt.step()\n", "opt.zero_grad()\n        loss.backward(); opt.step()\n"),
        ("x = 1; loss.backward(); opt.step()\n", "x = 1; opt.zero_grad(); loss.backward(); opt.step()\n"),
        ("loss.backward()\n        rule.step()\n        opt.step()\n", None),
    ],
)
def test_gradients_are_cleared_where_that_is_asked_for(before: str, after: str | None) -> None:
    head = "import torch.nn.functional as F\ndef train(model, loader, opt, rule: 'torch.optim.Optimizer'):\n"
    head += "    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n        "
    for line_end in ("\n", "\r\n"):
        source, wanted = (s.replace("\n", line_end) for s in (head + before, head + (after or before)))
        assert mended(source, unsafe=True) == wanted
        assert mended(source) == source


def test_gradients_are_unscaled_where_that_is_asked_for() -> None:
    source = (
        "import torch\ndef train(model, loader, opt, loss_fn, scaler):\n    for x, y in loader:\n"
        "        opt.zero_grad()\n        scaler.scale(loss_fn(model(x), y)).backward()\n"
        "        {}torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        scaler.step(opt)\n"
        "        scaler.update()\n"
    )
    assert mended(source.format(""), unsafe=True) == source.format("scaler.unscale_(opt)\n        ")


def test_a_generated_file_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nx = torch.zeros(1)\nx.cuda()\n" + "x.backward()\n" * 301)
    assert fixing.changes([script], CHECKS) == []


def test_line_ends_comments_and_tabs_stay() -> None:
    source = "import torch\r\nx = torch.zeros(1)\t# é\r\nif x:\r\n\tx.cuda()  # ü\r\n"
    assert mended(source) == source.replace("\tx.cuda()", "\tx = x.cuda()")


def test_columns_after_wide_characters() -> None:
    assert mended('import torch\nx = torch.zeros(1); s = "日本語"; x.cuda()\n').endswith('"日本語"; x = x.cuda()\n')


def test_overlapping_fixes_do_not_meet() -> None:
    one = Fix("a", (Edit(1, 1, 1, 5, "x"),))
    other = Fix("b", (Edit(1, 3, 1, 8, "y"),))
    assert apply("abcdefgh\n", [one, other]) == ("xefgh\n", 1)


def test_a_suppressed_finding_is_not_fixed() -> None:
    source = "import torch\nx = torch.zeros(1)\nx.cuda()  # noqa\n"
    assert mended(source) == source


SOURCES = [c.source for c in cases()] + [p.read_text(encoding="utf-8") for p in sorted(CORPUS.glob("[bgx]*.py"))]


def test_what_is_fixed_parses_and_is_stable() -> None:
    changed = 0
    for source in SOURCES:
        once = mended(source, unsafe=True)
        ast.parse(once)
        assert mended(once, unsafe=True) == once
        changed += once != source
    assert changed > 40


def test_a_file_is_replaced_with_its_encoding_and_mode(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    source = "# -*- coding: latin-1 -*-\r\nimport torch\r\nx = torch.zeros(1)  # é\r\nx.cuda()\r\n"
    script.write_bytes(source.encode("latin-1"))
    script.chmod(0o750)
    (change,) = fixing.changes([script], CHECKS)
    fixing.write(change)
    assert script.read_bytes() == source.replace("x.cuda()", "x = x.cuda()").encode("latin-1")
    assert script.stat().st_mode & 0o777 == 0o750
    assert [p.name for p in tmp_path.iterdir()] == ["train.py"]


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"\xef\xbb\xbfimport torch\nx = torch.zeros(1)\nx.cuda()\n")
    (change,) = fixing.changes([script], CHECKS)
    fixing.write(change)
    assert script.read_bytes() == b"\xef\xbb\xbfimport torch\nx = torch.zeros(1)\nx = x.cuda()\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    change = fixing.Change(str(tmp_path / "gone" / "train.py"), "a", "b", 1, "utf-8")
    with pytest.raises(CannotRun, match=r"train\.py: cannot be written"):
        fixing.write(change)

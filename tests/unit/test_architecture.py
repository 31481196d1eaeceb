"""Arrows go one way: what each package may import, read from the source; and nothing imports torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import torch_doctor

ROOT = Path(torch_doctor.__file__).parent

#: package or module -> what of torch_doctor it may import, by prefix ("" is the package itself: the version)
ALLOWED = {
    "model": (),
    "errors": (),
    "redact": (),
    "facts": ("facts", "model"),
    "requirements": ("requirements", "facts", "model", "errors"),
    "checks": ("model", "facts", "registry", "checks"),
    "lint": ("model", "facts", "registry", "lint"),
    "diagnose": ("model", "facts", "registry", "diagnose"),
    "report": ("model", "report", ""),
    "registry": ("model", "errors"),
    "runner": ("model",),
}
#: heavy libraries: never at the level of a module, but for the isolated children, which run elsewhere
HEAVY = {"torch", "numpy", "h5py", "docker", "pandas", "matplotlib", "triton"}
#: modules that may import probes: the snapshot, and probes among themselves
PROBE_USERS = ("snapshot", "probes")


def modules() -> list[Path]:
    """Every source file of the package."""
    found = sorted(ROOT.rglob("*.py"))
    assert len(found) > 30
    return found


def name_of(path: Path) -> str:
    """``checks.shm`` for checks/shm.py."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                inner = ROOT.parent / base.replace(".", "/") / alias.name
                yield (f"{base}.{alias.name}" if inner.with_suffix(".py").exists() or inner.is_dir() else base), node


def own(name: str) -> str | None:
    """``checks.shm`` for ``torch_doctor.checks.shm``; None for another project's module."""
    if name == "torch_doctor":
        return ""
    return name.removeprefix("torch_doctor.") if name.startswith("torch_doctor.") else None


def within(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix or below it."""
    return name == prefix or (bool(prefix) and name.startswith(prefix + "."))


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    name = name_of(path)
    for layer, allowed in ALLOWED.items():
        if not within(name, layer):
            continue
        for imported, node in imports(path):
            target = own(imported)
            if target is not None:
                assert any(within(target, prefix) for prefix in allowed), f"{name}:{node.lineno} imports {imported}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_the_snapshot_imports_probes(path: Path) -> None:
    name = name_of(path)
    if any(within(name, user) for user in PROBE_USERS):
        return
    for imported, node in imports(path):
        assert not within(own(imported) or "", "probes"), f"{name}:{node.lineno} imports {imported}"


@pytest.mark.parametrize("path", [p for p in modules() if "isolated" not in p.parts], ids=name_of)
def test_nothing_heavy_is_imported_in_the_main_process(path: Path) -> None:
    for imported, node in imports(path):
        assert imported.split(".")[0] not in HEAVY, f"{name_of(path)}:{node.lineno} imports {imported}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_the_runner_and_isolated_children_catch_everything(path: Path) -> None:
    if name_of(path) == "runner" or "isolated" in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            assert not broad, f"{name_of(path)}:{node.lineno} catches everything"


@pytest.mark.parametrize("path", [p for p in modules() if within(name_of(p), "checks")], ids=name_of)
def test_a_check_has_no_try_and_no_input_or_output(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Try), f"{name_of(path)}:{node.lineno} has a try"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input"), f"{name_of(path)}:{node.lineno} does I/O"
    io = {"os", "subprocess", "pathlib", "socket", "psutil", "shutil", "ctypes"}
    assert not io & {imported.split(".")[0] for imported, _ in imports(path)}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, contextlib\n"
        "sys.argv = ['torch-doctor', '--help']\n"
        "from torch_doctor.cli.app import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "print('LOADED', *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stderr.split("LOADED", 1)[1].split())
    assert "check" in done.stdout and "torch_doctor.cli.check" in loaded
    assert not loaded & {*HEAVY, "rich.table", "psutil", "pynvml", "torch_doctor.checks.shm"}

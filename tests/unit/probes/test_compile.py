"""What torch.compile finds: real compilers, none, broken ones; caches of all kinds; a real compile."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import pytest

from torch_doctor.facts.compile import CompileFacts, DeepCompileFacts
from torch_doctor.facts.request import Request
from torch_doctor.model import FailureKind, ProbeFailure
from torch_doctor.probes import compile as probes
from torch_doctor.probes.isolated import compile_env

REQUEST = Request(python=sys.executable, timeout=120)


def look() -> CompileFacts:
    facts = probes.probe(REQUEST)
    assert isinstance(facts, CompileFacts), facts
    return facts


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_this_machine_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    facts = look()
    assert facts.has_headers and facts.include == sysconfig.get_path("include")
    assert (facts.c.path, facts.c.error, facts.cxx.path, facts.cxx.error) == ("/usr/bin/gcc", "", "/usr/bin/g++", "")
    (cache,) = facts.caches
    assert (cache.name, cache.variable, cache.place.path) == (
        "inductor",
        "TORCHINDUCTOR_CACHE_DIR",
        str(tmp_path / "cache"),
    )
    assert cache.place.error == "" and cache.place.executable is True and not cache.place.exists
    import torch

    assert (facts.torch_version, facts.cuda, facts.hip) == (torch.__version__, torch.version.cuda, torch.version.hip)


def test_no_compiler_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = look()
    assert (facts.c.path, facts.cxx.path, facts.c.variable) == ("", "", "")
    assert facts.c.wanted == "gcc or clang" and facts.cxx.wanted == "g++"


def test_clangxx_alone_is_not_what_inductor_looks_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "clang++", "exit 0")
    program(tmp_path / "clang", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = look()
    assert facts.cxx.path == "" and facts.c.path == str(tmp_path / "clang")


def test_a_variable_that_names_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    facts = look()
    assert (facts.cxx.wanted, facts.cxx.path, facts.cxx.variable) == ("no-such-compiler", "", "CXX")


def test_a_compiler_without_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = program(
        tmp_path / "g++", "echo '/usr/bin/ld: cannot find crti.o: No such file or directory' >&2; exit 1"
    )
    monkeypatch.setenv("CXX", str(broken))
    assert look().cxx.error == "/usr/bin/ld: cannot find crti.o: No such file or directory"


def test_the_error_names_the_header_and_not_our_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ -include no_such_header.h")
    error = look().cxx.error
    assert "no_such_header.h" in error and "/tmp/" not in error


def test_a_compiler_that_hangs_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", str(program(tmp_path / "g++", "exec sleep 600")))
    facts = probes.probe(Request(python=sys.executable, timeout=6))
    assert isinstance(facts, CompileFacts) and facts.cxx.error == "no result within 6 s"


def test_a_uid_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    code = "import pwd\ndef none(uid): raise KeyError(f'getpwuid(): uid not found: {uid}')\npwd.getpwuid = none\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = look()
    assert facts.user_error  # KeyError, from Python 3.13 on OSError
    assert facts.caches[0].place.path.endswith(f"torchinductor_uid_{os.getuid()}")
    monkeypatch.setenv("USER", "trainer")
    assert look().user_error == ""


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/torch-cache")
    assert look().caches[0].place.error in ("EACCES", "ENOENT", "EPERM", "EROFS")


def test_what_made_the_kernels_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, version in (("a", "3.4.0"), ("b", "3.5.0")):
        (tmp_path / folder).mkdir()
        metadata = {"triton_version": version, "target": {"backend": "cuda", "arch": 90}}
        (tmp_path / folder / "kernel.json").write_text(json.dumps(metadata))
        (tmp_path / folder / "broken.json").write_text("{")
        (tmp_path / folder / "list.json").write_text("[1]")
    (tmp_path / ".torch-doctor.json").write_text(json.dumps({"torch": "2.1.0", "driver": ""}))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found = compile_env.inside(str(tmp_path))
    assert sorted(found["triton_versions"]) == ["3.4.0", "3.5.0"] and found["archs"] == [90]
    assert probes.made_by(found, "3.5.0", "2.9.1") == ("triton 3.4.0", "torch 2.1.0")
    assert probes.made_by(found, None, "2.1.0") == ()


def test_a_c_compiler_is_tried_for_builds_that_use_one() -> None:
    include = sysconfig.get_path("include")
    found = compile_env.compiler("CC", ("gcc", "clang"), include, ["-include", "no_such_header.h"], 60)
    assert "no_such_header.h" in found["error"]
    assert compile_env.compiler("CC", ("gcc", "clang"), include, [], 60)["error"] == ""
    assert compile_env.compiler("CC", ("gcc", "clang"), include, ["-include", "no_such_header.h"], 0)["error"] == ""


@pytest.mark.parametrize(
    ("version", "required", "fits"),
    [
        ("3.5.1", "==3.5.1", True),
        ("3.5.1+git1234", "==3.5.1", True),
        ("3.5.0", "==3.5.1", False),
        ("3.9.0", "~=3.9.0", True),
        ("3.9.4", "~=3.9.0", True),
        ("3.10.0", "~=3.9.0", False),
        ("3.8.9", "~=3.9.0", False),
        ("3.5.1", "==3.5.*", True),
        ("3.5.1", ">=3", True),
        ("3.5.1", "", True),
    ],
)
def test_triton_against_what_torch_asks_for(version: str, required: str, fits: bool) -> None:
    assert compile_env.fits(version, required) is fits


@pytest.mark.parametrize(
    ("torch", "standard"), [("2.9.1+cu128", "c++17"), ("2.13.0", "c++20"), ("3.0", "c++20"), ("", "c++17")]
)
def test_the_standard_that_inductor_compiles_with(torch: str, standard: str) -> None:
    assert compile_env.cxx_standard(torch) == standard


def test_triton_looks_for_libcuda_in_this_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    monkeypatch.setattr(compile_env, "cached_folders", lambda: ([], ""))
    monkeypatch.delenv("TRITON_LIBCUDA_PATH", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/none:{tmp_path}")
    assert compile_env.libcuda()["libcuda"] == [str(tmp_path)]
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(compile_env, "LIBRARY_FOLDERS", (str(tmp_path),))
    found = compile_env.libcuda()
    assert (found["libcuda"], found["libcuda_elsewhere"]) == ([], [str(tmp_path)])
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    assert compile_env.libcuda()["libcuda"] == [str(tmp_path)]
    monkeypatch.delenv("TRITON_LIBCUDA_PATH")
    monkeypatch.undo()
    monkeypatch.setattr(compile_env, "LDCONFIG", "/no/ldconfig")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = compile_env.libcuda()  # triton raises before it looks at LD_LIBRARY_PATH
    assert (found["libcuda"], found["libcuda_error"]) == ([], "/no/ldconfig does not exist")


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ('ID=ubuntu\nID_LIKE=debian\nVERSION="24.04"\n', "ubuntu debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rocky rhel centos fedora"),
        ("", ""),
    ],
)
def test_os_release(tmp_path: Path, text: str, system: str) -> None:
    (tmp_path / "os-release").write_text(text)
    assert probes.os_release(tmp_path / "os-release") == system
    assert probes.os_release(tmp_path / "none") == ""


def test_without_deep_nothing_is_compiled() -> None:
    failure = probes.deep(REQUEST)
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is FailureKind.UNAVAILABLE and "--deep" in failure.reason


@pytest.mark.slow
def test_a_real_compile_and_one_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    asked = Request(python=sys.executable, timeout=120, deep=True)
    facts = probes.deep(asked)
    assert isinstance(facts, DeepCompileFacts)
    assert facts.runs[0].device == "cpu" and facts.runs[0].ok, facts
    assert json.loads((tmp_path / "cache" / ".torch-doctor.json").read_text())["torch"]
    monkeypatch.setenv("CXX", "no-such-compiler")
    failed = probes.deep(asked)
    assert isinstance(failed, DeepCompileFacts)
    assert not failed.runs[0].ok and "compiler" in failed.runs[0].error.lower(), failed

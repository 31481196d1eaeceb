"""CMP0xx: compilers, headers, triton, libcuda, names of users, and a real compile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import compile as checks
from torch_doctor.facts.compile import CompileFacts, Compiler, CompileRun, DeepCompileFacts
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import Finding, Remediation, Severity

APT = "apt-get update && apt-get install -y --no-install-recommends g++"
OPEN = Requirements()
COMPILES, NEVER = Requirements(compiles=True), Requirements(compiles=False)
GCC, GXX = Compiler("gcc or clang", "/usr/bin/gcc"), Compiler("g++", "/usr/bin/g++")
HEALTHY = CompileFacts(
    "/venv/bin/python",
    "3.13",
    "/usr/include/python3.13",
    True,
    GCC,
    GXX,
    torch_version="2.9.1",
    cuda="12.8",
    triton="3.5.1",
    triton_required="==3.5.1",
    has_driver=True,
    libcuda=("/usr/lib/x86_64-linux-gnu",),
    system="debian",
    uid=1000,
    manager="docker",
)


def only(findings: object) -> Finding:
    (finding,) = list(findings)  # type: ignore[call-overload]
    assert isinstance(finding, Finding)
    return finding


def test_a_healthy_machine_has_no_fault() -> None:
    assert not [
        *checks.no_c_compiler(HEALTHY, COMPILES),
        *checks.no_cxx_compiler(HEALTHY, COMPILES),
        *checks.python_headers_missing(HEALTHY, COMPILES),
        *checks.compiler_broken(HEALTHY, COMPILES),
        *checks.user_without_name(HEALTHY, COMPILES),
        *checks.triton_mismatch(HEALTHY, COMPILES),
        *checks.libcuda_not_linkable(HEALTHY, COMPILES),
    ]


@pytest.mark.parametrize(
    ("needs", "severity"), [(OPEN, Severity.WARNING), (COMPILES, Severity.ERROR), (NEVER, Severity.NOTE)]
)
def test_what_the_script_does_decides_how_bad_it_is(needs: Requirements, severity: Severity) -> None:
    facts = replace(HEALTHY, cxx=Compiler("g++"))
    assert only(checks.no_cxx_compiler(facts, needs)).severity is severity


def test_no_cxx_compiler_whole() -> None:
    assert only(checks.no_cxx_compiler(replace(HEALTHY, cxx=Compiler("g++")), OPEN)) == Finding(
        Severity.WARNING,
        "no C++ compiler (g++) on PATH: torch.compile fails for the CPU",
        Remediation(
            "Add it to the image",
            (
                f"RUN {APT}",
                f"docker exec -u root CONTAINER sh -c '{APT}'",
            ),
        ),
        {"wanted": "g++", "variable": ""},
    )


@pytest.mark.parametrize(
    ("system", "root", "command"),
    [
        ("debian", True, "apt-get update && apt-get install -y --no-install-recommends g++"),
        ("ubuntu debian", False, "sudo apt-get update && sudo apt-get install -y --no-install-recommends g++"),
        ("rocky rhel centos fedora", True, "dnf install -y gcc-c++"),
        ("alpine", True, "apk add g++"),
        ("opensuse-leap suse opensuse", True, "zypper install -y gcc-c++"),
        ("", True, "apt-get update && apt-get install -y --no-install-recommends g++"),
    ],
)
def test_the_command_fits_the_system(system: str, root: bool, command: str) -> None:
    facts = replace(HEALTHY, cxx=Compiler("g++"), system=system, is_root=root, manager="")
    assert only(checks.no_cxx_compiler(facts, OPEN)).remediation.commands == (command,)


def test_a_variable_that_names_no_program_is_the_fault() -> None:
    finding = only(checks.no_cxx_compiler(replace(HEALTHY, cxx=Compiler("icpx", "", "CXX")), OPEN))
    assert finding.message.startswith("CXX is icpx, which is no program here")
    assert finding.remediation.commands == ("unset CXX",)


def test_a_build_for_the_cpu_needs_no_c_compiler() -> None:
    facts = replace(HEALTHY, c=Compiler("gcc or clang"))
    assert not list(checks.no_c_compiler(replace(facts, cuda=None), COMPILES))
    assert only(checks.no_c_compiler(facts, COMPILES)).severity is Severity.ERROR
    assert only(checks.no_c_compiler(replace(facts, cuda=None, hip="6.4"), COMPILES)).severity is Severity.ERROR


def test_missing_headers_are_those_of_the_interpreter() -> None:
    finding = only(checks.python_headers_missing(replace(HEALTHY, has_headers=False), OPEN))
    assert "python3.13-dev" in finding.remediation.commands[0] and "/usr/include/python3.13" in finding.message


def test_a_compiler_that_does_not_compile() -> None:
    facts = replace(HEALTHY, c=replace(GCC, error="fatal error: stdint.h: No such file or directory"))
    finding = only(checks.compiler_broken(facts, OPEN))
    assert finding.message == "/usr/bin/gcc does not compile: fatal error: stdint.h: No such file or directory"
    assert not list(checks.compiler_broken(replace(facts, cuda=None), OPEN))


@pytest.mark.parametrize(
    ("torch", "error", "found"),
    [
        ("2.9.1+cu128", "KeyError: 'getpwuid(): uid not found: 1042'", 1),
        ("2.12.0", "OSError: No username set in the environment", 1),
        ("2.13.0", "KeyError: 'getpwuid(): uid not found: 1042'", 0),
        ("2.9.1", "", 0),
        ("", "KeyError: 'getpwuid(): uid not found: 1042'", 0),
    ],
)
def test_a_uid_without_a_name(torch: str, error: str, found: int) -> None:
    facts = replace(HEALTHY, torch_version=torch, user_error=error)
    findings = list(checks.user_without_name(facts, OPEN))
    assert [f.remediation.commands for f in findings] == [("docker run -e USER=trainer ...",)] * found


@pytest.mark.parametrize(
    ("triton", "matches", "cuda", "message"),
    [
        (None, True, "12.8", "triton is not installed; torch 2.9.1 asks for triton==3.5.1"),
        ("3.4.0", False, "12.8", "triton is 3.4.0; torch 2.9.1 asks for triton==3.5.1"),
        (None, True, None, None),
        ("3.5.1", True, "12.8", None),
    ],
)
def test_triton(triton: str | None, matches: bool, cuda: str | None, message: str | None) -> None:
    facts = replace(HEALTHY, triton=triton, triton_matches=matches, cuda=cuda)
    findings = list(checks.triton_mismatch(facts, OPEN))
    assert [f.message for f in findings] == ([message] if message else [])
    assert all("pip install triton==3.5.1" in f.remediation.commands[0] for f in findings)


def test_libcuda_that_the_linker_does_not_find() -> None:
    facts = replace(HEALTHY, libcuda=(), libcuda_elsewhere=("/usr/local/nvidia/lib64",))
    finding = only(checks.libcuda_not_linkable(facts, OPEN))
    assert finding.remediation.commands == ("export TRITON_LIBCUDA_PATH=/usr/local/nvidia/lib64",)
    assert not list(checks.libcuda_not_linkable(replace(facts, has_driver=False), OPEN))
    assert not list(checks.libcuda_not_linkable(replace(facts, cuda=None), OPEN))


def test_a_real_compile_that_fails() -> None:
    deep = DeepCompileFacts((CompileRun("cpu", True, 9.1), CompileRun("cuda", False, 2.0, "InductorError: no")))
    finding = only(checks.compile_fails(deep, OPEN))
    assert finding.message == "torch.compile on cuda fails after 2 s: InductorError: no"
    assert finding.severity is Severity.ERROR

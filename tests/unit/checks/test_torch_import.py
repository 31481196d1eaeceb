"""What a failing import of torch means: every line of the table with its real text, and what must not match."""

from __future__ import annotations

import pytest

from torch_doctor.checks import torch_import as checks
from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, ProbeFailure, Severity

GOOD = TorchFacts("2.13.0+cpu", "/opt/venv/lib/torch", "/opt/venv/bin/python", "3.11.2")


def failure(line: str, kind: FailureKind = FailureKind.ERROR) -> ProbeFailure:
    error_type, _, error = line.partition(": ")
    evidence = {
        "error_type": error_type,
        "error": error,
        "python": "/opt/venv/bin/python",
        "installed_version": "2.9.1+cu128",
        "path": "/opt/venv/lib/torch",
    }
    return ProbeFailure(f"import torch fails: {line}", kind, evidence)


def test_a_torch_that_imports_has_no_finding() -> None:
    assert [*checks.torch_missing(GOOD), *checks.torch_import_fails(GOOD)] == []


def test_a_missing_torch_is_an_error_of_that_interpreter() -> None:
    missing = ProbeFailure("torch is not installed for /usr/bin/python3", evidence={"python": "/usr/bin/python3"})
    (finding,) = checks.torch_missing(missing)
    assert (finding.severity, finding.message) == (Severity.ERROR, "torch is not installed for /usr/bin/python3")
    assert finding.remediation.commands == ("/usr/bin/python3 -m pip install torch",)
    assert list(checks.torch_import_fails(missing)) == []


@pytest.mark.parametrize("fault", checks.IMPORT_FAULTS, ids=lambda fault: fault.real[:60])
def test_the_real_line_is_explained_by_its_own_entry(fault: checks.ImportFault) -> None:
    found = checks.explain(fault.real)
    assert found is not None
    assert found[0] is fault
    (finding,) = checks.torch_import_fails(failure(fault.real))
    assert finding.severity is fault.severity
    assert fault.real in finding.message
    assert finding.remediation.commands
    assert not any("{" in text for text in (finding.message, *finding.remediation.commands))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory", "libcudnn.so.8"),
        ("OSError: libcublas.so.12: cannot open shared object file: No such file", "a CUDA library is missing"),
        ("OSError: /x/libc10_cuda.so: cannot open shared object file: No such file", "a library of torch itself"),
        ("ImportError: libshm.so: cannot open shared object file: No such file", "a library of torch itself"),
        (
            "ImportError: /env/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommResume",
            "another version of a CUDA library",
        ),
        ("ImportError: dlopen: cannot load any more object with static TLS", "thread-local"),
        (
            "AttributeError: partially initialized module 'torch' has no attribute 'nn' "
            "(most likely due to a circular import)",
            "named torch stands before",
        ),
        ("ModuleNotFoundError: No module named 'sympy.core'", "not installed: sympy.core"),
    ],
)
def test_other_wordings(line: str, part: str) -> None:
    (finding,) = checks.torch_import_fails(failure(line))
    assert part in finding.message


def test_a_missing_package_is_named_in_the_command() -> None:
    (finding,) = checks.torch_import_fails(failure("ModuleNotFoundError: No module named 'sympy.core'"))
    assert finding.remediation.commands == ("/opt/venv/bin/python -m pip install sympy",)


def test_the_reinstall_names_the_version_that_was_there() -> None:
    (finding,) = checks.torch_import_fails(failure("ImportError: libtorch_cpu.so: cannot open shared object file"))
    assert finding.remediation.commands == (
        "/opt/venv/bin/python -m pip install --force-reinstall --no-cache-dir torch==2.9.1+cu128",
    )


def test_an_error_that_nothing_explains_is_still_shown() -> None:
    (finding,) = checks.torch_import_fails(failure("RuntimeError: the moon is in the wrong place"))
    assert finding.message == "import torch fails: RuntimeError: the moon is in the wrong place"
    assert finding.remediation.commands


def test_no_place_for_temporary_files_is_not_torchs_fault() -> None:
    line = (
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/w']"
    )
    # FS002 is the error; a pass would be untrue, since torch does not import
    (finding,) = checks.torch_import_fails(failure(line))
    assert (finding.severity, finding.remediation.commands) == (
        Severity.NOTE,
        ("docker run --tmpfs /tmp:exec ...",),
    )


def test_a_signal_is_named_with_its_likely_cause() -> None:
    died = ProbeFailure("killed", FailureKind.SIGNAL, {"signal": "SIGILL"})
    (finding,) = checks.torch_import_fails(died)
    assert finding.message == (
        "import torch ends with SIGILL: this processor lacks an instruction that the build uses (AVX, AVX2)"
    )


def test_no_answer_is_a_finding_with_the_limit() -> None:
    (finding,) = checks.torch_import_fails(ProbeFailure("slow", FailureKind.TIMEOUT, {"timeout_s": 30.0}))
    assert finding.message == "import torch gives no answer within 30 s"

"""torch's import: missing, or failing, and what the error says about the cause."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from torch_doctor.facts.torch import TorchFacts
from torch_doctor.model import FailureKind, Finding, ProbeFailure, Remediation, Severity
from torch_doctor.registry import check


@dataclass(frozen=True)
class ImportFault:
    """One cause of a failing import.

    Args:
        pattern: regular expression for "TYPE: message"; its groups fill ``{0}``, ``{1}`` of the texts.
        cause: what it means.
        text: what to do.
        commands: what to type; ``{python}`` is the interpreter, ``{torch}`` the installed requirement.
        real: a line that was seen, and matches.
        severity: a note where another check names the same cause as an error.
    """

    pattern: str
    cause: str
    text: str
    commands: tuple[str, ...]
    real: str
    severity: Severity = Severity.ERROR


_REINSTALL = "{python} -m pip install --force-reinstall --no-cache-dir {torch}"

#: the first that matches counts. Lines are from issues of pytorch/pytorch and others, 2018 to 2026
IMPORT_FAULTS = (
    ImportFault(
        r"libcuda\.so[.\d]*: cannot open shared object",
        "the NVIDIA driver's library is not here",
        "Start the container with the GPU, or install the driver; a CPU build of torch does not need it",
        ("docker run --gpus all ...",),
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    ImportFault(
        r"(lib(?:torch|c10|shm|caffe2|gloo)\w*[^:\s]*): cannot open shared object",
        "a library of torch itself is missing ({0}): the install is incomplete, or the file was removed",
        "Install torch again",
        (_REINSTALL,),
        "ImportError: libtorch_cpu.so: cannot open shared object file: No such file or directory",
    ),
    ImportFault(
        r"(lib(?:cudnn|cublas|cublasLt|cudart|cufft|cufile|cupti|curand|cusolver|cusparse|cusparseLt|nccl|nvrtc|"
        r"nvJitLink|nvshmem|nvToolsExt)[^:\s]*): cannot open shared object",
        "a CUDA library is missing ({0}): its wheel is not installed, or not beside torch (lib and lib64)",
        "Install torch again with its dependencies, all into one folder",
        (_REINSTALL,),
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
    ),
    ImportFault(
        r"(lib(?:gomp|stdc\+\+|gcc_s|numa|openblas|mkl\w*|m|z|GL|ibverbs)[^:\s]*): cannot open shared object",
        "a library of the system is missing ({0})",
        "Install the package that has it",
        ("apt-get install -y libgomp1 libstdc++6 libnuma1",),
        "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory",
    ),
    ImportFault(
        r"([^\s:]+\.so[^\s:]*): cannot open shared object",
        "a library is missing ({0})",
        "Install the package that has it, or torch again",
        (_REINSTALL,),
        "ImportError: libfoo.so.1: cannot open shared object file: No such file or directory",
    ),
    ImportFault(
        r"undefined symbol: (iJIT_\w+)",
        "MKL 2024.1 and later lack a symbol that this torch needs ({0})",
        "Install an older MKL",
        ("{python} -m pip install 'mkl<2024.1'", "conda install 'mkl<2024.1'"),
        "ImportError: /opt/conda/lib/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent",
    ),
    ImportFault(
        r"undefined symbol: (__nvJitLink\w+|nccl\w+|cudnn\w+|cublas\w+|cusparse\w+|cuda\w+)",
        "another version of a CUDA library is loaded than torch was built with ({0} is missing in it)",
        "Take other CUDA folders out of LD_LIBRARY_PATH, and install the libraries that torch pins",
        ("unset LD_LIBRARY_PATH", _REINSTALL),
        "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
    ),
    ImportFault(
        r"undefined symbol: (\w+)",
        "libraries of different versions are mixed ({0} is missing)",
        "Install torch again, without libraries of another one on LD_LIBRARY_PATH or PYTHONPATH",
        (_REINSTALL,),
        "ImportError: libtorch_python.so: undefined symbol: _ZN5torch4cuda4nccl16throw_nccl_errorE12ncclResult_t",
    ),
    ImportFault(
        r"version [`'](GLIBC_[\d.]+)' not found",
        "this system's C library is too old for the wheel, which needs {0}",
        "Use a newer distribution, for instance in a container, or an older torch",
        ("docker run --rm -it torch-doctor",),
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.28' not found (required by libtorch_cpu.so)",
    ),
    ImportFault(
        r"version [`']((?:GLIBCXX|CXXABI)_[\d.]+)' not found",
        "an old libstdc++ is loaded, without {0}; conda's, or one on LD_LIBRARY_PATH, comes first",
        "Take the folder out of LD_LIBRARY_PATH, or bring that libstdc++ up to date",
        ("unset LD_LIBRARY_PATH", "conda install -c conda-forge libstdcxx-ng"),
        "ImportError: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by libtorch.so)",
    ),
    ImportFault(
        r"static TLS",
        "a library that was loaded before takes the space for thread-local variables",
        "Load the library that the error names first",
        ("LD_PRELOAD=/path/of/the/library python train.py",),
        "ImportError: libgomp-d22c30c5.so.1: cannot allocate memory in static TLS block",
    ),
    ImportFault(
        r"failed to map segment from shared object",
        "libraries may not be loaded from where torch is installed: the file system is mounted noexec",
        "Mount it with exec, or install torch elsewhere",
        ("docker run --tmpfs /tmp:exec ...",),
        "ImportError: libtorch_cpu.so: failed to map segment from shared object: Operation not permitted",
    ),
    ImportFault(
        r"file too short|invalid ELF header|ELF file's phentsize|ELF load command",
        "a library is cut off or damaged: the disk was full, or the install was interrupted",
        "Make room, and install torch again",
        ("df -h", _REINSTALL),
        "ImportError: /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so: file too short",
    ),
    ImportFault(
        r"[Ww]rong ELF class|cannot open shared object file: Exec format|incompatible architecture",
        "torch was built for another processor",
        "Install the build for this machine",
        (_REINSTALL,),
        "ImportError: libtorch.so: wrong ELF class: ELFCLASS32",
    ),
    ImportFault(
        r"Failed to load PyTorch C extensions|No module named 'torch\._C'|from partially initialized module 'torch'"
        r"|partially initialized module 'torch' has no attribute",
        "a folder or file named torch stands before the installed one: a source checkout, or torch.py",
        "Start from another folder, or rename it",
        ("cd /", "{python} -c 'import torch; print(torch.__file__)'"),
        "ModuleNotFoundError: No module named 'torch._C'",
    ),
    ImportFault(
        r"No module named '(?!torch)([\w.]+)'",
        "a package that torch needs is not installed: {0}",
        "Install what is missing",
        ("{python} -m pip install {0}",),
        "ModuleNotFoundError: No module named 'typing_extensions'",
    ),
    ImportFault(
        r"No usable temporary directory",
        "no folder for temporary files can be written to, or all are full (FS002, FS005)",
        "Mount a tmpfs on /tmp, or name another folder in TMPDIR",
        ("docker run --tmpfs /tmp:exec ...",),
        "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp', '/app']",
        Severity.NOTE,
    ),
    ImportFault(
        r"getpwuid\(\): uid not found: (\d+)|No username set in the environment",
        "this user has a number and no name, which torch asks for",
        "Give it a name",
        ("docker run -e USER=trainer ...",),
        "KeyError: 'getpwuid(): uid not found: 1042'",
    ),
    ImportFault(
        r"^PermissionError|Permission denied",
        "this user may not read the files of torch",
        "Let all users read them",
        ("sudo chmod -R a+rX {path}",),
        "PermissionError: [Errno 13] Permission denied: '/opt/venv/lib/python3.11/site-packages/torch/__init__.py'",
    ),
    ImportFault(
        r"^SyntaxError|^ImportError: cannot import name .* from 'typing'|PyFloat_|_PyObject|PyThread_",
        "this torch was made for another version of Python",
        "Install a torch that has a wheel for this Python",
        ("{python} -m pip install --upgrade torch",),
        "SyntaxError: invalid syntax",
    ),
    ImportFault(
        r"numpy\.core\.multiarray failed to import|_ARRAY_API not found|compiled using NumPy 1",
        "torch was built with NumPy 1, and NumPy 2 is installed",
        "Install NumPy 1, or a torch from 2.3 on",
        ("{python} -m pip install 'numpy<2'",),
        "ImportError: numpy.core.multiarray failed to import",
    ),
    ImportFault(
        r"^MemoryError|[Cc]annot allocate memory",
        "there is not enough memory, or address space (ulimit -v)",
        "Lift the limit, or end what holds the memory",
        ("ulimit -v unlimited",),
        "ImportError: libtorch_cpu.so: cannot allocate memory",
    ),
)

#: signals that end the interpreter during the import
SIGNAL_CAUSES = {
    "SIGILL": "this processor lacks an instruction that the build uses (AVX, AVX2)",
    "SIGKILL": "it was killed, most likely for memory",
    "SIGBUS": "a file that it maps was cut off, or /dev/shm is full",
    "SIGSEGV": "libraries of different builds are mixed, or one is damaged",
    "SIGABRT": "a library ended the process; its message is in the evidence",
}


def explain(error: str) -> tuple[ImportFault, tuple[str, ...]] | None:
    """The fault that "TYPE: message" stands for, with the groups of its pattern."""
    for fault in IMPORT_FAULTS:
        match = re.search(fault.pattern, error)
        if match:
            return fault, tuple(group or "" for group in match.groups())
    return None


@check("PKG001", "torch-missing", tags={"torch"})
def torch_missing(torch: TorchFacts | ProbeFailure) -> Iterator[Finding]:
    """torch is not installed for the interpreter that runs the training.

    What it checks:
        Whether the interpreter finds a module torch; nothing is imported for that.
    Why it matters:
        Most often the wrong interpreter runs: another environment than the one that torch was installed into.
    Example:
        sudo python train.py        # root's Python, not that of the activated environment
    Fix:
        Activate the environment, or python -m pip install torch.
    References:
        https://pytorch.org/get-started/locally/
    """
    if not isinstance(torch, ProbeFailure) or torch.kind is not FailureKind.UNAVAILABLE:
        return
    python = shlex.quote(str(torch.evidence.get("python") or "python3"))
    yield Finding(
        Severity.ERROR,
        torch.reason,
        Remediation("Activate the environment that has torch, or install it", (f"{python} -m pip install torch",)),
        evidence=dict(torch.evidence),
    )


@check("PKG002", "torch-import-fails", tags={"torch"})
def torch_import_fails(torch: TorchFacts | ProbeFailure) -> Iterator[Finding]:
    """torch is installed and cannot be imported.

    What it checks:
        import torch in a child process with a time limit: an exception, a signal, or no answer.
    Why it matters:
        Nothing can run. The error names a library or a symbol; the cause is most often a mixture of versions.
    Example:
        ImportError: libcudnn.so.9: cannot open shared object file
    Fix:
        By the error: see the finding's remedy. Often python -m pip install --force-reinstall torch.
    References:
        https://man7.org/linux/man-pages/man8/ld.so.8.html
    """
    if not isinstance(torch, ProbeFailure) or not torch.kind.is_crash:
        return
    evidence, severity = dict(torch.evidence), Severity.ERROR
    if torch.kind is FailureKind.TIMEOUT:
        text = "A slow or network disk, or one that is read for the first time: give it more time, then look at that"
        remedy = Remediation(text, ("torch-doctor check --timeout 120",))
        message = f"import torch gives no answer within {evidence.get('timeout_s', 0):g} s"
    elif torch.kind is FailureKind.SIGNAL:
        name = str(evidence.get("signal", ""))
        message = f"import torch ends with {name}: {SIGNAL_CAUSES.get(name, 'a signal')}"
        remedy = Remediation("See the last line that Python reached", ("python3 -X faulthandler -c 'import torch'",))
    else:
        severity, message, remedy = _exception(torch)
    yield Finding(severity, message, remedy, evidence=evidence)


def _exception(failure: ProbeFailure) -> tuple[Severity, str, Remediation]:
    evidence = failure.evidence
    first = f"{evidence.get('error_type', '')}: {evidence.get('error', '')}"
    whole = f"{evidence.get('error_type', '')}: {evidence.get('error_text') or evidence.get('error', '')}"
    found = explain(whole)
    if found is None:
        again = Remediation("Install torch again", (_filled(_REINSTALL, (), failure),))
        return Severity.ERROR, f"import torch fails: {first}", again
    fault, groups = found
    commands = tuple(_filled(command, groups, failure) for command in fault.commands)
    message = f"import torch fails: {first}; {fault.cause.format(*groups)}"
    return fault.severity, message, Remediation(fault.text, commands)


def _filled(command: str, groups: tuple[str, ...], failure: ProbeFailure) -> str:
    version = failure.evidence.get("installed_version")
    return command.format(
        *(shlex.quote(group.partition(".")[0]) for group in groups),
        python=shlex.quote(str(failure.evidence.get("python") or "python3")),
        torch=shlex.quote(f"torch=={version}") if version else "torch",
        path=shlex.quote(str(failure.evidence.get("path") or "FOLDER")),
    )

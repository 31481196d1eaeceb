"""torch.compile: compilers, Python headers, triton and libcuda; with --deep a real compile."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from torch_doctor.facts.compile import CompileFacts, Compiler, DeepCompileFacts
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import Finding, Remediation, Severity
from torch_doctor.registry import check

#: package manager by the words of os-release's ID and ID_LIKE -> command, C compiler, C++ compiler, Python headers
_PACKAGES = {
    "debian": (
        "apt-get update && apt-get install -y --no-install-recommends",
        "gcc libc6-dev",
        "g++",
        "python{v}-dev",
    ),
    "alpine": ("apk add", "gcc musl-dev", "g++", "python3-dev"),
    "fedora": ("dnf install -y", "gcc", "gcc-c++", "python{v}-devel"),
    "rhel": ("dnf install -y", "gcc", "gcc-c++", "python{v}-devel"),
    "suse": ("zypper install -y", "gcc", "gcc-c++", "python{v}-devel"),
    "arch": ("pacman -S --noconfirm", "gcc", "gcc", "python"),
}
#: inductor asks for the user's name up to here: https://github.com/pytorch/pytorch/pull/184208
USER_NAME_NOT_NEEDED = (2, 13)


def severity(needs: Requirements) -> Severity:
    """An error where the script compiles, a note where it surely does not, else a warning."""
    if needs.compiles is None:
        return Severity.WARNING
    return Severity.ERROR if needs.compiles else Severity.NOTE


def install(facts: CompileFacts, which: str) -> Remediation:
    """How to install the ``c`` compiler, the ``cxx`` compiler or the ``headers``."""
    words = facts.system.split()
    name = next((key for key in _PACKAGES if any(word.startswith(key) for word in words)), "debian")
    command, c, cxx, headers = _PACKAGES[name]
    package = {"c": c, "cxx": cxx, "headers": headers}[which].format(v=facts.python_version)
    line = f"{command} {package}"
    if facts.manager in ("docker", "kubernetes"):
        return Remediation(
            "Add it to the image", (f"RUN {line}", f"docker exec -u root CONTAINER sh -c {quote(line)}")
        )
    if facts.is_root:
        return Remediation("Install it", (line,))
    return Remediation(
        "Install it", (line.replace(command, " && ".join(f"sudo {c}" for c in command.split(" && "))),)
    )


@check("CMP001", "no-c-compiler", tags={"compile"})
def no_c_compiler(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """Triton finds no C compiler, so that nothing compiles for the GPU.

    What it checks:
        CC, gcc and clang as triton looks for them, for torch builds with CUDA or ROCm.
    Why it matters:
        triton compiles a small launcher in C on each machine: "Failed to find C compiler. Please specify via CC
        environment variable".
    Example:
        FROM python:3.13-slim, then torch.compile(model) on a GPU
    Fix:
        apt-get install gcc libc6-dev, or CC=/path/to/compiler.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    if facts.c.path or not facts.is_gpu_build:
        return
    yield from _no_compiler(facts, facts.c, "c", severity(needs), "C compiler", "for the GPU")


@check("CMP002", "no-cxx-compiler", tags={"compile"})
def no_cxx_compiler(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """Inductor finds no C++ compiler, so that nothing compiles for the CPU.

    What it checks:
        CXX, else g++, as inductor looks for it; clang++ is used only where CXX names it.
    Why it matters:
        "InvalidCxxCompiler: No working C++ compiler found". Models on a GPU need it, too, where a part of the graph
        stays on the CPU.
    Example:
        FROM python:3.13-slim, then torch.compile(model) on the CPU
    Fix:
        apt-get install g++, or CXX=/path/to/compiler.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    if facts.cxx.path:
        return
    yield from _no_compiler(facts, facts.cxx, "cxx", severity(needs), "C++ compiler", "for the CPU")


def _no_compiler(
    facts: CompileFacts, compiler: Compiler, which: str, level: Severity, name: str, where: str
) -> Iterator[Finding]:
    evidence = {"wanted": compiler.wanted, "variable": compiler.variable}
    if compiler.variable:
        variable = compiler.variable
        message = f"{variable} is {compiler.wanted}, which is no program here: torch.compile fails {where}"
        remedy = Remediation("Name a compiler that is there, or let torch find its own", (f"unset {variable}",))
    else:
        message = f"no {name} ({compiler.wanted}) on PATH: torch.compile fails {where}"
        remedy = install(facts, which)
    yield Finding(level, message, remedy, evidence)


@check("CMP003", "python-headers-missing", tags={"compile"})
def python_headers_missing(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """Python.h is not where sysconfig says.

    What it checks:
        The include folder of the user's interpreter, as inductor and triton take it from sysconfig. A virtual
        environment has the headers of the Python that made it.
    Why it matters:
        "fatal error: Python.h: No such file or directory", in the middle of a run's first step.
    Example:
        apt-get install python3 gcc, without python3-dev
    Fix:
        apt-get install python3.13-dev (the version of the interpreter).
    References:
        https://docs.python.org/3/library/sysconfig.html#installation-paths
    """
    if facts.has_headers:
        return
    yield Finding(
        severity(needs),
        f"no Python.h in {facts.include}: torch.compile cannot build for Python {facts.python_version}",
        install(facts, "headers"),
        {"include": facts.include, "python": facts.python},
    )


@check("CMP012", "compiler-broken", tags={"compile"})
def compiler_broken(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """There is a compiler, but it does not compile a small program.

    What it checks:
        A shared library of three lines with Python.h, OpenMP and the C++ standard that inductor asks for.
    Why it matters:
        A compiler without its headers, its assembler, OpenMP or C++20 is found by torch and then fails at the
        first step.
    Example:
        apt-get install --no-install-recommends gcc      # without libc6-dev
    Fix:
        Install the missing part that the message names.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    wanted = [(facts.cxx, "cxx"), *([(facts.c, "c")] if facts.is_gpu_build else [])]
    for compiler, which in wanted:
        if compiler.error:
            message = f"{compiler.path} does not compile: {compiler.error}"
            yield Finding(
                severity(needs), message, install(facts, which), {"path": compiler.path, "error": compiler.error}
            )


@check("CMP009", "user-without-name", tags={"compile", "container"})
def user_without_name(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """This uid has no name, which torch before 2.13 needs for its compile cache.

    What it checks:
        getpass.getuser() in the user's interpreter: LOGNAME, USER, LNAME, USERNAME, then the password database.
    Why it matters:
        "KeyError: 'getpwuid(): uid not found: 1042'" (OSError from Python 3.13 on) at the first compile; in some
        releases even where TORCHINDUCTOR_CACHE_DIR is set.
    Example:
        docker run --user $(id -u) IMAGE python train.py
    Fix:
        docker run -e USER=trainer ..., or any name in USER.
    References:
        https://github.com/pytorch/pytorch/issues/140765
    """
    if not facts.user_error or not facts.torch_release or facts.torch_release >= USER_NAME_NOT_NEEDED:
        return
    commands = {
        "docker": ("docker run -e USER=trainer ...",),
        "kubernetes": ("kubectl set env deployment NAME USER=trainer",),
    }
    yield Finding(
        severity(needs),
        f"uid {facts.uid} has no name and USER is not set: torch {facts.torch_version} asks for one when it compiles",
        Remediation("Give it a name", commands.get(facts.manager, ("export USER=trainer",))),
        {"uid": facts.uid, "error": facts.user_error},
    )


@check("CMP010", "triton-mismatch", tags={"compile"})
def triton_mismatch(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """triton is missing, or is not the version that this torch asks for.

    What it checks:
        The installed triton against the requirement in torch's own metadata; builds without CUDA and ROCm have none.
    Why it matters:
        torch.compile on a GPU fails: "Cannot find a working triton installation", or with an error inside triton
        that looks like a fault of the model.
    Example:
        pip install --no-deps torch
    Fix:
        pip install with the version that torch names.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    if not facts.triton_required or not facts.is_gpu_build:
        return
    package = f"triton{facts.triton_required}"
    if facts.triton is None:
        message = f"triton is not installed; torch {facts.torch_version} asks for {package}"
    elif not facts.triton_matches:
        message = f"triton is {facts.triton}; torch {facts.torch_version} asks for {package}"
    else:
        return
    yield Finding(
        severity(needs),
        message,
        Remediation("Install the one that torch asks for", (f"{facts.python} -m pip install {quote(package)}",)),
        {"triton": facts.triton, "required": facts.triton_required},
    )


@check("CMP011", "libcuda-not-linkable", tags={"compile", "container"})
def libcuda_not_linkable(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """There is a GPU, but triton does not find libcuda.so.1 to link against.

    What it checks:
        On a machine with an NVIDIA driver: TRITON_LIBCUDA_PATH, the linker's cache (ldconfig -p), then
        LD_LIBRARY_PATH, in triton's order.
    Why it matters:
        "AssertionError: libcuda.so cannot found!" or "cannot find -lcuda" at the first compile, while everything
        else on the GPU works.
    Example:
        libcuda.so.1 in /usr/local/nvidia/lib64, which the linker's cache does not list
    Fix:
        ldconfig as root, or TRITON_LIBCUDA_PATH.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    if not facts.has_driver or facts.cuda is None or facts.libcuda:
        return
    where = facts.libcuda_elsewhere
    tail = f"; it is in {where[0]}" if where else ""
    reason = facts.libcuda_error or "neither the linker's cache nor LD_LIBRARY_PATH lists it"
    if where:
        remedy = Remediation("Tell triton where it is", (f"export TRITON_LIBCUDA_PATH={quote(where[0])}",))
    elif facts.manager == "docker":
        text = "Let the NVIDIA runtime mount the driver's libraries"
        remedy = Remediation(text, ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",))
    else:
        remedy = Remediation("Refresh the linker's cache", ("sudo ldconfig", "ldconfig -p | grep libcuda"))
    yield Finding(
        severity(needs),
        f"triton finds no libcuda.so.1 to link against: {reason}{tail}",
        remedy,
        {"elsewhere": list(where), "error": facts.libcuda_error},
    )


@check("CMP013", "compile-fails", tags={"compile", "deep"})
def compile_fails(deep: DeepCompileFacts, needs: Requirements) -> Iterator[Finding]:
    """A real torch.compile of a small function fails, or gives another result than eager.

    What it checks:
        With --deep: torch.compile on the CPU and, where there is one, on a GPU, without the cache, timed, compared
        with eager.
    Why it matters:
        What fails here fails for every model.
    Example:
        torch-doctor check --deep
    Fix:
        By the error; the other CMP checks name the usual causes.
    References:
        https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    """
    for run in deep.runs:
        if run.ok:
            continue
        level = Severity.ERROR if needs.compiles is None else severity(needs)
        yield Finding(
            level,
            f"torch.compile on {run.device} fails after {run.seconds:g} s: {run.error}",
            Remediation("See the other CMP findings; until then run eagerly", ("export TORCH_COMPILE_DISABLE=1",)),
            {"device": run.device, "seconds": run.seconds, "traceback_tail": list(run.traceback_tail)},
        )

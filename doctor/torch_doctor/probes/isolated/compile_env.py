"""Looks for what torch.compile needs, as torch and triton look for it. Imports neither.

In: {"limit_s": seconds for one compiler}. Out: the fields of CompileFacts that this interpreter can tell.
"""

from __future__ import annotations

import ast
import contextlib
import getpass
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LDCONFIG = "/sbin/ldconfig"  # the path that triton calls
#: where drivers put the library; what is only here is not found by a linker that asks the cache
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64-nvidia",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/local/cuda/compat",
)
C_SOURCE = "#include <Python.h>\n#include <stdint.h>\nint64_t probe(void) { return 1; }\n"
CXX_SOURCE = (
    "#include <Python.h>\n#include <algorithm>\n#include <omp.h>\n"
    'extern "C" int probe() { return std::max(1, omp_get_max_threads()); }\n'
)
MOST_METADATA = 200
MOST_FOLDERS = 2000


def main() -> None:
    """Write what was found to the descriptor in the last argument."""
    payload = json.load(sys.stdin)
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(look(float(payload["limit_s"])), stream)


def look(limit_s: float) -> dict[str, Any]:
    """Everything; the two compilers at the same time."""
    include = sysconfig.get_path("include") or ""
    headers = os.path.exists(os.path.join(include, "Python.h"))
    torch = torch_build()
    is_gpu_build = torch["cuda"] is not None or torch["hip"] is not None
    with ThreadPoolExecutor(2) as pool:
        headers_in = include if headers else None
        # only triton compiles C: for a build without a GPU it is enough to know where the compiler is
        c = pool.submit(compiler, "CC", ("gcc", "clang"), headers_in, [], limit_s if is_gpu_build else 0)
        flags = [f"-std={cxx_standard(torch['torch_version'] or '')}", "-fopenmp"]
        cxx = pool.submit(compiler, "CXX", ("g++",), headers_in, flags, limit_s)
        return {
            "python": sys.executable,
            "python_version": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "include": include,
            "has_headers": headers,
            "user_error": user_error(),
            **torch,
            **triton(),
            **libcuda(),
            "caches": list(caches()),
            "c": c.result(),
            "cxx": cxx.result(),
        }


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_build() -> dict[str, str | None]:
    """Version, CUDA and ROCm of the build, from torch's version file: torch itself may be broken, or slow."""
    found: dict[str, str | None] = {"torch_version": version_of("torch") or "", "cuda": None, "hip": None}
    with contextlib.suppress(ImportError, ValueError, OSError, SyntaxError):
        spec = importlib.util.find_spec("torch")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            tree = ast.parse(Path(folder, "version.py").read_text())
            for node in tree.body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                value = getattr(node, "value", None)
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                    name = {"__version__": "torch_version"}.get(target.id, target.id)
                    if name in found and isinstance(value.value, str):
                        found[name] = value.value
    return found


def cxx_standard(torch_version: str) -> str:
    """What inductor compiles with: C++20 from torch 2.13 on."""
    numbers = re.findall(r"\d+", torch_version)[:2]
    return "c++20" if [int(n) for n in numbers] >= [2, 13] else "c++17"


# -- compilers -----------------------------------------------------------------------------------------------


def compiler(
    variable: str, names: tuple[str, ...], include: str | None, flags: list[str], limit_s: float
) -> dict[str, str]:
    """The compiler that ``variable`` or the default names lead to, and whether it compiles a small program.

    It is not tried where ``limit_s`` is 0.
    """
    chosen = os.environ.get(variable, "")
    wanted = chosen or " or ".join(names)
    program = chosen.split()[:1] or [n for n in names if shutil.which(n)][:1]
    path = shutil.which(program[0]) if program else None
    found = {"wanted": wanted, "path": path or "", "variable": variable if chosen else "", "error": ""}
    if path and limit_s:
        rest = chosen.split()[1:] if chosen else []
        found["error"] = try_compiler([path, *rest], include, flags, variable == "CXX", limit_s)
    return found


def try_compiler(command: list[str], include: str | None, flags: list[str], is_cxx: bool, limit_s: float) -> str:
    """The first error of a small shared library with the Python headers; empty where it compiles and links."""
    source = CXX_SOURCE if is_cxx else C_SOURCE
    if include is None:  # their absence is a fault of its own
        source = source.replace("#include <Python.h>\n", "")
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "probe.cpp" if is_cxx else "probe.c")
            Path(path).write_text(source)
            where = ["-I", include] if include else []
            arguments = [*command, *flags, "-shared", "-fPIC", *where, path, "-o", os.path.join(folder, "probe.so")]
            done = subprocess.run(
                arguments, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
            )
    except subprocess.TimeoutExpired:
        return f"no result within {limit_s:g} s"
    except OSError as error:
        # a temporary folder that cannot be written is not the compiler's fault
        return "" if error.filename is None or tempfile.gettempdir() in str(error.filename) else str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    telling = [line for line in lines if re.search(r"error|cannot find|not found|No such file", line)]
    text = (telling or lines or [f"status {done.returncode}"])[0]
    if "No space left" in done.stderr or "Read-only file system" in done.stderr:
        return ""
    return re.sub(r"^\S*/tmp\S*probe\.\w+:[\d:]*\s*", "", text)[:300]


# -- the user, triton, libcuda -------------------------------------------------------------------------------


def user_error() -> str:
    """Why getpass.getuser() fails here: a uid without an entry, and no variable that names it."""
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def triton() -> dict[str, Any]:
    """The installed triton, and what torch's metadata asks for."""
    required = ""
    name = "triton"
    try:
        for line in importlib.metadata.requires("torch") or []:
            match = re.match(r"(triton|pytorch-triton(?:-\w+)?|triton-rocm)\s*\(?([=~<>!][^;)]*)?", line)
            if match and "extra" not in line:
                name, required = match[1], (match[2] or "").strip()
                break
    except importlib.metadata.PackageNotFoundError:
        pass
    version = version_of(name) or version_of("triton") or version_of("pytorch-triton")
    matches = version is None or fits(version, required)
    return {"triton": version, "triton_required": required, "triton_matches": matches}


def fits(version: str, required: str) -> bool:
    """Whether a version meets ``==3.5.0`` or ``~=3.5.0``; other specifiers are not judged."""
    for part in required.split(","):
        match = re.fullmatch(r"\s*(==|~=)\s*([\w.+]+?)(\.\*)?\s*", part)
        if not match:
            continue
        asked = numbers(match[2])
        have = numbers(version)
        if match[1] == "~=":
            if have[: len(asked) - 1] != asked[:-1] or have < asked:
                return False
        elif have[: len(asked)] != asked:
            return False
    return True


def numbers(version: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", re.split(r"\+|(?<=\d)(?:a|b|rc|\.dev|\.post)", version)[0])]


def libcuda() -> dict[str, Any]:
    """Where triton's search finds libcuda.so.1: TRITON_LIBCUDA_PATH, ldconfig's cache, LD_LIBRARY_PATH."""
    given = os.environ.get("TRITON_LIBCUDA_PATH")
    driver = any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version"))
    error = ""
    if given:
        folders = [given]
    else:
        folders, error = cached_folders()
        if not folders and not error:
            folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    held = [f for f in folders if f and os.path.exists(os.path.join(f, "libcuda.so.1"))]
    elsewhere = [f for f in LIBRARY_FOLDERS if f not in held and os.path.exists(os.path.join(f, "libcuda.so.1"))]
    return {
        "has_driver": driver,
        "libcuda": list(dict.fromkeys(held)),
        "libcuda_error": error,
        "libcuda_elsewhere": elsewhere,
    }


def cached_folders() -> tuple[list[str], str]:
    """Folders of libcuda.so.1 in the linker's cache, and why the cache cannot be asked."""
    try:
        done = subprocess.run(
            [LDCONFIG, "-p"], capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except FileNotFoundError:
        return [], f"{LDCONFIG} does not exist"
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{LDCONFIG} cannot be run: {error}"
    lines = [line.split()[-1] for line in done.stdout.splitlines() if "libcuda.so.1" in line]
    return [os.path.dirname(path) for path in lines], ""


# -- caches --------------------------------------------------------------------------------------------------


def caches() -> Iterator[dict[str, Any]]:
    """Inductor's folder and triton's: name, path, the variable that names it, and who made what is in it."""
    inductor = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    path = os.path.abspath(inductor) if inductor else default_inductor()
    yield {
        "name": "inductor",
        "path": path,
        "variable": "TORCHINDUCTOR_CACHE_DIR" if inductor else "",
        **inside(path),
    }
    own = os.environ.get("TRITON_CACHE_DIR")
    if own:
        yield {"name": "triton", "path": os.path.abspath(own), "variable": "TRITON_CACHE_DIR", **inside(own)}


def default_inductor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def inside(path: str) -> dict[str, Any]:
    """What the entries say: versions of triton and architectures, torch-doctor's own marker, another owner."""
    found: dict[str, Any] = {"triton_versions": [], "archs": [], "marker": {}, "foreign_uid": None}
    uid = os.geteuid()
    seen = visited = 0
    with contextlib.suppress(OSError, ValueError):
        found["marker"] = json.loads(Path(path, ".torch-doctor.json").read_text())
    for folder, folders, files in os.walk(path):
        del folders[MOST_METADATA:]
        try:
            owner = os.stat(folder).st_uid
        except OSError:
            continue
        if owner != uid and not os.access(folder, os.W_OK) and folder != path:
            found["foreign_uid"] = owner
        for name in files:
            if name.endswith(".json") and not name.startswith((".", "__grp__")):
                seen += 1
                note_metadata(os.path.join(folder, name), found)
        visited += 1
        if seen >= MOST_METADATA or visited >= MOST_FOLDERS:
            break
    return found


def note_metadata(path: str, found: dict[str, Any]) -> None:
    """Triton writes its version and the target beside each kernel."""
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return
    if not isinstance(data, dict):
        return
    version, target = data.get("triton_version"), data.get("target")
    if isinstance(version, str) and version not in found["triton_versions"]:
        found["triton_versions"].append(version)
    arch = target.get("arch") if isinstance(target, dict) and target.get("backend") == "cuda" else None
    if isinstance(arch, int) and arch not in found["archs"]:
        found["archs"].append(arch)


if __name__ == "__main__":
    main()

"""Lists what is installed for this interpreter, without importing any of it.

In: {"script_folder": ..., "modules": [names that a file beside the script must not have]}.
Out: PackagesFacts' fields as far as the interpreter knows them.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import site
import sys

MAX_FOLDERS = 64

# read from their metadata: what these pin must be what is installed
REQUIRING = ("torch", "torchvision", "torchaudio", "cuda-toolkit")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def import_path() -> list[str]:
    """sys.path as a script gets it, without this script's own folder; of two names of one folder the first."""
    own = os.path.dirname(os.path.realpath(__file__))
    found: dict[str, str] = {}
    for folder in filter(None, sys.path):
        real = os.path.realpath(folder)
        if real != own:
            found.setdefault(real, folder)
    return list(found.values())


def distributions(folder: str) -> list[tuple[str, str, str]]:
    """(name, version, folder of the metadata) of what is installed in ``folder``."""
    found = []
    for entry in names_in(folder):
        match = re.fullmatch(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info", entry)
        if match and not entry.startswith("~"):
            found.append((normalised(match[1]), match[2], os.path.join(folder, entry)))
    return found


def requirements(metadata: str) -> list[str]:
    for name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(metadata, name), encoding="utf-8", errors="replace") as stream:
                head = stream.read(1 << 18).partition("\n\n")[0]
        except OSError:
            continue
        return re.findall(r"^Requires-Dist: (.+)$", head, re.MULTILINE)
    return []


def torch_build(origin: str) -> dict[str, object]:
    """cuda and hip from torch/version.py, read as text."""
    try:
        with open(os.path.join(os.path.dirname(origin), "version.py"), encoding="utf-8") as stream:
            text = stream.read(1 << 16)
    except OSError:
        return {}
    found: dict[str, object] = {}
    for key in ("cuda", "hip"):
        match = re.search(rf"^{key}\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        found[f"torch_{key}"] = match[1] if match else None
    return found


def wheel_libraries(path: list[str], origin: str) -> dict[str, str]:
    """Library name -> path, of torch's own and the NVIDIA wheels' libraries."""
    folders = [os.path.join(os.path.dirname(origin), "lib")] if origin else []
    for base in path:
        top = os.path.join(base, "nvidia")
        folders += [os.path.join(top, name, "lib") for name in names_in(top)]
    found: dict[str, str] = {}
    for folder in folders:
        for name in names_in(folder):
            if ".so" in name:
                found.setdefault(name, os.path.join(folder, name))
    return found


def hidden_libraries(path: list[str], origin: str) -> list[tuple[str, str, str]]:
    """(name, on LD_LIBRARY_PATH, in the wheels) for each library that stands in both, as different files."""
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f][:MAX_FOLDERS]
    if not folders:
        return []
    meant, found = wheel_libraries(path, origin), []
    for folder in folders:
        for name in names_in(folder):
            other = os.path.join(folder, name)
            if name in meant and os.path.realpath(other) != os.path.realpath(meant[name]):
                found.append((name, other, meant[name]))
    return found


def shadows(folder: str, modules: list[str]) -> list[tuple[str, str]]:
    """(module, file) for each file in ``folder`` that an import takes for a module of ``modules``."""
    # a module that is built into the interpreter is never looked for in a folder
    wanted, present = set(modules).difference(sys.builtin_module_names), set(names_in(folder))
    found = [(name, name + ".py") for name in sorted(wanted) if name + ".py" in present]
    found += [(name, name + "/__init__.py") for name in sorted(wanted & present)]
    return [(name, os.path.join(folder, path)) for name, path in found if os.path.isfile(os.path.join(folder, path))]


def main() -> None:
    request = json.load(sys.stdin)
    path = import_path()
    installed = [item for folder in path for item in distributions(folder)]
    spec = importlib.machinery.PathFinder.find_spec("torch", path)
    origin = (spec.origin or "") if spec else ""
    first: dict[str, str] = {}
    for name, _, metadata in installed:
        first.setdefault(name, metadata)
    user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    out = {
        "python": sys.executable,
        "python_version": sys.version.split()[0],
        "path": path,
        "user_site": user_site if user_site in path else "",
        "distributions": installed,
        "requires": {name: requirements(first[name]) for name in REQUIRING if name in first},
        "torch_file": origin,
        **(torch_build(origin) if origin else {}),
        "leftovers": [os.path.join(f, name) for f in path for name in names_in(f) if name.startswith("~")],
        "shadows": shadows(request["script_folder"], request["modules"]),
        "libraries": hidden_libraries(path, origin),
    }
    with os.fdopen(int(sys.argv[-1]), "w") as stream:
        json.dump(out, stream)


if __name__ == "__main__":
    main()

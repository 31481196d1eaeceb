"""What is installed for the user's interpreter, read from its folders without importing any of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Distribution:
    """An installed distribution: normalised name, version, and the folder that holds its metadata."""

    name: str
    version: str
    folder: str


@dataclass(frozen=True)
class Shadow:
    """A file that is found before the one that was meant; both are full paths."""

    name: str
    path: str
    hides: str = ""


@dataclass(frozen=True)
class Manifest:
    """What the image was built with. ``packages`` are versions by normalised name."""

    path: str
    variant: str
    torch: str
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PackagesFacts:
    """Packages of one interpreter.

    Args:
        python: the interpreter.
        python_version: ``3.13.1``.
        path: its sys.path, in order, as a script gets it.
        user_site: the user's own site folder where it is in use; empty where not.
        distributions: all of them, in the order of sys.path.
        requires: requirement strings of torch, torchvision, torchaudio and cuda-toolkit, where installed.
        torch_file: ``torch/__init__.py`` that an import finds; empty where none is found.
        torch_cuda: CUDA version of the build as torch/version.py says; None for a build without.
        torch_hip: likewise ROCm.
        leftovers: folders that pip left when an install was interrupted (``~orch``).
        shadows: modules beside the script that hide ones of the same name.
        libraries: libraries on LD_LIBRARY_PATH that hide those of the wheels.
        gpu_devices: "nvidia", "amd": device files that are here.
        manifest: of our image; None elsewhere.
        script: whether a script was given.
    """

    python: str
    python_version: str
    path: tuple[str, ...] = ()
    user_site: str = ""
    distributions: tuple[Distribution, ...] = ()
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    torch_file: str = ""
    torch_cuda: str | None = None
    torch_hip: str | None = None
    leftovers: tuple[str, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    libraries: tuple[Shadow, ...] = ()
    gpu_devices: frozenset[str] = frozenset()
    manifest: Manifest | None = None
    script: bool = False

    def find(self, name: str) -> Distribution | None:
        """The distribution that an import gets: the first on sys.path."""
        return next((d for d in self.distributions if d.name == name), None)

    def all(self, name: str) -> tuple[Distribution, ...]:
        """Every distribution of that name."""
        return tuple(d for d in self.distributions if d.name == name)

    def pins(self, name: str) -> Iterator[tuple[str, str]]:
        """(name, version) of each ``==`` requirement of ``name``; ``13.4.*`` stays as written."""
        yield from self._pins(name, frozenset())

    def pins_of_torch(self) -> dict[str, str]:
        """What torch pins, itself and by the extras of cuda-toolkit that it asks for."""
        found = dict(self.pins("torch"))
        for requirement in self.requires.get("torch", ()):
            match = _EXTRAS.match(requirement)
            if match and normalised(match[1]) == "cuda-toolkit":
                found.update(self._pins("cuda-toolkit", frozenset(re.split(r"\s*,\s*", match[2].strip()))))
        return found

    def _pins(self, name: str, extras: frozenset[str]) -> Iterator[tuple[str, str]]:
        for requirement in self.requires.get(name, ()):
            match, extra = _PIN.match(requirement), _EXTRA.search(requirement)
            if match and (extra is None or extra[1] in extras):
                yield normalised(match[1]), match[2]


_EXTRAS = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*\[([^]]*)\]")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")
_PIN = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^]]*\])?\s*\(?\s*==\s*([\w.+!*-]+)")


def normalised(name: str) -> str:
    """PEP 503: ``Nvidia_CUDA.runtime`` is ``nvidia-cuda-runtime``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(version: str) -> tuple[int, ...]:
    """``(2, 9, 1)`` of ``2.9.1rc1+cu128``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def satisfies(version: str, pin: str) -> bool:
    """Whether ``version`` meets ``== pin``: a local part (``+cpu``) counts only where the pin has one."""
    if "+" not in pin:
        version = version.partition("+")[0]
    if pin.endswith(".*"):
        return version == pin[:-2] or version.startswith(pin[:-1])
    return _stripped(version) == _stripped(pin)


def _stripped(version: str) -> tuple[tuple[int, ...], str]:
    # 2.9 is 2.9.0, and 2.9.0rc1 is not
    numbers = release(version)
    rest = version[len(".".join(map(str, numbers))) :]
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers, rest

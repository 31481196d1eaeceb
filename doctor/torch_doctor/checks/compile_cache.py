"""torch.compile: the folders that compiled kernels go to."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from torch_doctor.checks.compile import severity
from torch_doctor.facts.compile import CacheFolder, CompileFacts
from torch_doctor.facts.requirements import Requirements
from torch_doctor.model import Finding, Remediation, Severity
from torch_doctor.registry import check


def _used(facts: CompileFacts) -> Iterator[CacheFolder]:
    return (cache for cache in facts.caches if cache.name == "inductor" or facts.is_gpu_build)


def _variable(cache: CacheFolder) -> str:
    return "TORCHINDUCTOR_CACHE_DIR" if cache.name == "inductor" else "TRITON_CACHE_DIR"


def _elsewhere(cache: CacheFolder, facts: CompileFacts) -> tuple[str, ...]:
    """Commands that put a cache where it works."""
    variable = _variable(cache)
    folder = f"/tmp/torch-compile-{facts.uid}"
    if facts.manager == "docker":
        return (f"docker run --tmpfs /tmp:exec -e {variable}={folder} ...",)
    if facts.manager == "kubernetes":
        return (f"kubectl set env deployment NAME {variable}={folder}",)
    return (f"export {variable}={folder}",)


def _evidence(cache: CacheFolder) -> dict[str, object]:
    place = cache.place
    return {
        "cache": cache.name,
        "path": place.path,
        "variable": cache.variable,
        "error": place.error,
        "file_system": place.kind,
        "owner_uid": place.owner_uid,
    }


@check("CMP004", "compile-cache-unwritable", tags={"compile", "container"})
def compile_cache_unwritable(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """The folder that compiled kernels go to cannot be written.

    What it checks:
        A file in inductor's cache folder, and in triton's where TRITON_CACHE_DIR names one: TORCHINDUCTOR_CACHE_DIR,
        else torchinductor_USER in the temporary folder.
    Why it matters:
        Inductor writes its sources there before it compiles: "Permission denied" or "Read-only file system" at
        the first step, not at the start.
    Example:
        docker run --read-only IMAGE python train.py
    Fix:
        TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR in a writable folder.
    References:
        https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
    """
    for cache in _used(facts):
        error = cache.place.error
        if not error or error == "TIMEOUT":
            continue
        owner = f", which belongs to uid {cache.place.owner_uid}" if error in ("EACCES", "EPERM") else ""
        message = f"{cache.name} cannot write its cache {cache.place.path}{owner}: {error}"
        remedy = Remediation("Put the cache into a folder that this user can write", _elsewhere(cache, facts))
        yield Finding(severity(needs), message, remedy, _evidence(cache))


@check("CMP005", "compile-cache-noexec", tags={"compile", "container"})
def compile_cache_noexec(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """The folder that compiled kernels go to is mounted noexec.

    What it checks:
        Whether a page of a file in the cache folder can be mapped executable.
    Why it matters:
        Kernels are shared libraries that are loaded from there: "failed to map segment from shared object".
    Example:
        docker run --read-only --tmpfs /tmp IMAGE python train.py       # Docker mounts a tmpfs noexec
    Fix:
        docker run --tmpfs /tmp:exec ..., or the cache in a folder that is not noexec.
    References:
        https://docs.docker.com/engine/storage/tmpfs/
    """
    for cache in _used(facts):
        if cache.place.error or cache.place.executable is not False:
            continue
        mount = cache.place.mount_point or cache.place.nearest
        message = f"{cache.name}'s cache {cache.place.path} is on {mount}, which is mounted noexec"
        if facts.manager == "docker":
            commands: tuple[str, ...] = (f"docker run --tmpfs {mount}:exec ...",)
        elif facts.manager == "kubernetes":
            commands = _elsewhere(cache, facts)
        else:
            commands = (f"sudo mount -o remount,exec {quote(mount)}",)
        remedy = Remediation(f"Mount it with exec, or set {_variable(cache)} to a folder elsewhere", commands)
        yield Finding(severity(needs), message, remedy, _evidence(cache))


@check("CMP006", "compile-cache-on-network", tags={"compile"})
def compile_cache_on_network(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """The folder that compiled kernels go to is on a network file system.

    What it checks:
        The type of the file system that the cache folder is on.
    Why it matters:
        Every rank of every node locks, writes and loads small files there: compiles take minutes, locks hang, and
        kernels that one machine made for its CPU are loaded on another ("Illegal instruction").
    Example:
        export TORCHINDUCTOR_CACHE_DIR=$HOME/.inductor      # home on NFS
    Fix:
        The cache on a local disk.
    References:
        https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
    """
    for cache in _used(facts):
        if not cache.place.is_network:
            continue
        level = min(severity(needs), Severity.WARNING, key=lambda s: s.rank)
        message = f"{cache.name}'s cache {cache.place.path} is on {cache.place.kind}, a network file system"
        remedy = Remediation("Put the cache on a local disk", _elsewhere(cache, facts))
        yield Finding(level, message, remedy, _evidence(cache))


@check("CMP007", "compile-cache-foreign", tags={"compile"})
def compile_cache_foreign(facts: CompileFacts, needs: Requirements) -> Iterator[Finding]:
    """The cache of compiled kernels, or a part of it, belongs to someone else.

    What it checks:
        The owner of the cache folder and of the folders in it that this user cannot write. /tmp itself belongs to
        everyone.
    Why it matters:
        What another user wrote is loaded as code into this process; and where it cannot be written, some kernels
        fail with "Permission denied" while others work.
    Example:
        sudo python train.py, then python train.py
    Fix:
        Remove it, or a cache of one's own.
    References:
        https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
    """
    for cache in _used(facts):
        place = cache.place
        foreign = place.exists and not place.error and place.owner_uid not in (facts.uid, 0) and facts.uid != 0
        owner = place.owner_uid if foreign else cache.foreign_uid
        if owner is None:
            continue
        part = f"{cache.name}'s cache {place.path}" if foreign else f"a part of {cache.name}'s cache {place.path}"
        prefix = "" if facts.is_root else "sudo "
        commands = (f"{prefix}chown -R {facts.uid} {quote(place.path)}", *_elsewhere(cache, facts))
        level = min(severity(needs), Severity.WARNING, key=lambda s: s.rank)
        message = f"{part} belongs to uid {owner}; this process runs as {facts.uid}"
        yield Finding(level, message, Remediation("Take it over, or use another", commands), _evidence(cache))


@check("CMP008", "compile-cache-stale", tags={"compile"})
def compile_cache_stale(facts: CompileFacts) -> Iterator[Finding]:
    """The cache of compiled kernels was made by another torch, triton or driver.

    What it checks:
        The triton version that is written beside each kernel, and torch's version and the driver's as
        ``check --deep`` notes them in the cache.
    Why it matters:
        Old entries are not used; they take space, and a first compile is due again. Where two installations share
        one folder, each finds half of it useless.
    Example:
        pip install --upgrade torch
    Fix:
        Remove the cache.
    References:
        https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_configuration_tutorial.html
    """
    for cache in _used(facts):
        if cache.made_by:
            message = f"{cache.name}'s cache {cache.place.path} holds kernels of {', '.join(cache.made_by)}"
            remedy = Remediation("Remove it; it is built anew", (f"rm -rf {quote(cache.place.path)}",))
            yield Finding(Severity.NOTE, message, remedy, {**_evidence(cache), "made_by": list(cache.made_by)})

"""Tries folders: creates, writes, maps executable and removes a file in each. One forked child per slow one.

In: {"places": [{"role": ..., "path": ...}], "slow": [indexes of places on file systems that can hang],
"limit_s": seconds for each of those}. Out: {"places": [{...}]} in the same order.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import select
import signal
import sys
import time
from typing import Any


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def nearest_existing(path: str) -> tuple[str, os.stat_result]:
    while True:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            parent = os.path.dirname(path)
            if parent == path:
                raise
            path = parent
        else:
            return path, found


def look(place: dict[str, Any]) -> dict[str, Any]:
    path = place["path"]
    nearest, found = nearest_existing(path)
    space = os.statvfs(nearest)
    seen = {
        "nearest": nearest,
        "real": os.path.realpath(nearest),
        "exists": nearest == path,
        "owner_uid": found.st_uid,
        "owner_gid": found.st_gid,
        "mode": found.st_mode & 0o7777,
        "free_bytes": space.f_bavail * space.f_frsize,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_inodes": space.f_favail,
        "total_inodes": space.f_files,
        "read_only": bool(space.f_flag & os.ST_RDONLY),
        "executable": None,
        "readable": os.access(path, os.R_OK) if nearest == path else True,
        "error": "",
    }
    if place["role"] == "data":
        return seen
    if not os.path.isdir(nearest):
        return {**seen, "error": "ENOTDIR"}
    return {**seen, **try_writing(nearest)}


def try_writing(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, ".torch-doctor-" + os.urandom(8).hex())
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return {"error": name_of(error)}
    try:
        # the name goes first: whatever kills this process leaves no file behind
        os.unlink(path)
        os.write(descriptor, b"\0" * mmap.PAGESIZE)
        return {"executable": maps_executable(descriptor)}
    except OSError as error:
        return {"error": name_of(error)}
    finally:
        os.close(descriptor)


def maps_executable(descriptor: int) -> bool:
    try:
        mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    except PermissionError:
        return False
    return True


def safely(place: dict[str, Any]) -> dict[str, Any]:
    try:
        return look(place)
    except OSError as error:
        return {"error": name_of(error), "exists": False}


def start_aside(place: dict[str, Any]) -> tuple[int, int]:
    """Look in a forked child: (pid, descriptor that its answer comes from)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        # whoever waits for this script's stdout and stderr must not wait for a child that hangs
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2, int(sys.argv[1])):
            os.dup2(null, descriptor)
        os.write(writer, json.dumps(safely(place)).encode())
        os._exit(0)
    os.close(writer)
    return pid, reader


def finish(pid: int, reader: int, deadline: float) -> dict[str, Any]:
    ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
    data = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    if not data:
        # it may be unkillable: sent the signal and left behind
        os.kill(pid, signal.SIGKILL)
        return {"error": "TIMEOUT", "exists": False}
    os.waitpid(pid, 0)
    answer: dict[str, Any] = json.loads(data)
    return answer


def main() -> None:
    request = json.load(sys.stdin)
    places, slow = request["places"], set(request["slow"])
    aside = {index: start_aside(places[index]) for index in sorted(slow)}
    deadline = time.monotonic() + request["limit_s"]
    found = [{} if index in slow else safely(place) for index, place in enumerate(places)]
    for index, (pid, reader) in aside.items():
        found[index] = finish(pid, reader, deadline)
    with os.fdopen(int(sys.argv[1]), "w") as out:
        json.dump({"places": found}, out)


if __name__ == "__main__":
    main()

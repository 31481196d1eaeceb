"""multiprocessing.shared_memory of MIB, made in a worker that is gone before it is read: METHOD MIB."""

import multiprocessing
import signal
import sys
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

METHOD, SIZE = sys.argv[1], int(sys.argv[2]) << 20


def produce(names: "multiprocessing.SimpleQueue[str]") -> None:
    shared = shared_memory.SharedMemory(create=True, size=SIZE)
    shared.buf[:] = b"\x07" * SIZE
    names.put(shared.name)
    shared.close()


def main() -> None:
    resource_tracker.ensure_running()
    context = multiprocessing.get_context(METHOD)
    names = context.SimpleQueue()
    worker = context.Process(target=produce, args=(names,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0, signal.strsignal(-worker.exitcode) if worker.exitcode < 0 else worker.exitcode
    shared = shared_memory.SharedMemory(names.get())
    assert bytes(shared.buf) == b"\x07" * SIZE
    shared.close()
    shared.unlink()
    left = list(Path("/dev/shm").glob("psm_*"))
    print(f"{SIZE >> 20} MiB read, {left} left")


if __name__ == "__main__":
    main()

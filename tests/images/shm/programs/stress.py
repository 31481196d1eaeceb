"""Loaders until a number of batches or seconds is reached, then what is left: STRATEGY SECONDS BATCHES.

Small and large batches, workers that stay and workers that go, tensors kept for a while and
dropped out of order. Prints one JSON object with the state before and after.
"""

import collections
import gc
import json
import random
import sys
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

STRATEGY, SECONDS, BATCHES = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
MEMORY = [Path("/sys/fs/cgroup/memory/memory.stat"), Path("/sys/fs/cgroup/memory.stat")]


class Noise(Dataset):
    """Elements is a length per sample; each sample is filled with its own index."""

    def __init__(self, elements: int, length: int) -> None:
        self.elements, self.length = elements, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.elements,), float(index))


def use_strategy(_worker: int) -> None:
    mp.set_sharing_strategy(STRATEGY)


def shared_bytes() -> int:
    """Shared memory charged to this container: shmem, not the page cache around it."""
    lines = next(path for path in MEMORY if path.exists()).read_text().splitlines()
    fields = dict(line.split() for line in lines)
    return int(fields.get("total_shmem", fields.get("shmem", 0)))


def processes() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text().split("\0")[0])
        except OSError:
            continue
    return found


def state() -> dict[str, int]:
    gc.collect()
    links = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(path.readlink()))
        except FileNotFoundError:
            continue
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "descriptors": len(links),
        "memfds": sum(link.startswith("/memfd:") for link in links),
        "shared_mappings": sum("/memfd:torch" in line or "/dev/shm/torch" in line for line in maps),
        "names": len(list(Path("/dev/shm").glob("torch_*"))),
        "shared_mib": shared_bytes() >> 20,
        "keepers": sum(name == "torch-doctor-shm-keeper" for name in processes()),
    }


def epoch(loader: DataLoader, held: "collections.deque[torch.Tensor]", seed: random.Random) -> int:
    count = 0
    for number, batch in enumerate(loader):
        first = number * loader.batch_size
        assert batch[0, 0].item() == batch[0, -1].item() == first, (batch[0, 0], first)
        if seed.random() < 0.1:
            held.append(batch)
        count += 1
    return count


def loaders() -> "list[DataLoader]":
    common = {"num_workers": 2, "worker_init_fn": use_strategy}
    small = Noise(64, 4000)
    large = Noise(8 << 18, 24)  # 8 MiB a sample
    return [
        DataLoader(small, batch_size=4, persistent_workers=True, **common),
        DataLoader(large, batch_size=2, prefetch_factor=4, **common),
    ]


def settle() -> dict[str, int]:
    """torch's own manager clears names two seconds after its last client; wait for the end, not for a time."""
    end = time.monotonic() + 20
    after = state()
    while time.monotonic() < end and any(after[key] for key in after if key != "descriptors"):
        time.sleep(0.1)
        after = state()
    return after


def main() -> None:
    use_strategy(0)
    seed = random.Random(0)
    held: collections.deque[torch.Tensor] = collections.deque(maxlen=16)
    batches = sum(epoch(loader, held, seed) for loader in loaders())  # what is set up once is set up
    held.clear()
    before = settle()
    end = time.monotonic() + SECONDS
    kept = loaders()
    peak_mib = 0
    while batches < BATCHES and time.monotonic() < end:
        batches += sum(epoch(loader, held, seed) for loader in kept)
        peak_mib = max(peak_mib, shared_bytes() >> 20)
    held.clear()
    del kept
    print(json.dumps({"batches": batches, "peak_mib": peak_mib, "before": before, "after": settle()}))


if __name__ == "__main__":
    main()

"""A DataLoader whose batches do not fit into 64 MiB: STRATEGY METHOD [BATCHES] [MIB]. Prints what it saw."""

import gc
import sys
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

STRATEGY, METHOD, BATCHES, MIB = [*sys.argv[1:], *("6", "40")[len(sys.argv) - 3 :]]


class Numbers(Dataset):
    def __len__(self) -> int:
        return int(BATCHES)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((int(MIB) << 18,), index, dtype=torch.float32)


def use_strategy(_worker: int) -> None:
    mp.set_sharing_strategy(STRATEGY)


def memfds() -> int:
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(link).startswith("/memfd:") for link in links)


def main() -> None:
    use_strategy(0)
    loader = DataLoader(
        Numbers(), batch_size=1, num_workers=2, multiprocessing_context=METHOD, worker_init_fn=use_strategy
    )
    seen = [(batch[0, 0].item(), batch[0, -1].item(), batch.numel()) for batch in loader]
    assert seen == [(float(i), float(i), int(MIB) << 18) for i in range(int(BATCHES))], seen
    del loader
    gc.collect()
    print(f"{len(seen)} batches, {memfds()} memfds left")


if __name__ == "__main__":
    main()

"""A worker is killed while it fills a batch; the next loader of the same process has to work: STRATEGY."""

import os
import signal
import sys

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

STRATEGY = sys.argv[1]


class Numbers(Dataset):
    def __init__(self, fatal: int) -> None:
        self.fatal = fatal

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.fatal:
            torch.full((40 << 18,), 1.0).share_memory_()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((40 << 18,), float(index))


def run(fatal: int) -> int:
    return sum(1 for _ in DataLoader(Numbers(fatal), batch_size=1, num_workers=2))


def main() -> None:
    mp.set_sharing_strategy(STRATEGY)
    try:
        run(5)
    except RuntimeError as error:
        # which of torch's two sentences it is depends on who notices first
        assert "killed by signal: Killed" in str(error) or "exited unexpectedly" in str(error), error
        print("the loader names the dead worker")
    print(f"{run(-1)} batches after it")


if __name__ == "__main__":
    main()

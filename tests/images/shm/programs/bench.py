"""Batches a second of one loader, after a warm-up epoch: TASK STRATEGY WORKERS SECONDS.

image   decompress, convert and normalise a 256 x 256 picture: what a training set costs
memory  make a sample and nothing else: what the way through shared memory costs
"""

import sys
import time
import zlib

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

TASK, STRATEGY, WORKERS, SECONDS = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
SIDE = 256
BATCH = 32


class Pictures(Dataset):
    """Pictures as training sees them: compressed bytes in, a normalised crop out."""

    def __init__(self) -> None:
        noise = torch.randint(0, 60, (3, SIDE, SIDE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        self.packed = zlib.compress(noise.numpy().tobytes(), 6)

    def __len__(self) -> int:
        return 20 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = bytearray(zlib.decompress(self.packed))
        picture = torch.frombuffer(raw, dtype=torch.uint8).reshape(3, SIDE, SIDE)
        crop = picture[:, index % 32 : index % 32 + 224, index % 31 : index % 31 + 224].float()
        return crop.sub_(30.0).div_(17.0)


class Samples(Dataset):
    """A picture's size, from nothing."""

    def __len__(self) -> int:
        return 40 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 224, 224), float(index))


def start(_worker: int) -> None:
    torch.set_num_threads(1)
    mp.set_sharing_strategy(STRATEGY)


def main() -> None:
    start(0)
    dataset = Pictures() if TASK == "image" else Samples()
    loader = DataLoader(
        dataset, batch_size=BATCH, num_workers=WORKERS, worker_init_fn=start, persistent_workers=WORKERS > 0
    )
    for _ in loader:
        pass
    batches, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < SECONDS:
        batches += sum(1 for _ in loader)
    print(f"{batches / elapsed:.4f}")


if __name__ == "__main__":
    main()

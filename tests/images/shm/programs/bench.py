"""Batches a second of one loader: TASK STRATEGY WORKERS. Each line of standard input is a number of seconds to run.

image   decompress, convert and normalise a 256 x 256 picture: what a training set costs
memory  make a sample and nothing else: what the way through shared memory costs
"""

import sys
import time
import zlib

import torch
import torch.multiprocessing as mp
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset

TASK, STRATEGY, WORKERS = sys.argv[1], sys.argv[2], int(sys.argv[3])
SIDE = 512
BATCH = 16


class Pictures(Dataset):
    """Pictures as training sees them: compressed bytes in, a normalised crop out."""

    def __init__(self) -> None:
        noise = torch.randint(0, 60, (3, SIDE, SIDE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        self.packed = zlib.compress(noise.numpy().tobytes(), 6)

    def __len__(self) -> int:
        return 16 * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        raw = bytearray(zlib.decompress(self.packed))
        picture = torch.frombuffer(raw, dtype=torch.uint8).reshape(3, SIDE, SIDE)
        offset = index % 32
        crop = picture[None, :, offset : offset + 448, offset : offset + 448].float()
        return interpolate(crop, size=(224, 224), mode="bilinear", antialias=True)[0].sub_(30.0).div_(17.0)


class Samples(Dataset):
    """A picture's size, from nothing."""

    def __len__(self) -> int:
        return 80 * BATCH

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
    for _ in loader:  # what is set up once is set up
        pass
    for line in sys.stdin:
        batches, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < float(line):
            batches += sum(1 for _ in loader)
        print(f"{batches / elapsed:.4f}", flush=True)


if __name__ == "__main__":
    main()

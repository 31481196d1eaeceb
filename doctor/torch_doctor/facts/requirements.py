"""What a training script needs of the machine: inferred from its source, or given by ``--need``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoaderNeed:
    """One DataLoader of the script. None where the source does not say.

    ``sample_bytes`` is the size of one collated sample; ``line`` counts from 1.
    """

    line: int
    workers: int | None = None
    batch_size: int | None = None
    prefetch_factor: int | None = None
    sample_bytes: int | None = None
    pin_memory: bool = False
    start_method: str | None = None

    @property
    def shm_bytes(self) -> int | None:
        """Bytes of shared memory in flight: batch x prefetch x workers; None where it cannot be known."""
        if self.workers is None or self.batch_size is None or self.sample_bytes is None:
            return 0 if self.workers == 0 else None
        return self.sample_bytes * self.batch_size * (self.prefetch_factor or 2) * self.workers


@dataclass(frozen=True)
class Requirements:
    """What the run needs. None or empty: nothing was asked, so nothing is judged.

    Sizes are bytes. ``gpus`` is a count; ``gpus_asked`` is where the wish came from
    (``--need gpus=``, ``NVIDIA_VISIBLE_DEVICES``, the script), empty where nobody asked.
    """

    gpus: int | None = None
    gpus_asked: str = ""
    gpu_memory_bytes: int | None = None
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    cpus: int | None = None
    min_compute_capability: tuple[int, int] | None = None
    world_size: int | None = None
    loaders: tuple[LoaderNeed, ...] = ()
    uses: frozenset[str] = frozenset()  # "h5py", "lmdb", "zarr", "sqlite3", "compile", "ddp", "bf16", ...
    data_paths: tuple[str, ...] = ()
    checkpoint_paths: tuple[str, ...] = ()
    start_method: str | None = None
    script: str = ""
    stated: dict[str, str] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """The largest number of workers that a loader of the script starts; 0 where unknown."""
        return max((loader.workers or 0 for loader in self.loaders), default=0)

"""What a training script needs of the machine: inferred from its source, or given by ``--need``."""

from __future__ import annotations

from dataclasses import dataclass, field

#: positional parameters of torch.utils.data.DataLoader (2.x); later ones are keyword-only
LOADER_POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
)
#: batches that each worker prepares ahead: torch's own default
DEFAULT_PREFETCH = 2


@dataclass(frozen=True)
class LoaderNeed:
    """One DataLoader of the script. None where the source does not say.

    ``sample_bytes`` is the size of one collated sample; ``line`` counts from 1 and is in ``path``. Loaders of one
    ``group`` are alive together; group 0 is alive all the time. ``names`` is what the script calls it.
    """

    line: int
    workers: int | None = None
    batch_size: int | None = None
    prefetch_factor: int | None = None
    sample_bytes: int | None = None
    pin_memory: bool = False
    start_method: str | None = None
    path: str = ""
    persistent: bool = False
    names: tuple[str, ...] = ()
    group: int = 0

    @property
    def shm_bytes(self) -> int | None:
        """Bytes of shared memory in flight: batch x prefetch x workers; None where it cannot be known."""
        if self.workers is None or self.batch_size is None or self.sample_bytes is None:
            return 0 if self.workers == 0 else None
        return self.sample_bytes * self.batch_size * (self.prefetch_factor or DEFAULT_PREFETCH) * self.workers


@dataclass(frozen=True)
class Requirements:
    """What the run needs. None or empty: nothing was asked, so nothing is judged.

    Args:
        gpus: a count; ``gpus_asked`` says where the wish came from (``--need gpus=``, ``--gpus``, a line of
            the script) and is empty where nobody asked. ``--gpus all`` gives a wish without a count.
        shm_bytes: of /dev/shm: stated, or the sum over the loaders alive together on this machine;
            ``shm_source`` says which.
        local_processes: ranks on this machine that share its /dev/shm.
        uses: "h5py", "lmdb", "zarr", "sqlite3", "compile", "ddp", "fsdp", "amp", "bf16", "fp16", "fp8", ...
        compiles: True where the script calls torch.compile, False where it surely does not, None where it
            cannot be known (no script, or a framework that may).
        stated: what ``--need`` said, as written.
    """

    gpus: int | None = None
    gpus_asked: str = ""
    gpu_memory_bytes: int | None = None
    shm_bytes: int | None = None
    shm_source: str = ""
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    cpus: int | None = None
    min_compute_capability: tuple[int, int] | None = None
    world_size: int | None = None
    local_processes: int = 1
    loaders: tuple[LoaderNeed, ...] = ()
    uses: frozenset[str] = frozenset()
    compiles: bool | None = None
    data_paths: tuple[str, ...] = ()
    checkpoint_paths: tuple[str, ...] = ()
    start_method: str | None = None
    script: str = ""
    stated_workers: int | None = None
    stated: dict[str, str] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """The largest number of workers that a loader of the script starts; 0 where unknown."""
        return max(self.stated_workers or 0, *(loader.workers or 0 for loader in self.loaders), 0)

    @property
    def workers_known(self) -> bool:
        """True where the number of workers was stated, or each loader of the script says its own."""
        return self.stated_workers is not None or (
            bool(self.loaders) and all(loader.workers is not None for loader in self.loaders)
        )

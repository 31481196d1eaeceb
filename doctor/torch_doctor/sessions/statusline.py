"""GPU memory and load for the status line of tmux and screen: one short text, at once, whatever happens."""

from __future__ import annotations

from torch_doctor.sessions import gpu


def main() -> None:
    """Print ``GPU 12.3/79.6 GiB 97%``, one part per GPU; nothing where no GPU is visible."""
    print(text(gpu.loads()))


def text(loads: list[gpu.Load]) -> str:
    """The status of all GPUs; beyond four only their sum."""
    if len(loads) > 4:
        used, total = sum(g.used_bytes for g in loads), sum(g.total_bytes for g in loads)
        return f"{len(loads)} GPUs {_gib(used)}/{_gib(total)} GiB"
    return "  ".join(f"GPU{g.index} {_gib(g.used_bytes)}/{_gib(g.total_bytes)} GiB {g.percent}%" for g in loads)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f}"


if __name__ == "__main__":
    main()

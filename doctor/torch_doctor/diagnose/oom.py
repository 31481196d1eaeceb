"""What a text of CUDA running out of memory tells, number by number."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Seen, Verdict, with_message
from torch_doctor.diagnose.runs import progress
from torch_doctor.diagnose.trends import rising
from torch_doctor.diagnose.validation import validation
from torch_doctor.model import Remediation, mib

_UNITS = {
    "bytes": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 1 << 10,  # the text of the MPS back end writes MB and counts in MiB
    "MB": 1 << 20,
    "GB": 1 << 30,
}
_SIZE = r"([\d.]+) ?(bytes|[KMGT]i?B|B)"
#: shares of the GPU from which a number in the text decides
FRAGMENTED, OTHERS, LITTLE = 0.1, 0.25, 0.4
#: share of the GPU from which one tensor is suspicious
HUGE = 0.4
#: share of the GPU in private pools from which CUDA graphs are the reason
POOLED = 0.2
#: bytes that nvidia-smi lists for processes from which they are the reason
LISTED = 2 << 30
#: bytes of a CUDA context with cuBLAS and cuDNN, roughly
CONTEXT = 600 << 20


def size(pattern: str, text: str) -> float | None:
    """The size that follows the pattern in the text, in bytes."""
    match = re.search(f"(?:{pattern})" + r"\s*" + _SIZE, text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def read_oom(text: str) -> dict[str, float]:
    """The figures of a CUDA OOM text, torch 1.0 to 2.15, in bytes; what is not there is left out."""
    first = text.split("Tried to allocate")[-1] if "Tried to allocate" in text else text
    found: dict[str, float | None] = {
        "tried": size(r"[Tt]ried to allocate|Requested\s*:", text),
        "total": size(r"total capac\w+ of|max allowed:|Device limit\s*:", text) or _before(r"total capacity", text),
        "free": size(r"of which|Free \(according to CUDA\)\s*:", text)
        or _before(r"free", first)
        or size(r"\bfree memory\b", text),
        "this": size(r"this process has", text),
        "allocated": size(r"Of the allocated memory|MPS allocated:|Currently allocated\s*:", text)
        or _before(r"already allocated", text),
        "pools": size(r"by PyTorch, with", text),
        "reserved_unused": None,
        "reserved": _before(r"reserved in total", text) or _before(r"cached", text),
        "others": sum(float(m[1]) * _UNITS[m[2]] for m in re.finditer(r"Process \d+ has " + _SIZE, text)) or None,
    }
    found["reserved_unused"] = _before(r"is reserved by PyTorch but unallocated", text)
    if found["reserved_unused"] is None and found["reserved"] and found["allocated"]:
        found["reserved_unused"] = max(0.0, found["reserved"] - found["allocated"])
    return {k: v for k, v in found.items() if v is not None}


def _before(words: str, text: str) -> float | None:
    match = re.search(_SIZE + r"\s+(?:is )?" + words, text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def oom(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Who has the memory: another process, this one's cache, its growing graph, or its batch."""
    if "executable batch size" in seen.log.lines[seen.index].text:
        return with_message(
            verdict, "the GPU's memory does not hold a batch of one sample: every batch size down to 1 failed"
        )
    text = " ".join(line.text for line in seen.log.lines[seen.index : seen.end + 6])
    text = text[: text.find("Traceback")] if "Traceback" in text else text
    figures = read_oom(text)
    evidence = {f"{k}_bytes": round(v) for k, v in figures.items()}
    if allowed := re.search(r"free\. ([\d.]+ [KMGT]iB) allowed;", text):
        return _fraction(verdict, allowed[1], evidence)
    total, this = figures.get("total"), figures.get("this")
    others = figures.get("others", 0.0)
    if total and this is None and others:
        this = _own_of(text, figures)
        others -= this
    if seen.near(_LOADING, 12, 0):
        return _loading(verdict, figures, evidence)
    if others and _ranks_on_one_gpu(seen):
        return _one_gpu(verdict, evidence)
    if total and others >= OTHERS * total and (this is None or others > this):
        return _others(verdict, others, this, total, evidence)
    if this is None and figures.get("reserved"):
        this = figures["reserved"] + CONTEXT  # torch before 2.1 does not name what the whole process has
    hidden = total - figures.get("free", 0.0) - (this or 0.0) - others if total and this else 0.0
    if total and this and this <= LITTLE * total and hidden >= LITTLE * total:
        return _hidden(verdict, hidden, this, total, evidence)
    unused, tried = figures.get("reserved_unused", 0.0), figures.get("tried", 0.0)
    if total and unused >= FRAGMENTED * total and unused >= tried:
        return _fragmented(verdict, unused, tried, evidence)
    return _own(seen, verdict, figures, evidence)


def _own_of(text: str, figures: dict[str, float]) -> float:
    """This process's share where the text names all processes by a PID that this one does not know (a container).

    It holds what PyTorch reserved, and its context: the smallest share that is large enough for that.
    """
    shares = sorted(float(m[1]) * _UNITS[m[2]] for m in re.finditer(r"Process \d+ has " + _SIZE, text))
    if len(shares) == 1:
        return shares[0]
    reserved = figures.get("allocated", 0.0) + figures.get("reserved_unused", 0.0)
    return next((share for share in shares if reserved and share >= 0.98 * reserved), 0.0)


def _others(verdict: Verdict, others: float, this: float | None, total: float, evidence: dict[str, int]) -> Verdict:
    own = f", this one has {mib(this)}" if this is not None else ""
    return with_message(
        verdict,
        f"another process holds {mib(others)} of the GPU's {mib(total) if total else 'memory'}{own}",
        Remediation(
            "Use another GPU, or stop the other job; in a container without the host's PIDs, look on the host",
            (
                "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv",
                "CUDA_VISIBLE_DEVICES=1 python train.py",
            ),
        ),
        **evidence,
    )


def _fraction(verdict: Verdict, allowed: str, evidence: dict[str, int]) -> Verdict:
    return with_message(
        verdict,
        f"this process may use {allowed} of the GPU only (set_per_process_memory_fraction), and reached that; "
        "the GPU itself has "
        "memory left",
        Remediation(
            "Raise the fraction or leave it out",
            ("torch.cuda.set_per_process_memory_fraction(1.0)", "unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF"),
        ),
        **evidence,
    )


def _ranks_on_one_gpu(seen: Seen) -> bool:
    """True where several ranks of this run ran out of memory on the same GPU."""
    on: dict[str, set[int]] = {}
    for line in seen.log.lines:
        if line.rank is not None and (match := re.search(r"CUDA out of memory\.[^\n]*?\bGPU (\d+)", line.text)):
            on.setdefault(match[1], set()).add(line.rank)
    return any(len(ranks) > 1 for ranks in on.values())


def _one_gpu(verdict: Verdict, evidence: dict[str, int]) -> Verdict:
    return with_message(
        verdict,
        "several ranks of this run fill the same GPU, while the others stand idle: they were not given a device each",
        Remediation(
            "Set the device from LOCAL_RANK before anything is put on the GPU, and use it in place of 'cuda'; load "
            "checkpoints with map_location",
            (
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
                "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))",
                "torch.load(path, map_location='cpu')",
            ),
        ),
        **evidence,
    )


def _hidden(verdict: Verdict, hidden: float, this: float, total: float, evidence: dict[str, int]) -> Verdict:
    return with_message(
        verdict,
        f"this process has only {mib(this)} of the GPU's {mib(total)}, and {mib(hidden)} belong to processes that "
        "the text does not name: orphaned "
        "workers of an earlier run that keep the CUDA context, or another container",
        Remediation(
            "Find who holds the device, end the orphans, and run with an init as PID 1, so that workers do not "
            "outlive their parent",
            ("fuser -v /dev/nvidia*", "nvidia-smi", "docker run --init ..."),
        ),
        **evidence,
    )


def _fragmented(verdict: Verdict, unused: float, tried: float, evidence: dict[str, int]) -> Verdict:
    return with_message(
        verdict,
        f"{mib(unused)} are reserved by PyTorch but unallocated, yet no block of {mib(tried)} is free: the "
        "allocator's memory is fragmented",
        Remediation(
            "Let segments grow (expandable_segments), and keep shapes steady (pad or bucket variable lengths)",
            (
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                "export PYTORCH_ALLOC_CONF=expandable_segments:True  # torch 2.9 and later",
            ),
        ),
        **evidence,
    )


#: the frames of a checkpoint that is loaded
_LOADING = r"torch/serialization\.py|safetensors/torch\.py"


def _loading(verdict: Verdict, figures: dict[str, float], evidence: dict[str, int]) -> Verdict:
    ranks = "; the other processes on this GPU are ranks that do the same" if figures.get("others") else ""
    return with_message(
        verdict,
        f"GPU memory ran out while a checkpoint was loaded onto the GPU{_place(figures)}: its tensors come beside "
        f"those of the model{ranks}",
        Remediation(
            "Load to the CPU, copy into the model, and drop the checkpoint",
            (
                "state = torch.load(path, map_location='cpu', mmap=True)",
                "model.load_state_dict(state); del state",
            ),
        ),
        **evidence,
    )


def _pools(verdict: Verdict, figures: dict[str, float], evidence: dict[str, int]) -> Verdict:
    return with_message(
        verdict,
        f"{mib(figures['pools'])} of the GPU's {mib(figures['total'])} lie in private pools of CUDA graphs, "
        "which give "
        "nothing back: one graph is kept for each shape",
        Remediation(
            "Compile without CUDA graphs, or give the graphs few shapes (pad or bucket, drop the last batch)",
            (
                "torch.compile(model)  # in place of mode='reduce-overhead'",
                "TORCHINDUCTOR_CUDAGRAPHS=0 python train.py",
                "DataLoader(..., drop_last=True)",
            ),
        ),
        **evidence,
    )


def _place(figures: dict[str, float]) -> str:
    if {"allocated", "total"} <= set(figures):
        return f" ({mib(figures['allocated'])} of {mib(figures['total'])})"
    return ""


#: frames of what needs memory whatever the batch -> (what happened, remedy)
_PHASES: tuple[tuple[str, str, Remediation], ...] = (
    (
        r"initialize_optimizer_states|torch/optim/\w+\.py|in _init_group|exp_avg|bitsandbytes/optim",
        "GPU memory ran out in the optimizer's first step{place}: Adam keeps two more tensors for each parameter, "
        "whatever the batch",
        Remediation(
            "Use an optimizer in 8 bits, train fewer parameters (LoRA), or shard or offload the states over the "
            "GPUs or to the host (FSDP, ZeRO)",
            (
                "bnb.optim.AdamW8bit(model.parameters())",
                "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)",
                '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}  // DeepSpeed',
            ),
        ),
    ),
    (
        r"transformers/modeling_utils\.py|from_pretrained\(|in (?:_apply|convert|_apply_fn)$"
        r"|in caching_allocator_warmup"
        r"|(?:model|net)\w*\.(?:cuda|to)\(",
        "GPU memory ran out while the model was put on the GPU{place}: its weights alone do not fit, "
        "whatever the batch",
        Remediation(
            "Load it in a smaller type (bf16, 8 or 4 bits), spread it over the GPUs, or take a larger GPU",
            (
                "AutoModel.from_pretrained(path, dtype=torch.bfloat16, device_map='auto')",
                "BitsAndBytesConfig(load_in_4bit=True)",
                "nvidia-smi",
            ),
        ),
    ),
)


def _own(seen: Seen, verdict: Verdict, figures: dict[str, float], evidence: dict[str, int]) -> Verdict:
    place = _place(figures)
    if found := validation(seen):
        return with_message(verdict, found[0], found[1], **evidence)
    if figures.get("pools", 0.0) >= POOLED * figures.get("total", float("inf")):
        return _pools(verdict, figures, evidence)
    begun = any(i < seen.index for i in progress(seen.log))
    for frames, message, remedy in () if begun else _PHASES:
        if seen.near(frames, 10, 2):
            return with_message(verdict, message.replace("{place}", place), remedy, **evidence)
    growth = rising(seen.log, seen.index, r"(?:alloc\w*|mem\w*|reserved|gpu_mem)\D{0,12}([\d.]+) ?([GM]i?B|G|M)?\b")
    steps = rising(seen.log, seen.index, r"\b(?:step|iter|it|epoch)\b\W{0,3}(\d+)")
    if growth or _late(figures):
        first, last = growth or (0.0, 0.0)
        seen_growth = f": it grew from {first:g} to {last:g} over the steps that are logged" if growth else ""
        return with_message(
            verdict,
            f"this process filled the GPU itself{place}{seen_growth}; the first steps fitted, so something is "
            "kept from step to step, such as "
            "losses or outputs with their graphs",
            Remediation(
                "Keep numbers, not graphs: total += loss.item(), outputs.append(out.detach().cpu()); then look at "
                "what grows with a memory snapshot",
                (
                    "torch-doctor lint train.py",
                    "torch.cuda.memory._record_memory_history()",
                ),
            ),
            **evidence,
            steps=steps[1] if steps else None,
        )
    if figures.get("tried", 0.0) >= HUGE * figures.get("total", float("inf")):
        return with_message(
            verdict,
            f"one tensor of {mib(figures['tried'])} was asked for on a GPU of {mib(figures['total'])}: an "
            "attention matrix that grows "
            "with the square of the sequence, or a shape that is not meant",
            Remediation(
                "Use scaled_dot_product_attention (its flash and memory-efficient kernels need no such matrix), "
                "shorten the sequence, and check the shapes at that line",
                ("F.scaled_dot_product_attention(q, k, v)",),
            ),
            **evidence,
        )
    return with_message(
        verdict,
        f"this process filled the GPU's memory by itself{place[:-1]}; {mib(figures['tried'])} more were asked for)"
        if place and "tried" in figures
        else verdict.message,
        _MPS if "MPS backend" in seen.log.lines[seen.index].text else None,
        **evidence,
    )


def _late(figures: dict[str, float]) -> bool:
    """A small request that fails on a full GPU: memory crept up; a large one is a batch that does not fit."""
    tried, total, allocated = (figures.get(k, 0.0) for k in ("tried", "total", "allocated"))
    return bool(total) and tried <= 64 << 20 and tried <= 0.01 * total and allocated >= 0.9 * total


_MPS = Remediation(
    "Use a smaller batch with gradient accumulation, bf16 autocast, and free the cache; a high watermark ratio of "
    "0.0 lets the whole machine swap",
    ("torch.autocast('mps', torch.bfloat16)", "torch.mps.empty_cache()"),
)


def bare(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The driver's own out of memory, without figures."""
    if seen.near(r"pin_memory|pinned|HostAllocator|cudaHostAlloc|cudaHostRegister", 14, 6):
        return with_message(
            verdict,
            "page-locked host memory (pin_memory) could not be had: the text says CUDA out of memory and means the "
            "host's RAM or its limit of locked memory, not the GPU's",
            Remediation(
                "Load without pinning, or pin less (fewer workers, a smaller prefetch_factor), and raise the "
                "container's memory limit and that of locked memory",
                (
                    "DataLoader(..., pin_memory=False)",
                    "docker run --memory=64g --ulimit memlock=-1 ...",
                    "free -g; ulimit -l; cat /sys/fs/cgroup/memory.max",
                ),
            ),
        )
    if found := validation(seen):
        return with_message(verdict, found[0], found[1])
    listed = re.findall(r"^\s*\d+, (\d+) MiB, \S|\bC(?:\+G)?\s+\S+\s+(\d+)MiB \|$", seen.log.text, re.MULTILINE)
    held = sum(int(a or b) for a, b in listed) << 20
    if held >= LISTED:
        return _others(verdict, held, None, 0.0, {})
    return verdict

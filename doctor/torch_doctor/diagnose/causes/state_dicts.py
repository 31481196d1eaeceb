"""Keys of a checkpoint against the model's."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: prints the top-level keys of a checkpoint, without running anything that is pickled in it
LIST_KEYS = (
    "python -c \"import sys, torch; print(*torch.load(sys.argv[1], map_location='cpu', weights_only=True), "
    "sep='\\n')\" CHECKPOINT"
)


_PREFIXES = {
    "module.": ("a DataParallel or DistributedDataParallel model", "model.module.state_dict()"),
    "_orig_mod.": ("a model compiled by torch.compile (OptimizedModule)", "model._orig_mod.state_dict()"),
    "_fsdp_wrapped_module.": ("an FSDP model", "torch.distributed.checkpoint.state_dict.get_model_state_dict(model)"),
    "_checkpoint_wrapped_module.": (
        "a model with activation checkpoint wrappers",
        "the state_dict of the unwrapped module",
    ),
    "model.": (
        "a LightningModule or another wrapper that holds the network as .model",
        "lightning_module.model.state_dict()",
    ),
    "net.": ("a wrapper that holds the network as .net", "wrapper.net.state_dict()"),
    "base_model.model.": ("a PEFT model", "model.merge_and_unload().state_dict()"),
}


#: prefixes that stand inside a key, too
_INNER = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


def keys(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Which prefix the one side has and the other lacks, and on which side."""
    text = "\n".join(line.text for line in seen.log.lines[seen.index : seen.end + 200])
    missing = _keys("Missing", text)
    unexpected = _keys("Unexpected", text)
    saved, wanted = _wrappers(unexpected), _wrappers(missing)
    if saved and wanted and saved != wanted:
        return _both_wrapped(verdict, saved, wanted)
    if saved and not wanted and not any("_flat_param" in name for name in unexpected):
        return _saved_wrapped(verdict, saved)
    if wanted and not saved:
        return _loaded_wrapped(verdict, wanted)
    if "size mismatch" in text:
        return None
    if known := _adapters(verdict, missing, unexpected) or _harmless(verdict, missing, unexpected):
        return known
    if any("_flat_param" in name for name in unexpected):
        return _flat(verdict)
    if nested := _PARTS.intersection(unexpected):
        return _whole_file(verdict, sorted(nested, key=len, reverse=True)[0])
    if part := _submodule(missing, unexpected):
        return _of_a_part(verdict, *part)
    if (missing or unexpected) and not (missing and unexpected):
        return _one_sided(verdict, missing, unexpected)
    return with_message(
        verdict,
        f"the checkpoint's keys are not those of the model: {len(missing)} missing, {len(unexpected)} unexpected: "
        "another architecture, version or part of the file",
        Remediation(
            "Compare the two lists of keys; build the model with the configuration that was saved, and load the "
            "part of the checkpoint that holds the weights",
            (LIST_KEYS, "state = checkpoint['state_dict']"),
        ),
        missing=len(missing),
        unexpected=len(unexpected),
    )


#: entries that carry no weights, and came or went with a version. Source: torch, transformers, timm, thop.
_BUFFERS = re.compile(
    r"(?:position_ids|num_batches_tracked|relative_position_index|inv_freq|total_ops|total_params|attn_mask|masked_bias"
    r"|token_type_ids|attn\.bias|_extra_state)$"
)


def _harmless(verdict: Verdict, missing: list[str], unexpected: list[str]) -> Verdict | None:
    """Buffers that another version keeps or drops: the weights are all there."""
    names = missing + unexpected
    if not names or not all(_BUFFERS.search(name) for name in names):
        return None
    kinds = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in names}))
    return with_message(
        verdict,
        f"only buffers without weights differ ({kinds}): another version of the library or a profiler made or dropped them",
        Remediation(
            "Load with strict=False, and see that nothing else is missing; or load with the version that saved it",
            (
                "missing, unexpected = model.load_state_dict(state, strict=False); print(missing, unexpected)",
                f"for k in [k for k in state if k.endswith({names[0].rsplit('.', 1)[-1]!r})]: state.pop(k)",
            ),
        ),
        missing=len(missing),
        unexpected=len(unexpected),
    )


def _adapters(verdict: Verdict, missing: list[str], unexpected: list[str]) -> Verdict | None:
    """LoRA layers on one side only: an adapter for a bare model, or bare weights for a wrapped one."""
    wanted = [name for name in missing if "lora_" in name or ".base_layer." in name]
    saved = [name for name in unexpected if "lora_" in name or ".base_layer." in name]
    if saved and not wanted:
        return with_message(
            verdict,
            "the checkpoint holds LoRA adapter weights, and the model that loads it has no adapter layers",
            Remediation(
                "Load it as an adapter onto the base model, and merge it where a bare model is wanted",
                (
                    "model = PeftModel.from_pretrained(base_model, ADAPTER_FOLDER)",
                    "model = model.merge_and_unload()",
                ),
            ),
        )
    if wanted and not saved:
        return with_message(
            verdict,
            "the model has LoRA adapter layers (PEFT), and the checkpoint holds none: it is the base model's or a merged one",
            Remediation(
                "Load the base weights before get_peft_model; load an adapter through PEFT",
                (
                    "base.load_state_dict(state); model = get_peft_model(base, config)",
                    "set_peft_model_state_dict(model, adapter_state)",
                    "PeftModel.from_pretrained(base, ADAPTER_FOLDER)",
                ),
            ),
        )
    return None


def _submodule(missing: list[str], unexpected: list[str]) -> tuple[str, bool] | None:
    """The prefix of which one side's keys are the other side's without it, and whether the checkpoint has it."""
    for inner, outer, saved in ((unexpected, missing, False), (missing, unexpected, True)):
        shared = {name for name in outer if any(name.endswith("." + short) for short in inner)}
        found = {short for short in inner if any(name.endswith("." + short) for name in shared)}
        enough = len(shared) >= 0.8 * len(outer) or (len(found) >= 2 and len(found) >= 0.8 * len(inner))
        if inner and shared and enough:
            name = next(iter(sorted(shared)))
            short = max((s for s in inner if name.endswith("." + s)), key=len)
            prefix = name[: -len(short)]
            if all(other.startswith(prefix) for other in shared):
                return prefix, saved
    return None


def _of_a_part(verdict: Verdict, prefix: str, saved: bool) -> Verdict:
    part = prefix.rstrip(".")
    if saved:
        message = (
            f"the checkpoint's keys start with {prefix}, those of the model do not: it was saved from a larger model"
        )
        remedy = f"Strip the {prefix} prefix when loading"
        commands: tuple[str, ...] = (
            f"torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, {prefix!r})",
        )
    else:
        message = f"the checkpoint holds the weights of the part {part} only: the model's keys start with {prefix}"
        remedy = f"Load it into that part, or add the {prefix} prefix"
        commands = (
            f"model.{part}.load_state_dict(state)",
            f"state = {{{prefix!r} + k: v for k, v in state.items()}}",
        )
    return with_message(verdict, message, Remediation(remedy, commands), prefix=prefix)


#: keys of a training checkpoint, under which the weights lie beside the rest
_PARTS = {"state_dict", "model_state_dict", "model_state", "model", "net", "ema", "module", "params", "generator"}


def _whole_file(verdict: Verdict, part: str) -> Verdict:
    return with_message(
        verdict,
        f"the whole checkpoint was given to load_state_dict: its weights lie one level deeper, under {part!r}",
        Remediation(
            "Load the part that holds the weights",
            (f"model.load_state_dict(checkpoint[{part!r}])", LIST_KEYS),
        ),
        part=part,
    )


def _wrappers(names: list[str]) -> list[str]:
    """The wrappers' prefixes that all the keys begin with, from the outside in."""
    found: list[str] = []
    rest = list(names)
    while rest:
        prefix = next((p for p in _PREFIXES if all(name.startswith(p) for name in rest)), None)
        if prefix is None:
            inner = next((p for p in _INNER if all(p in name for name in rest)), None)
            return [*found, inner] if inner else found
        found.append(prefix)
        rest = [name.removeprefix(prefix) for name in rest]
    return found


def _saved_wrapped(verdict: Verdict, prefixes: list[str]) -> Verdict:
    chain = "".join(prefixes)
    wrappers = ", ".join(_PREFIXES[p][0] for p in prefixes)
    saves = tuple(dict.fromkeys(_PREFIXES[p][1] for p in prefixes))
    strip = tuple(f"torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, {p!r})" for p in prefixes)
    return with_message(
        verdict,
        f"the checkpoint was saved from {wrappers}: its keys start with {chain}, those of the model that loads it "
        "do not",
        Remediation(
            f"Strip the {chain} prefix when loading, or save the bare model's state ({saves[-1]})",
            (*strip, *saves),
        ),
        prefix=chain,
    )


def _flat(verdict: Verdict) -> Verdict:
    return with_message(
        verdict,
        "the checkpoint holds FSDP's flat parameters (_flat_param): a rank's local state, which only the same FSDP wrapping with as "
        "many ranks can read",
        Remediation(
            "Load it into the FSDP model that saved it, and save the full state from there",
            (
                "full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))",
                "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT): state = model.state_dict()",
            ),
        ),
    )


def _one_sided(verdict: Verdict, missing: list[str], unexpected: list[str]) -> Verdict:
    """Where only one list is there, everything else fits: a part was added or taken away."""
    names = missing or unexpected
    parts = ", ".join(sorted({name.rsplit(".", 1)[0] if "." in name else name for name in names})[:4])
    if missing:
        message = f"the checkpoint lacks {parts} ({len(missing)} keys); everything else fits: the model has a part that is new"
        remedy = "Load the rest on purpose and train that part, or take the checkpoint that holds it"
    else:
        message = f"the checkpoint has {parts} ({len(unexpected)} keys), which the model does not have; everything else fits"
        remedy = "Leave them out on purpose, or build the model with that part"
    return with_message(
        verdict,
        message,
        Remediation(
            remedy,
            (
                f"missing, unexpected = model.load_state_dict(state, strict=False); assert set({'missing' if missing else 'unexpected'}) == "
                "EXPECTED",
                LIST_KEYS,
            ),
        ),
        missing=len(missing),
        unexpected=len(unexpected),
    )


def _both_wrapped(verdict: Verdict, saved: list[str], wanted: list[str]) -> Verdict:
    """Two wrappers that are not the same: the bare weights fit both."""
    strip = tuple(f"torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, {p!r})" for p in saved)
    inner = ".".join(p.strip(".") for p in wanted)
    return with_message(
        verdict,
        f"the checkpoint's keys start with {''.join(saved)} ({_PREFIXES[saved[0]][0]}), those of the model with "
        f"{''.join(wanted)} ({_PREFIXES[wanted[0]][0]})",
        Remediation(
            f"Strip {''.join(saved)} and load into the bare model, before or inside its wrapper",
            (*strip, f"model.{inner}.load_state_dict(state)"),
        ),
        prefix="".join(saved),
    )


def _loaded_wrapped(verdict: Verdict, prefixes: list[str]) -> Verdict:
    wrappers = ", ".join(_PREFIXES[p][0] for p in prefixes)
    return with_message(
        verdict,
        f"the model that loads is wrapped ({wrappers}; keys start with {''.join(prefixes)}), the checkpoint was "
        "saved from a bare one",
        Remediation(
            "Load into the bare model before it is wrapped",
            ("model.load_state_dict(state)  # then DDP(model) or torch.compile(model)",),
        ),
        prefix="".join(prefixes),
    )


def _keys(word: str, text: str) -> list[str]:
    match = re.search(word + r" key\(s\) in state_dict: ((?:\"[^\"]*\"(?:, )?)+)", text)
    return re.findall(r'"([^"]*)"', match[1]) if match else []


register(
    Cause(
        "CKP201",
        "state-dict-keys-do-not-match",
        "The keys of the checkpoint and of the model differ, most often by a wrapper's prefix.",
        "DataParallel and DDP add module., torch.compile adds _orig_mod., FSDP adds _fsdp_wrapped_module.; nested "
        "wrappers add several. Loading only the keys that happen to match leaves the model with random weights.",
        "the checkpoint's keys are not those of the model",
        Remediation(
            "Strip the wrapper's prefix from the keys, or save the bare model's state",
            (LIST_KEYS,),
        ),
        (
            Signature(
                "key(s) in state_dict",
                'RuntimeError: Error(s) in loading state_dict for M:\n\tMissing key(s) in state_dict: "fc.weight", '
                '"fc.bias". \n\tUnexpected key(s) in state_dict: '
                '"module.fc.weight", "module.fc.bias". ',
                "Missing keys: []",
                r"(?:Error\(s\) in loading state_dict for [^\n]*\n)?(?:\s*(?:Missing|Unexpected) key\(s\) in "
                r"state_dict: [^\n]*\n?)+",
                source="torch 0.4 to 2.15, torch/nn/modules/module.py",
            ),
        ),
        judge=keys,
        decide=LIST_KEYS,
        references="https://github.com/pytorch/pytorch/issues/3805",
    ),
    Cause(
        "CKP202",
        "checkpoint-silently-not-loaded",
        "Missing keys were ignored: the model trains from random weights.",
        "strict=False hides that no key matched, most often because of nested prefixes (_orig_mod.module.) of which "
        "one was stripped. Nothing fails; the loss starts at ln(number of classes).",
        "{missing} missing keys were ignored on loading: nested wrapper prefixes (module., _orig_mod.) keep the "
        "weights from matching, and the model trains from random initialisation",
        Remediation(
            "Strip every prefix repeatedly, and fail when most keys are missing",
            (
                "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, 'module.')",
                "missing, unexpected = model.load_state_dict(state, strict=False); assert len(missing) < 5, missing",
            ),
        ),
        (
            Signature(
                "strict=False",
                "loading base.pt: 163 missing keys, 163 unexpected keys (strict=False)",
                "loading base.pt: 0 missing keys, 0 unexpected keys (strict=False)",
                r"(?P<missing>[1-9]\d*) missing keys?[^\n]*strict=False",
                source="FareedKhan-dev/train-llm-from-scratch#36",
            ),
            Signature(
                "_IncompatibleKeys(missing_keys=[",
                "_IncompatibleKeys(missing_keys=['fc.weight'], unexpected_keys=['module.fc.weight'])",
                "_IncompatibleKeys(missing_keys=[], unexpected_keys=[])",
                r"_IncompatibleKeys\(missing_keys=\[(?P<missing>'[^\n]*?)\], "
                r"unexpected_keys=\['(?:module|_orig_mod|_fsdp)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "issing key",
                "Missing keys: 163, unexpected keys: 163",
                "Missing keys: 0, unexpected keys: 0",
                r"[Mm]issing keys?: (?P<missing>\d{2,}),? [Uu]nexpected keys?: (?P=missing)\b",
                source="common training scripts",
            ),
        ),
        kind=DEGRADED,
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message
            if seen.groups["missing"].isdigit()
            else verdict.message.replace(seen.groups["missing"], str(seen.groups["missing"].count("',") + 1)),
        ),
        decide=LIST_KEYS,
    ),
)

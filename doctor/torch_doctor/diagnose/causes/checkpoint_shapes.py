"""Shapes of a checkpoint against the model's, and tensors without data."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: prints the top-level keys of a checkpoint, without running anything that is pickled in it
LIST_KEYS = (
    "python -c \"import sys, torch; print(*torch.load(sys.argv[1], map_location='cpu', weights_only=True), "
    "sep='\\n')\" CHECKPOINT"
)


#: (names of the parameter, what differs, what to do, commands). Source: names in torchvision, timm, transformers.
_SIZES = (
    (
        r"(?:^|\.)(?:embed_tokens|lm_head|wte|word_embeddings|tok_embeddings|token_embedding\w*|embeddings?\.weight|output_projection|shared)\b",
        "another vocabulary size (tokens were added to the tokenizer, or another tokenizer)",
        "Resize the embedding to the tokenizer that belongs to the checkpoint before loading",
        (
            "model.resize_token_embeddings({rows})",
            "tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT_FOLDER); len(tokenizer)",
        ),
    ),
    (
        r"pos_embed|position_embedding|positional_embedding|relative_position",
        "another image size, patch size or sequence length",
        "Build the model for the saved size, or interpolate the position embedding before loading",
        ("timm.create_model(NAME, img_size=SAVED_SIZE)", "state.pop({name!r})  # then it is trained anew"),
    ),
    (
        r"(?:^|\.)(?:fc\d?|head|heads|classifier|score|cls|logits?|out_proj|linear|last_linear|output|conv_seg|cls_score|class_embed)(?:\.|$)",
        "another number of classes",
        "Build the model with the saved number of classes, or leave that layer out of the checkpoint and train it anew",
        (
            "for k in [k for k in state if k.startswith({stem!r})]: state.pop(k)",
            "model.load_state_dict(state, strict=False)",
            "from_pretrained(..., num_labels={model_rows}, ignore_mismatched_sizes=True)",
        ),
    ),
)


def sizes(seen: Seen, verdict: Verdict) -> Verdict | None:
    """An empty or a flat saved shape is a shard or a quantised weight; else the layer's name says what differs."""
    # in a table the name stands where the prefix of a container would, and is gone
    name, saved = (
        seen.groups.get("name", "a parameter"),
        [int(n) for n in re.findall(r"\d+", seen.groups["saved"])],
    )
    model = [int(n) for n in re.findall(r"\d+", seen.groups["model"])]
    shapes = f"{name} has shape {seen.groups['saved']} in the checkpoint and {seen.groups['model']} in the model"
    if saved == [0] or model == [0]:
        return _partitioned(verdict, shapes, saved == [0])
    if len(saved) == 2 and saved[1] == 1 and len(model) == 2 and saved[0] * 2 == model[0] * model[1]:
        return with_message(
            verdict,
            f"{shapes}: the checkpoint is quantised to 4 bits (bitsandbytes), the model is not",
            Remediation(
                "Load the model quantised as it was saved, or take the checkpoint that is not quantised",
                ("from_pretrained(PATH, quantization_config=BitsAndBytesConfig(load_in_4bit=True))",),
            ),
        )
    if len(saved) == len(model) == 4 and saved[0] == model[0] and saved[2:] == model[2:]:
        return with_message(
            verdict,
            f"{shapes}: another number of input channels ({saved[1]} against {model[1]})",
            Remediation(
                "Build the model with the saved number of channels, or adapt that layer's weight and load the rest",
                (
                    f"state[{name!r}] = state[{name!r}].mean(1, keepdim=True).repeat(1, {model[1]}, 1, 1)",
                    f"in_channels={saved[1]}  # in the model's configuration",
                    LIST_KEYS,
                ),
            ),
        )
    for pattern, what, todo, commands in _SIZES:
        if re.search(pattern, name) and saved and model:
            words = {"rows": saved[0], "model_rows": model[0], "name": name, "stem": name.rsplit(".", 1)[0] + "."}
            return with_message(
                verdict, f"{shapes}: {what}", Remediation(todo, (*(c.format(**words) for c in commands), LIST_KEYS))
            )
    return with_message(verdict, f"{shapes}: another number of classes, vocabulary size or width")


def _partitioned(verdict: Verdict, shapes: str, saved: bool) -> Verdict:
    if saved:
        return with_message(
            verdict,
            f"{shapes}: the parameters were partitioned (DeepSpeed ZeRO-3 or FSDP) and saved without being gathered, "
            "so this file holds no weights",
            Remediation(
                "Put the shards beside it together; save gathered weights from now on",
                (
                    "python zero_to_fp32.py CHECKPOINT_FOLDER OUT",
                    '"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": true}',
                    "accelerate merge-weights CHECKPOINT_FOLDER/pytorch_model_fsdp_0 OUT",
                ),
            ),
        )
    return with_message(
        verdict,
        f"{shapes}: the model's parameters are partitioned (DeepSpeed ZeRO-3 or FSDP) while a plain state_dict is loaded",
        Remediation(
            "Load before the model is partitioned, or gather the parameters for the time of loading",
            (
                "with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0): model.load_state_dict(state)",
                "torch.distributed.checkpoint.state_dict.set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))",
            ),
        ),
    )


register(
    Cause(
        "CKP209",
        "parameter-size-mismatch",
        "A parameter's shape in the checkpoint is not the model's.",
        "Another number of classes, vocabulary or width; strict does not matter for shapes.",
        "{name} has shape {saved} in the checkpoint and {model} in the model: another number of classes, "
        "vocabulary size or width",
        Remediation(
            "Build the model with the saved configuration, or drop the layers that differ before loading",
            ("for k in [k for k in state if k.startswith('LAYER.')]: state.pop(k)", LIST_KEYS),
        ),
        (
            Signature(
                "size mismatch for",
                "\tsize mismatch for fc.weight: copying a param with shape torch.Size([1000, 512]) from "
                "checkpoint, the shape in current model is torch.Size([10, 512]).",
                "size mismatch, m1",
                r"size mismatch for (?P<name>[\w.]+): copying a param with shape "
                r"(?:torch\.Size\()?(?P<saved>\[[^\]]*\]|\([^)]*\))\)? from checkpoint, the shape in current model "
                r"is (?:torch\.Size\()?(?P<model>\[[^\]]*\]|\([^)]*\))",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "size mismatch - ckpt:",
                "classifier.weight | MISMATCH | Reinit due to size mismatch - ckpt: torch.Size([2, 768]) vs model:torch.Size([5, 768])\n"
                "RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an error.",
                "Reinit due to a new head",
                r"(?:^(?P<name>[\w.]+)\s*\|\s*MISMATCH\s*\|[^\n]*)?size mismatch - ckpt:\s?torch\.Size\((?P<saved>\[[^\]]*\])\) vs model: ?"
                r"torch\.Size\((?P<model>\[[^\]]*\])\)",
                also=(r"ignore_mismatched_sizes` to `False`",),
                source="transformers 5.x, load report",
            ),
        ),
        judge=sizes,
        explains=("CKP201",),
    ),
    Cause(
        "CKP244",
        "meta-tensors-without-data",
        "Tensors of the meta device have shapes and no data, and were to be copied or used.",
        "A model that was built under torch.device('meta'), init_empty_weights or low_cpu_mem_usage gets its data only when "
        "weights are assigned to it; parameters that the checkpoint lacks stay empty.",
        "the model, or part of it, is on the meta device and has no data: weights were never loaded into it",
        Remediation(
            "Assign the weights in place of copying them, or allocate first and load then; let accelerate or from_pretrained "
            "place the model, without .to()",
            (
                "model.load_state_dict(state, assign=True)",
                "model.to_empty(device='cuda'); model.load_state_dict(state)",
                "[n for n, p in model.named_parameters() if p.is_meta]  # what the checkpoint lacks",
            ),
        ),
        (
            Signature(
                "Cannot copy out of meta tensor; no data!",
                "NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                "torch.nn.Module.to() when moving module from meta to a different device.",
                "copy of a meta tensor",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "Tensor on device meta is not on the expected device",
                "RuntimeError: Tensor on device meta is not on the expected device cuda:0!",
                "RuntimeError: Tensor on device meta is not on the expected device cpu!",
                r"Tensor on device meta is not on the expected device (?!cpu)",
                source="torch 2.0 to 2.15",
            ),
        ),
        explains=("CKP201", "DEV2"),
    ),
)

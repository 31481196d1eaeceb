"""Pretrained weights: folders and hubs that do not hold what from_pretrained looks for."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def lacking(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Weights, a tokenizer or a configuration is missing, each for reasons of its own."""
    file = seen.groups.get("file", "")
    where = seen.groups.get("where", "")
    if "config.json" in file and "adapter" not in file:
        return with_message(
            verdict,
            f"{where} has no {file}: it is no folder of a whole model (an adapter, a checkpoint of another tool, or a "
            "path that does not exist and was taken for the name of a repository)",
            Remediation(
                "Give the folder that holds config.json; an adapter is loaded onto its base model",
                (
                    "ls -l FOLDER",
                    "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), FOLDER)",
                    "cp BASE/config.json FOLDER/",
                ),
            ),
        )
    if "tokenizer" in file or "vocab" in file or "preprocessor" in file or "processor" in file:
        return with_message(
            verdict,
            f"{where} has no {file}: only the model was saved there",
            Remediation(
                "Load it from the base model, and save it beside the model",
                ("AutoTokenizer.from_pretrained(BASE)", "tokenizer.save_pretrained(FOLDER)"),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", where or "the folder"))


register(
    Cause(
        "CKP238",
        "no-weights-in-model-folder",
        "The folder or repository has no weights under the names that from_pretrained looks for.",
        "It holds an adapter only, shards of FSDP or ZeRO that were never put together, a checkpoint of a trainer under "
        "another name, or weights in a format that this version does not read.",
        "{where} has no weights under a name that from_pretrained knows: an adapter only, shards of FSDP or ZeRO, or "
        "another folder",
        Remediation(
            "List it; load an adapter onto its base model; put shards together first",
            (
                "ls -l FOLDER",
                "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), FOLDER)  # adapter_model.*",
                "python zero_to_fp32.py FOLDER OUT  # global_step*/",
                "accelerate merge-weights FOLDER/pytorch_model_fsdp_0 OUT",
            ),
        ),
        (
            Signature(
                "does not appear to have a file named",
                "OSError: ./out/checkpoint-500 does not appear to have a file named pytorch_model.bin, model.safetensors, "
                "tf_model.h5, model.ckpt or flax_model.msgpack.",
                "does not appear to have a file",
                r"(?:^\w*Error: )?(?P<where>\S+) does not appear to have a file named (?P<file>[\w.-]+)",
                source="transformers 4.x and 5.x",
            ),
            Signature(
                "found in directory",
                "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or "
                "flax_model.msgpack found in directory ./out.",
                "no file found",
                r"[Nn]o file named (?P<file>[\w.-]+)[^\n]*? found in directory (?P<where>\S+?)\.?(?:\s|$)",
                source="transformers 4.x and 5.x, diffusers",
            ),
        ),
        judge=lacking,
        decide="ls -l FOLDER",
    ),
    Cause(
        "CKP239",
        "torch-too-old-to-load-pickles",
        "transformers refuses .bin files with a torch older than 2.6.",
        "torch.load had a hole (CVE-2025-32434) that weights_only did not close before 2.6; safetensors are not "
        "concerned. The file is well.",
        "transformers refuses to read a pickle (.bin, .pt) with this torch, which is older than 2.6 (CVE-2025-32434); the "
        "file is well",
        Remediation(
            "Use the safetensors of the model, or upgrade torch with its torchvision and torchaudio",
            (
                "pip install -U 'torch>=2.6' torchvision torchaudio",
                "from_pretrained(NAME, use_safetensors=True)",
                "model.save_pretrained(FOLDER, safe_serialization=True)",
            ),
        ),
        (
            Signature(
                ("vulnerability issue in `torch.load`", "CVE-2025-32434"),
                "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now "
                "require users to upgrade torch to at least v2.6 in order to use the function.",
                "a vulnerability issue in the web server",
                r"serious vulnerability issue in `torch\.load`|CVE-2025-32434",
                source="transformers 4.49 to 5.x",
            ),
        ),
    ),
)

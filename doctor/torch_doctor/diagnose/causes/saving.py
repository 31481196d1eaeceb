"""Checkpoints that cannot be written."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def unsaved(seen: Seen, verdict: Verdict) -> Verdict | None:
    """An object beyond 4 GiB needs protocol 4; the rest needs to stay out."""
    if "large" not in seen.groups:
        return verdict
    return with_message(
        verdict,
        "torch.save met an object larger than 4 GiB that is no tensor, which pickle protocol 2 cannot hold",
        Remediation(
            "Save with protocol 4, or keep such arrays as tensors or files of their own",
            ("torch.save(state, path, pickle_protocol=4)", "np.save('cache.npy', array)"),
        ),
    )


register(
    Cause(
        "CKP206",
        "checkpoint-write-failed",
        "A checkpoint could not be written: the disk was full, or the storage failed.",
        "The file is left without its index; a later load fails with 'failed finding central directory'.",
        "the checkpoint could not be written ({what}): the disk is full or its storage failed, and the file is "
        "left without its zip index",
        Remediation(
            "Free space, save to a temporary file and rename it, and keep the last good checkpoint",
            ("df -h .; df -i .", "torch.save(state, path + '.tmp'); os.replace(path + '.tmp', path)"),
        ),
        (
            Signature(
                "PytorchStreamWriter failed writing",
                "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file "
                "data/807: file write failed",
                "PytorchStreamWriter closed",
                r"PytorchStreamWriter failed writing (?P<what>[^\n]*)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "unexpected pos",
                "RuntimeError: [enforce fail at inline_container.cc:325] . unexpected pos 1024 vs 918",
                "unexpected pos tag",
                r"(?P<what>unexpected pos \d+ vs \d+)",
                source="torch 1.6 to 2.15",
            ),
        ),
        explains=("CKP205", "FS206"),
    ),
    Cause(
        "CKP231",
        "checkpoint-folder-missing",
        "The folder that the checkpoint is to be written to does not exist.",
        "torch.save makes the file, not its folders.",
        "the folder {path} does not exist, and torch.save makes no folders",
        Remediation("Make it first", ("os.makedirs(os.path.dirname(path), exist_ok=True)", "mkdir -p {path}")),
        (
            Signature(
                "Parent directory ",
                "RuntimeError: Parent directory /runs/exp1 does not exist.",
                "Parent directory /runs/exp1 is writable",
                r"Parent directory (?P<path>\S+) does not exist",
                source="torch 1.13 to 2.15, caffe2/serialize",
            ),
        ),
    ),
    Cause(
        "CKP236",
        "tied-weights-in-safetensors",
        "Tensors that share memory were to be saved as safetensors.",
        "Tied weights (an embedding and lm_head) are one tensor under two names, which the format does not hold.",
        "safetensors refuses tensors that share memory (tied weights)",
        Remediation(
            "Save through save_model, which keeps one of the names, and load with load_model",
            (
                "safetensors.torch.save_model(model, path); safetensors.torch.load_model(model, path)",
                "model.save_pretrained(folder)  # transformers: drops the tied copy",
            ),
        ),
        (
            Signature(
                "Some tensors share memory",
                "RuntimeError: Some tensors share memory, this will lead to duplicate memory on disk and potential "
                "differences when loading them again",
                "tensors share memory",
                source="safetensors 0.3 to 0.7",
            ),
        ),
    ),
    Cause(
        "CKP243",
        "checkpoint-holds-unpicklable-object",
        "torch.save was given an object that cannot be pickled.",
        "torch.save(model) or a dict with the trainer in it pickles hooks, lambdas, locks, loggers and loaders with it.",
        "torch.save cannot pickle {what}: the whole model or trainer is saved, with a hook, lambda, lock or loader in it",
        Remediation(
            "Save state_dicts and plain values only",
            (
                "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch}, path)",
                "for k, v in checkpoint.items(): pickle.dumps(v)  # which of them it is",
            ),
        ),
        (
            Signature(
                "torch/serialization.py",
                '  File "/x/torch/serialization.py", line 850, in _save\n    pickler.dump(obj)\nAttributeError: Can\'t pickle '
                "local object 'build.<locals>.hook'",
                '  File "/x/torch/serialization.py", line 850, in _save\n    pickler.dump(obj)\nOSError: [Errno 28] No space '
                "left on device",
                r"torch/serialization\.py\"[^\n]*in _?(?:legacy_)?save\b[^\n]*\n(?:.*\n){0,8}?"
                r"[\w.]*Error: (?:[Cc]an(?:'t|not) pickle|Can't get local) (?:local )?(?:object |attribute )?'?(?P<what>[\w.<> ]+?)'?"
                r"(?: objects?| at 0x|:|$)",
                source="torch 0.4 to 2.15, torch/serialization.py",
            ),
            Signature(
                "object larger than 4",
                '  File "/x/torch/serialization.py", line 380, in save\n    pickler.dump(obj)\nOverflowError: cannot serialize a '
                "bytes object larger than 4 GiB",
                "OverflowError: cannot serialize a bytes object larger than 4 GiB",
                r"torch/serialization\.py\"[^\n]*in _?(?:legacy_)?save\b[^\n]*\n(?:.*\n){0,6}?OverflowError: (?P<large>cannot serialize a "
                r"(?:bytes|string) object larger than 4 ?GiB)",
                source="torch 0.4 to 2.15 with pickle protocol 2",
            ),
        ),
        judge=unsaved,
        explains=("WRK20", "WRK213"),
    ),
)

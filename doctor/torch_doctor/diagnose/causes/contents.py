"""What a checkpoint holds: classes, whole models, devices, random states."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def refused(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The class by its name; an operand is no class, and cannot be allowed."""
    name = seen.groups.get("what", "")
    if name:
        module = name.rsplit(".", 1)[0] if "." in name else "THE_MODULE"
        allow = f"import {module}; torch.serialization.add_safe_globals([{name}])"
        if module == "__main__":
            allow = f"torch.serialization.add_safe_globals([{name.removeprefix('__main__.')}])"
        if name.startswith("numpy"):
            allow = allow.replace("])", ", numpy.ndarray, numpy.dtype])")
        remedy = Remediation(verdict.remedy.text, (allow, *verdict.remedy.commands[1:]))
        return with_message(verdict, verdict.message, remedy)
    operand = seen.near(r"Unsupported operand (\d+)", 2, 8)
    if operand is not None:
        return with_message(
            verdict,
            f"torch.load with weights_only=True (the default from torch 2.6 on) cannot read this pickle (operand "
            f"{operand[1]}): it was written with another pickle protocol, or holds more than tensors",
            Remediation(
                "Only for a file that you made or trust, load it once with weights_only=False, and save the state_dict "
                "anew; there is no class to allow",
                (
                    "state = torch.load(path, map_location='cpu', weights_only=False)  # trusted files only",
                    "torch.save(state['state_dict'], new_path)",
                    "head -c 100 CHECKPOINT; file CHECKPOINT",
                ),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", "an object"))


def _pickled_class(seen: Seen, verdict: Verdict) -> Verdict:
    """A class of the script that saved it is looked up in the script that loads it."""
    what = seen.groups.get("what", "")
    if not seen.near(r"on <module '__(?:mp_)?main__'", 0, 10):
        return verdict
    return with_message(
        verdict,
        f"the checkpoint holds a pickled object of the class {what}, which was defined in the script that saved it (__main__); the "
        "script that loads it has no such class",
        Remediation(
            "Save state_dicts; to read this file once, import or define the class in the script that loads it",
            (
                f"from train import {what}  # before torch.load, in the main script",
                "torch.save(model.state_dict(), path)",
            ),
        ),
    )


def layout(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A state_dict that is used as a model wants a model; a missing key wants a look."""
    what = seen.groups.get("what", "")
    if "object has no attribute" in what:
        return with_message(
            verdict,
            f"a state_dict is used as if it were the model ({what}): the file holds weights only",
            Remediation(
                "Build the model from its code, and load the weights into it",
                ("model = Net(...); model.load_state_dict(torch.load(path, map_location='cpu')); model.eval()",),
            ),
        )
    key = what.removeprefix("KeyError: ")
    return with_message(
        verdict,
        f"the checkpoint has no entry {key}: it is a bare state_dict, or keeps that under another name",
        Remediation(
            "List its entries, and take the part that holds it",
            (
                "python -c \"import sys, torch; print(*torch.load(sys.argv[1], map_location='cpu', weights_only=True), sep='\\n')\" "
                "CHECKPOINT",
                f"state = checkpoint.get({key}, checkpoint)",
            ),
        ),
    )


def given(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A TorchScript archive is loaded by torch.jit.load; None is a loader that returned nothing."""
    what = seen.groups.get("what", "")
    if "jit" in what or "Script" in what:
        return with_message(
            verdict,
            f"load_state_dict was given a TorchScript module ({what}): the file is an archive of torch.jit.save",
            Remediation(
                "Run it as it is, or take its state_dict",
                (
                    "model = torch.jit.load(path, map_location='cpu')",
                    "model.load_state_dict(torch.jit.load(path, map_location='cpu').state_dict())",
                ),
            ),
        )
    if what in ("NoneType", "str", "tuple", "list"):
        return with_message(
            verdict,
            f"load_state_dict was given a {what}, not a dict of tensors: what loads the checkpoint returned another thing",
            Remediation(
                "Give it what torch.load returns, or the part of it that holds the weights",
                ("state = torch.load(path, map_location='cpu'); print(type(state), list(state)[:5])",),
            ),
        )
    return verdict


register(
    Cause(
        "CKP207",
        "checkpoint-of-absent-device",
        "The checkpoint's tensors were saved on a GPU that is not here.",
        "Storages remember their device; without map_location torch.load puts them back there.",
        "the checkpoint was saved on {device}, which does not exist here: its storages remember the device",
        Remediation("Load to the CPU and move the model afterwards", ("torch.load(path, map_location='cpu')",)),
        (
            Signature(
                "Attempting to deserialize object on",
                "RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is "
                "2. Please use torch.load with map_location to map your storages to an existing device.",
                "deserialize object",
                r"Attempting to deserialize object on (?:a )?(?P<device>CUDA device(?: \d+)?|MPS device|HPU "
                r"device|\w+ device)",
                source="torch 0.4 to 2.15, torch/serialization.py",
            ),
            Signature(
                "to restore data location of",
                "RuntimeError: don't know how to restore data location of torch.storage.UntypedStorage (tagged with hpu)",
                "restore the data location",
                r"don't know how to restore data location of \S+ \(tagged with (?P<device>[\w:]+)\)",
                source="torch 1.0 to 2.15, torch/serialization.py",
            ),
        ),
        explains=("GPU212",),
    ),
    Cause(
        "CKP208",
        "weights-only-refused",
        "torch.load refused an object: weights_only is the default since torch 2.6.",
        "A checkpoint that holds more than tensors (NumPy scalars, argparse namespaces, configuration classes, "
        "whole modules) needs its classes allowed.",
        "torch.load refused {what}: weights_only=True is the default from torch 2.6 on, and the checkpoint holds "
        "more than tensors",
        Remediation(
            "Allow the class, or, only for a file that you made or trust, load with weights_only=False; save "
            "state_dicts from now on",
            (
                "torch.serialization.add_safe_globals([TheClass])",
                "torch.load(path, weights_only=False)  # trusted files only",
            ),
        ),
        (
            Signature(
                "Weights only load failed",
                "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you "
                "have two options",
                "weights loaded",
                r"Weights only load failed(?:(?:.*\n){0,12}?[^\n]*Unsupported (?:global: GLOBAL|class) "
                r"(?P<what>[\w.]+(?<!\.)))?",
                source="torch 2.0 to 2.15, torch/serialization.py",
            ),
            Signature(
                ("Unsupported global: GLOBAL", "Unsupported class "),
                "WeightsUnpickler error: Unsupported global: GLOBAL numpy._core.multiarray.scalar was not an "
                "allowed global by default.",
                "global",
                r"Unsupported (?:global: GLOBAL|class) (?P<what>[\w.]+(?<!\.))",
                source="torch 2.0 to 2.15",
            ),
        ),
        judge=refused,
        explains=("CKP205",),
    ),
    Cause(
        "CKP210",
        "class-of-checkpoint-missing",
        "A whole model was pickled, and its class or module is not there.",
        "torch.save(model) stores the class by its path; a moved or renamed module breaks it.",
        "the checkpoint holds a pickled object whose class {what} cannot be found: the whole model was saved, and "
        "its code moved",
        Remediation(
            "Save state_dicts; to read this file once, put the class back under its old path",
            ("torch.save(model.state_dict(), path)", "sys.modules['old.module'] = new_module"),
        ),
        (
            Signature(
                "Can't get attribute '",
                "AttributeError: Can't get attribute 'Foo' on <module 'models.old' from '/app/models/old.py'>",
                "AttributeError: Can't get attribute 'Foo' on <module '__main__' (built-in)>",
                r"Can't get attribute '(?P<what>[^']+)' on <module '(?!__m)",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "find_class",
                '  File "torch/serialization.py", line 2222, in find_class\n    return super().find_class(mod_name, '
                "name)\nModuleNotFoundError: No module named 'oldproject'",
                "ModuleNotFoundError: No module named 'oldproject'",
                r"\bfind_class\b[^\n]*\n(?:.*\n){0,4}?ModuleNotFoundError: No module named "
                r"'(?P<what>(?!numpy\._core)[\w.]+)'",
                source="torch 1.0 to 2.15, torch/serialization.py",
            ),
            Signature(
                "on <module '__m",
                '  File "/x/torch/serialization.py", line 1165, in find_class\n    return super().find_class(mod_name, name)\n'
                "AttributeError: Can't get attribute 'Net' on <module '__main__' from 'eval.py'>",
                "AttributeError: Can't get attribute 'ImageDataset' on <module '__main__' (built-in)>",
                r"torch/serialization\.py\"[^\n]*\n(?:.*\n){0,8}?[^\n]*Can't get attribute '(?P<what>[^']+)' on <module "
                r"'__(?:mp_)?main__'",
                source="torch 1.0 to 2.15: a model that was saved from the script that defined it",
            ),
            Signature(
                "No module named 'numpy._core",
                "ModuleNotFoundError: No module named 'numpy._core'",
                "No module named 'numpy'",
                r"No module named '(?P<what>numpy\._core[\w.]*)'",
                source="a file saved with NumPy 2, read with NumPy 1",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "the file was saved with NumPy 2 and is read with NumPy 1, which has no numpy._core",
                Remediation("Install NumPy 2, or save plain tensors", ("pip install 'numpy>=2'",)),
            )
            if "numpy._core" in seen.groups.get("what", "")
            else _pickled_class(seen, verdict)
        ),
        explains=("PKG206", "WRK202"),
    ),
    Cause(
        "CKP213",
        "checkpoint-of-another-layout",
        "The checkpoint is not laid out as the code expects.",
        "A state_dict has the weights at the top; a training checkpoint is a dict of several; a whole model is an "
        "object.",
        "the checkpoint has another layout than the code expects ({what})",
        Remediation(
            "Look at what is in it, and take the part that holds the weights",
            ("state = checkpoint.get('state_dict', checkpoint)",),
        ),
        (
            Signature(
                "KeyError: '",
                "    model.load_state_dict(ckpt[\"state_dict\"])\nKeyError: 'state_dict'",
                "KeyError: 'name'",
                r"^(?P<what>KeyError: '(?:state_dict|model_state_dict|model_state|optimizer_state_dict)')$",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "KeyError: '",
                "    model.load_state_dict(ckpt['model'])\nKeyError: 'model'",
                "    net = build(cfg['model'])\nKeyError: 'model'",
                r"^(?P<what>KeyError: '(?:model|optimizer|epoch|ema|net)')$",
                also=(r"(?i)ckpt|checkpoint|torch\.load|state_dict|resum|snapshot|\.pth?\b|\.tar\b",),
                source="python 3.8 to 3.14",
            ),
            Signature(
                "object has no attribute",
                "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'",
                "AttributeError: 'Net' object has no attribute 'x'",
                r"(?P<what>'(?:collections\.)?(?:OrderedDict|dict)' object has no attribute "
                r"'(?:eval|to|cuda|state_dict|forward|parameters|train)')",
                source="python 3.8 to 3.14: a state_dict used as a model",
            ),
        ),
        judge=layout,
    ),
    Cause(
        "CKP232",
        "rng-state-on-another-device",
        "A random state was restored on another device than the CPU, or as another type.",
        "map_location moved the saved RNG state onto the GPU; set_rng_state wants a ByteTensor on the CPU.",
        "the saved random state is not a ByteTensor on the CPU: map_location moved it with the rest of the checkpoint",
        Remediation(
            "Load the checkpoint to the CPU, or move the state back",
            (
                "torch.load(path, map_location='cpu')",
                "torch.set_rng_state(state['rng'].cpu().byte())",
            ),
        ),
        (
            Signature(
                "RNG state must be a torch.ByteTensor",
                "TypeError: RNG state must be a torch.ByteTensor",
                "RNG state saved",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "CKP233",
        "no-checkpoint-in-folder",
        "The folder or its pointer names no checkpoint.",
        "Another folder, a save that never finished, or a name that changed (latest, .metadata).",
        "no complete checkpoint is where it is looked for ({what})",
        Remediation(
            "List the folder; resume from an earlier complete save",
            (
                "ls -lt CHECKPOINT_FOLDER",
                "du -sh CHECKPOINT_FOLDER/*",
            ),
        ),
        (
            Signature(
                ("No valid checkpoint found in output directory", "Can't find a valid checkpoint at"),
                "ValueError: No valid checkpoint found in output directory (./out)",
                "a valid checkpoint was found",
                r"(?P<what>No valid checkpoint found in output directory \([^)]*\)|Can't find a valid checkpoint at \S+)",
                source="transformers 4.x and 5.x, Trainer: resume_from_checkpoint",
            ),
            Signature(
                "Unable to find latest file at",
                "[WARNING] [engine.py:2749:load_checkpoint] Unable to find latest file at out/latest, if trying to load latest checkpoint please ensure this file exists",
                "latest file",
                r"(?P<what>Unable to find latest file at [^\s,]+)",
                source="DeepSpeed 0.4 to 0.18",
            ),
            Signature(
                ".metadata'",
                "FileNotFoundError: [Errno 2] No such file or directory: 'ckpt/.metadata'",
                "'ckpt/.metadata.json'",
                r"No such file or directory: '(?P<what>[^']*/\.metadata)'",
                source="torch 2.1 to 2.15, torch.distributed.checkpoint: the save did not finish",
            ),
        ),
        explains=("FS208",),
    ),
    Cause(
        "CKP237",
        "object-given-as-state-dict",
        "load_state_dict was given an object, not a dict of tensors.",
        "torch.save(model) stores the whole module, torch.jit.save a TorchScript archive; torch.load returns that object.",
        "load_state_dict was given {what}, not a dict of tensors: the file holds the whole model",
        Remediation(
            "Take the state_dict of the object that was loaded, and save state_dicts from now on",
            (
                "model.load_state_dict(torch.load(path, weights_only=False).state_dict())  # trusted files only",
                "torch.save(model.state_dict(), path)",
            ),
        ),
        (
            Signature(
                "Expected state_dict to be dict-like, got",
                "TypeError: Expected state_dict to be dict-like, got <class 'models.net.Net'>.",
                "Expected state_dict to be complete",
                r"Expected state_dict to be dict-like, got <class '(?P<what>[^']+)'>",
                source="torch 1.8 to 2.15, torch/nn/modules/module.py",
            ),
            Signature(
                "object has no attribute 'copy'",
                '  File "torch/nn/modules/module.py", line 1467, in load_state_dict\n    state_dict = '
                "state_dict.copy()\nAttributeError: 'Net' object has no attribute 'copy'",
                "AttributeError: 'Net' object has no attribute 'copy'",
                r"load_state_dict\b[^\n]*\n(?:.*\n){0,3}?AttributeError: '(?P<what>\w+)' object has no attribute 'copy'",
                source="torch 0.4 to 1.12",
            ),
        ),
        judge=given,
    ),
)

"""Checkpoints: prefixes, pointers, truncated archives, devices, weights_only."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_WRITE_FAILED = (
    r"No space left on device|PytorchStreamWriter failed writing|file write failed|unexpected pos \d+ vs \d+"
    r"|Disk quota exceeded"
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
    if saved and not wanted:
        return _saved_wrapped(verdict, saved)
    if wanted and not saved:
        return _loaded_wrapped(verdict, wanted)
    if "size mismatch" in text:
        return None
    return with_message(
        verdict,
        f"the checkpoint's keys are not those of the model: {len(missing)} missing, {len(unexpected)} unexpected: "
        "another architecture, version or part of the file",
        Remediation(
            "Compare the two lists of keys; build the model with the configuration that was saved, and load the "
            "part of the checkpoint that holds the weights",
            ("torch-doctor checkpoint inspect CHECKPOINT", "state = checkpoint['state_dict']"),
        ),
        missing=len(missing),
        unexpected=len(unexpected),
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
            (*strip, "torch-doctor checkpoint strip-prefix CHECKPOINT", *saves),
        ),
        prefix=chain,
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


def truncated(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A write that failed earlier, in this run or the one before, is the cause."""
    earlier = seen.log.earlier
    failed = seen.has(_WRITE_FAILED) or (earlier is not None and earlier.search(_WRITE_FAILED))
    if not failed:
        return verdict
    return with_message(
        verdict,
        "the disk was full while the checkpoint was saved, so the file lacks its zip index (central directory) and "
        "cannot be read",
        Remediation(
            "Free space, resume from the last good checkpoint, and save to a temporary file that is renamed when "
            "it is complete",
            (
                "df -h .",
                "ls -lt CHECKPOINT_FOLDER",
                "torch.save(state, path + '.tmp'); os.replace(path + '.tmp', path)",
            ),
        ),
    )


_FIRST_BYTES: dict[str, str] = {
    "<": "HTML or XML: a web page in place of the file",
    "{": "JSON",
    "\\x1f": "gzip",
    "P": "a zip archive",
    "\\x00": "zeros: the file was not written fully, or another format",
    "\\x93": "a NumPy file",
    "E": "a text, perhaps an error message",
    "\\x08": "safetensors or protobuf",
}


register(
    Cause(
        "CKP201",
        "state-dict-keys-do-not-match",
        "The keys of the checkpoint and of the model differ, most often by a wrapper's prefix.",
        "DataParallel and DDP add module., torch.compile adds _orig_mod., FSDP adds _fsdp_wrapped_module.; nested "
        "wrappers add several. Loading only the keys that "
        "happen to match leaves the model with random weights.",
        "the checkpoint's keys are not those of the model",
        Remediation(
            "Strip the wrapper's prefix from the keys, or save the bare model's state",
            ("torch-doctor checkpoint inspect CHECKPOINT",),
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
        decide="torch-doctor checkpoint inspect CHECKPOINT",
        references="https://github.com/pytorch/pytorch/issues/3805",
    ),
    Cause(
        "CKP202",
        "checkpoint-silently-not-loaded",
        "Missing keys were ignored: the model trains from random weights.",
        "strict=False hides that no key matched, most often because of nested prefixes (_orig_mod.module.) of "
        "which one was stripped. Nothing fails; the loss starts at "
        "ln(number of classes).",
        "{missing} missing keys were ignored on loading: nested wrapper prefixes (module., _orig_mod.) keep the "
        "weights from matching, and the model trains from random "
        "initialisation",
        Remediation(
            "Strip every prefix repeatedly, and fail when most keys are missing",
            (
                "torch-doctor checkpoint strip-prefix CHECKPOINT",
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
        decide="torch-doctor checkpoint inspect CHECKPOINT",
    ),
    Cause(
        "CKP203",
        "git-lfs-pointer",
        "The checkpoint is a Git LFS pointer, not the file.",
        "A clone without LFS has text files of about 130 bytes that begin with version https://git-lfs...; pickle "
        "stops at the v.",
        "the checkpoint is a git-lfs pointer of about 130 bytes ('version https://git-lfs...'), not the weights",
        Remediation(
            "Fetch the files behind the pointers", ("git lfs install && git lfs pull", "head -c 100 CHECKPOINT")
        ),
        (
            Signature(
                "invalid load key, 'v'",
                "_pickle.UnpicklingError: invalid load key, 'v'.",
                "_pickle.UnpicklingError: invalid load key, '<'.",
                source="python 3.8 to 3.14, pickle",
            ),
            Signature(
                "git-lfs.github.com/spec",
                "version https://git-lfs.github.com/spec/v1",
                "git-lfs docs",
                r"version https://git-lfs\.github\.com/spec",
                source="Git LFS",
            ),
            Signature(
                "header too large",
                "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
                "header",
                r"SafetensorError: Error while deserializing header: header too large",
                source="safetensors 0.3 to 0.7",
            ),
            Signature(
                "HeaderTooLarge",
                "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
                "HeaderTooSmall",
                source="safetensors 0.3 to 0.5",
            ),
        ),
        explains=("CKP2",),
        decide="head -c 100 CHECKPOINT",
    ),
    Cause(
        "CKP204",
        "not-a-checkpoint",
        "The file is no checkpoint: a web page, an error message, another format.",
        "pickle names the first byte that it cannot read: < is HTML or XML, { is JSON, \\x1f a gzip, P a zip.",
        "the file is no pickle: its first byte is {key} ({what})",
        Remediation(
            "Look at its first bytes and download it again",
            ("head -c 200 CHECKPOINT", "file CHECKPOINT; ls -l CHECKPOINT"),
        ),
        (
            Signature(
                "invalid load key, ",
                "_pickle.UnpicklingError: invalid load key, '<'.",
                "_pickle.UnpicklingError: invalid load key, 'v'.",
                r"invalid load key, '(?P<key>(?!v')[^']+)'",
                source="python 3.8 to 3.14, pickle",
            ),
            Signature(
                "HeaderTooSmall",
                "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooSmall",
                "HeaderTooLarge",
                r"(?P<key>)Error while deserializing header: (?:HeaderTooSmall|InvalidHeader\w*|header too "
                r"small|invalid UTF-8 in header)",
                source="safetensors 0.3 to 0.7",
            ),
            Signature(
                "unpickling stack underflow",
                "_pickle.UnpicklingError: unpickling stack underflow",
                "stack underflow",
                r"(?P<key>)unpickling stack underflow",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=lambda seen, verdict: with_message(
            verdict,
            f"the file is no pickle: its first byte is {seen.groups['key']!r} "
            f"({_FIRST_BYTES.get(seen.groups['key'], 'another format, or damage')})"
            if seen.groups.get("key")
            else "the file is no checkpoint of this format, or its start is damaged",
        ),
    ),
    Cause(
        "CKP205",
        "checkpoint-truncated",
        "The checkpoint has no zip index where torch.load looks for it.",
        "The index of a torch checkpoint stands at its end. A save or copy that was cut short lacks it; a file "
        "whose data starts at another offset (a header before it, "
        "a file object at a position) gives the same text though it is whole.",
        "the checkpoint has no zip index (central directory) at its end: the file was cut short while it was saved "
        "or copied, or the zip data does not start at offset 0 "
        "(torch.save into a file at a non-zero position, behind a header)",
        Remediation(
            "Resume from the last good checkpoint and save atomically; a file with a header before the data is "
            "read through a BytesIO slice, or saved as its own file",
            (
                "python -m zipfile -t CHECKPOINT",
                "torch.save(state, path + '.tmp'); os.replace(path + '.tmp', path)",
                "torch.load(io.BytesIO(data[offset:]))",
            ),
        ),
        (
            Signature(
                "failed finding central directory",
                "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
                "RuntimeError: PytorchStreamReader failed locating file data.pkl: file not found",
                source="torch 1.6 to 2.15, caffe2/serialize/inline_container.cc",
            ),
            Signature(
                "PytorchStreamReader failed reading",
                "RuntimeError: PytorchStreamReader failed reading file data/2: file read failed",
                "PytorchStreamReader ok",
                r"PytorchStreamReader failed (?:reading (?:file|zip archive)|locating file (?!constants\.pkl))[^\n]*",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "PytorchStreamReader failed locating file",
                "RuntimeError: PytorchStreamReader failed locating file data.pkl: file not found",
                "locating",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "storage has wrong",
                "RuntimeError: storage has wrong size: expected 0 got 512",
                "storage has room",
                r"storage has wrong (?:byte )?size: expected",
                source="torch 0.4 to 2.15, legacy format: cut short, or written by several ranks at once",
            ),
            Signature(
                "unexpected EOF, expected",
                "RuntimeError: unexpected EOF, expected 43 more bytes. The file might be corrupted.",
                "unexpected EOF while parsing",
                r"unexpected EOF, expected \d+ more bytes",
                source="torch 0.4 to 2.15, legacy format",
            ),
            Signature(
                "files saved in the legacy .tar format",
                "RuntimeError: Cannot use ``weights_only=True`` with files saved in the legacy .tar format.",
                ".tar format",
                source="torch 2.0 to 2.15: also a file of zeros",
            ),
            Signature(
                "MetadataIncompleteBuffer",
                "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
                "incomplete",
                source="safetensors 0.3 to 0.5",
            ),
            Signature(
                "incomplete metadata, file not fully covered",
                "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
                "fully covered",
                "incomplete metadata",
                source="safetensors 0.6 and 0.7",
            ),
            Signature(
                "Ran out of input",
                '  File "torch/serialization.py", line 1495, in _legacy_load\nEOFError: Ran out of input',
                '  File "multiprocessing/spawn.py", line 122, in spawn_main\nEOFError: Ran out of input',
                r"(?:torch/serialization\.py|pickle\.load|torch\.load)[^\n]*\n(?:.*\n){0,10}?EOFError: Ran out of "
                r"input",
                source="torch 0.4 to 2.15: an empty file",
            ),
            Signature(
                "pickle data was truncated",
                "_pickle.UnpicklingError: pickle data was truncated",
                "truncated",
                unless=(r"spawn_main",),
                source="python 3.8 to 3.14",
            ),
        ),
        judge=truncated,
        decide="python -m zipfile -t CHECKPOINT; ls -l CHECKPOINT",
    ),
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
                "2. Please use torch.load with map_location to map your storages to "
                "an existing device.",
                "deserialize object",
                r"Attempting to deserialize object on (?:a )?(?P<device>CUDA device(?: \d+)?|MPS device|HPU "
                r"device|\w+ device)",
                source="torch 0.4 to 2.15, torch/serialization.py",
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
                "torch-doctor checkpoint inspect CHECKPOINT",
            ),
        ),
        (
            Signature(
                "Weights only load failed",
                "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you "
                "have two options",
                "weights loaded",
                r"Weights only load failed(?:(?:.*\n){1,12}?[^\n]*Unsupported global: GLOBAL (?P<what>[\w.]+))?",
                source="torch 2.0 to 2.15, torch/serialization.py",
            ),
            Signature(
                "Unsupported global: GLOBAL",
                "WeightsUnpickler error: Unsupported global: GLOBAL numpy._core.multiarray.scalar was not an "
                "allowed global by default.",
                "global",
                r"Unsupported (?:global: GLOBAL|class) (?P<what>[\w.]+)",
                source="torch 2.0 to 2.15",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "an object")),
        explains=("CKP205",),
    ),
    Cause(
        "CKP209",
        "parameter-size-mismatch",
        "A parameter's shape in the checkpoint is not the model's.",
        "Another number of classes, vocabulary or width; strict does not matter for shapes.",
        "{name} has shape {saved} in the checkpoint and {model} in the model: another number of classes, "
        "vocabulary size or width",
        Remediation(
            "Build the model with the saved configuration, or drop the layers that differ before loading",
            ("state.pop('fc.weight'); state.pop('fc.bias')", "torch-doctor checkpoint inspect CHECKPOINT"),
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
        ),
        explains=("CKP201",),
    ),
    Cause(
        "CKP212",
        "not-a-torchscript-file",
        "torch.jit.load was given a file that torch.save wrote.",
        "A state_dict or pickled module is a zip archive, too, but has no constants.pkl.",
        "the file is no TorchScript archive (constants.pkl is missing in it): it was written by torch.save",
        Remediation(
            "Load it with torch.load, or export the model with torch.jit.save",
            ("torch.load(path, map_location='cpu')",),
        ),
        (
            Signature(
                "constants.pkl",
                "RuntimeError: PytorchStreamReader failed locating file constants.pkl: file not found",
                "constants.pkl written",
                r"failed locating file constants\.pkl",
                source="torch 1.6 to 2.15, torch.jit.load",
            ),
        ),
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
                "No module named 'numpy._core'",
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
            else verdict
        ),
    ),
    Cause(
        "CKP211",
        "optimizer-state-mismatch",
        "The saved optimizer state does not fit the optimizer.",
        "The parameter groups or their sizes differ: frozen layers, another order, another optimizer.",
        "the optimizer's saved state does not fit its parameter groups",
        Remediation(
            "Build the same parameter groups before loading, or start the optimizer afresh",
            ("optimizer = AdamW(model.parameters())  # no load_state_dict",),
        ),
        (
            Signature(
                "loaded state dict ",
                "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
                "optimizer's group",
                "loaded state dict from x",
                r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of "
                r"parameter groups)",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
)

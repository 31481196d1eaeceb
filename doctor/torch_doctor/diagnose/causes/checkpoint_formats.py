"""Checkpoints of another format or version than the one that reads them."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
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
        "CKP234",
        "checkpoint-of-newer-torch",
        "The checkpoint was written by a newer torch than the one that reads it.",
        "Rebuild functions are looked up by name in torch; an older one lacks those of a newer.",
        "the checkpoint was written by a newer torch: this one does not know {what}",
        Remediation(
            "Read it with the torch that wrote it, or a later one, and save a plain state_dict",
            (
                'python -c "import torch; print(torch.__version__)"',
                "pip install -U torch",
            ),
        ),
        (
            Signature(
                "on <module 'torch",
                "AttributeError: Can't get attribute '_rebuild_tensor_v3' on <module 'torch._utils' from '/x/torch/_utils.py'>",
                "Can't get attribute 'Foo' on <module 'models'",
                r"Can't get attribute '(?P<what>\w+)' on <module 'torch[\w.]*'",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "maximum supported version for reading is",
                "RuntimeError: Attempted to read a PyTorch file with version 10, but the maximum supported version for reading "
                "is 6. Your PyTorch installation may be too old.",
                "maximum supported version is 6",
                r"Attempted to read a PyTorch file with (?P<what>version \d+), but the maximum supported version for reading is \d+",
                source="torch 1.6 to 2.15, caffe2/serialize/inline_container.cc",
            ),
        ),
        explains=("CKP210",),
    ),
    Cause(
        "CKP235",
        "torch-file-read-with-pickle",
        "pickle.load was given a file that torch.save wrote.",
        "torch.save keeps the tensors beside the pickle and refers to them by a persistent id, which only torch.load knows.",
        "the file was written by torch.save, and pickle.load cannot read it",
        Remediation("Read it with torch.load", ("torch.load(path, map_location='cpu')",)),
        (
            Signature(
                "A load persistent id instruction was encountered",
                "_pickle.UnpicklingError: A load persistent id instruction was encountered, but no persistent_load function was specified.",
                "persistent id",
                source="python 3.8 to 3.14, pickle",
            ),
        ),
    ),
    Cause(
        "CKP245",
        "legacy-file-not-mappable",
        "mmap=True was asked for a checkpoint in the old format.",
        "Only the zip format of torch 1.6 and later can be mapped.",
        "the checkpoint is in the format before torch 1.6 and cannot be mapped (mmap=True)",
        Remediation(
            "Load it without mmap once, and save it anew",
            ("state = torch.load(path, map_location='cpu'); torch.save(state, path + '.new')",),
        ),
        (
            Signature(
                "mmap can only be used with files saved with",
                "RuntimeError: mmap can only be used with files saved with `torch.save(/x/a.pt, "
                "_use_new_zipfile_serialization=True), please torch.save your checkpoint with this option in order to use mmap.",
                "mmap can be used",
                source="torch 2.1 to 2.15",
            ),
        ),
    ),
    Cause(
        "CKP246",
        "pickle-of-python-2",
        "The checkpoint was pickled by Python 2.",
        "Its byte strings are not ASCII; Python 3 decodes them as ASCII by default.",
        "the file was pickled by Python 2: its byte strings do not decode as ASCII",
        Remediation(
            "Name the encoding, and save it anew",
            (
                "torch.load(path, encoding='latin1', weights_only=False)  # trusted files only",
                "pickle.load(f, encoding='latin1')",
            ),
        ),
        (
            Signature(
                "'ascii' codec can't decode byte",
                "  File \"/x/torch/serialization.py\", line 1246, in _legacy_load\nUnicodeDecodeError: 'ascii' codec can't "
                "decode byte 0x8b in position 6: ordinal not in range(128)",
                "UnicodeDecodeError: 'ascii' codec can't decode byte 0xe2 in position 6: ordinal not in range(128)",
                r"(?:torch/serialization\.py|pickle\.loads?\()[^\n]*\n(?:.*\n){0,6}?UnicodeDecodeError: 'ascii' codec can't decode byte",
                source="torch 0.4 to 2.15, pickle",
            ),
        ),
    ),
    Cause(
        "CKP254",
        "hub-archive-with-folder",
        "torch.hub was given a zip that holds more than one file.",
        "load_state_dict_from_url unpacks a zip of another kind than torch.save writes only where it holds a single file.",
        "torch.hub took the download for a legacy zip and found more than one file in it",
        Remediation(
            "Download it by hand, unpack it, and load the file that holds the weights",
            ("curl -LO URL; unzip -l FILE", "torch.load('weights.pth', map_location='cpu')"),
        ),
        (
            Signature(
                "Only one file(not dir) is allowed in the zipfile",
                "RuntimeError: Only one file(not dir) is allowed in the zipfile",
                "one file is allowed",
                source="torch 1.1 to 2.15, torch/hub.py",
            ),
        ),
    ),
)

"""Checkpoint files that cannot be read: pointers, pages, cut archives, no files at all."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_WRITE_FAILED = (
    r"No space left on device|PytorchStreamWriter failed writing|file write failed|unexpected pos \d+ vs \d+"
    r"|Disk quota exceeded"
)


def truncated(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A write that failed earlier, in this run or the one before, is the cause."""
    earlier = seen.log.earlier
    failed = seen.has(_WRITE_FAILED) or (earlier is not None and earlier.search(_WRITE_FAILED))
    if not failed:
        return _cut_short(seen, verdict)
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


def _cut_short(seen: Seen, verdict: Verdict) -> Verdict:
    """An empty file and a safetensors file have no zip index to lack."""
    text = "\n".join(line.text for line in seen.log.lines[seen.index : seen.end + 1])
    if "EOFError" in text:
        return with_message(
            verdict,
            "the checkpoint is empty (0 bytes) or ends at once: the run that saved it was killed or its disk was full",
            Remediation(
                "Resume from the last good checkpoint; save to a temporary file and rename it when it is complete",
                (
                    "ls -l CHECKPOINT_FOLDER",
                    "df -h .",
                    "torch.save(state, path + '.tmp'); os.replace(path + '.tmp', path)",
                ),
            ),
        )
    if re.search(r"MetadataIncompleteBuffer|incomplete metadata", text):
        return with_message(
            verdict,
            "the safetensors file is shorter than its header says: a download or copy was cut short",
            Remediation(
                "Compare its size with the source, and download or copy it again",
                (
                    "ls -l FILE; sha256sum FILE",
                    "hf download REPO FILE --force-download  # or huggingface-cli download",
                ),
            ),
        )
    if "central directory" in text:
        return verdict
    if "data.pkl" in text:
        return with_message(
            verdict,
            "the file is a zip archive, but no torch checkpoint: it has no data.pkl (an .npz, a packed folder, or a "
            "model of another tool), or was cut short and repaired",
            Remediation("Look at what is in it", ("unzip -l CHECKPOINT | head", "file CHECKPOINT; ls -l CHECKPOINT")),
        )
    return _damaged(verdict, text)


def _damaged(verdict: Verdict, text: str) -> Verdict:
    last = text.strip().splitlines()[-1]
    said = re.sub(r"^[\w.]*(?:Error|Exception): ", "", last)[:90]
    return with_message(
        verdict,
        f"the checkpoint is damaged or cut short ({said}): its save, copy or download did not finish, or two "
        "processes wrote it at once",
        Remediation(
            "Compare its size with the source and copy or download it again, or resume from the last good checkpoint; "
            "let one rank save, to a temporary file that is renamed",
            (
                "ls -lt CHECKPOINT_FOLDER; python -m zipfile -t CHECKPOINT",
                "rm ~/.cache/torch/hub/checkpoints/FILE  # a download that was cut",
                "if rank == 0: torch.save(state, path + '.tmp'); os.replace(path + '.tmp', path)",
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
#: the same bytes as weights_only names them, by their code
_FIRST_CODES: dict[str, str] = {"60": "<", "123": "{", "31": "\\x1f", "147": "\\x93", "69": "E", "8": "\\x08"}


def first_byte(groups: Mapping[str, str]) -> str:
    """What the first byte that could not be read says of the file."""
    key = groups.get("key") or _FIRST_CODES.get(groups.get("code", ""), "")
    if not key:
        return "the file is no checkpoint of this format, or its start is damaged"
    return f"the file is no pickle: its first byte is '{key}' ({_FIRST_BYTES.get(key, 'another format, or damage')})"


register(
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
                "Unsupported operand 118",
                "WeightsUnpickler error: \n\nUnsupported operand 118",
                "WeightsUnpickler error: \n\nUnsupported operand 60",
                r"Unsupported operand 118\b",
                source="torch 2.0 to 2.15 with weights_only: 118 is the v of version",
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
                "cloned a repository without having git-lfs installed",
                "OSError: You seem to have cloned a repository without having git-lfs installed. Please install git-lfs "
                "and run `git lfs install` followed by `git lfs pull` in the folder you cloned.",
                "git-lfs is installed",
                source="transformers 4.x and 5.x",
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
                "Error while deserializing header",
                "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooSmall",
                "HeaderTooLarge",
                r"(?P<key>)Error while deserializing header: (?:HeaderTooSmall|InvalidHeader\w*|invalid JSON in header|header too "
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
            Signature(
                "Unsupported operand ",
                "WeightsUnpickler error: \n\nUnsupported operand 60",
                "Unsupported operand 149",
                rf"Unsupported operand (?P<code>{'|'.join(_FIRST_CODES)})\b",
                source="torch 2.0 to 2.15 with weights_only: the code of the first byte",
            ),
            Signature(
                "Invalid magic number; corrupt file?",
                "RuntimeError: Invalid magic number; corrupt file?",
                "magic number",
                r"(?P<key>)Invalid magic number; corrupt file\?",
                source="torch 0.4 to 2.15, legacy format: a pickle that torch.save did not write",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, first_byte(seen.groups)),
        explains=("CKP208",),
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
                "PytorchStreamReader failed ",
                "RuntimeError: PytorchStreamReader failed reading file data/2: file read failed",
                "PytorchStreamReader ok",
                r"PytorchStreamReader failed (?:reading (?:file|zip archive)|locating file (?!constants\.pkl))[^\n]*",
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
                r"(?:torch/serialization\.py|_weights_only_unpickler\.py|(?<!reduction\.)pickle\.load"
                r"|torch\.load)[^\n]*\n(?:.*\n){0,14}?"
                r"EOFError: Ran out of input",
                source="torch 0.4 to 2.15: an empty file",
            ),
            Signature(
                "EOFError",
                '  File "/opt/venv/lib/python3.11/site-packages/torch/_weights_only_unpickler.py", line 530, in '
                "load\n"
                "    raise EOFError\nEOFError",
                "EOFError: the pipe",
                r"(?:torch/serialization\.py|_weights_only_unpickler\.py)[^\n]*\n(?:.*\n){0,14}?EOFError$",
                source="torch 2.0 to 2.15 with weights_only: an empty file",
            ),
            Signature(
                "pickle data was truncated",
                "_pickle.UnpicklingError: pickle data was truncated",
                "truncated",
                unless=(r"spawn_main",),
                source="python 3.8 to 3.14",
            ),
            Signature(
                "Unable to load weights from pytorch checkpoint file",
                "OSError: Unable to load weights from pytorch checkpoint file for './out/pytorch_model.bin' at "
                "'./out/pytorch_model.bin'. If you tried to load a PyTorch model from a TF 2.0 checkpoint, please set "
                "from_tf=True.",
                "weights loaded",
                source="transformers 3.x and 4.x: whatever torch.load failed with, hardly ever a TF checkpoint",
            ),
            Signature(
                "invalid hash value (expected",
                'RuntimeError: invalid hash value (expected "11ad3fa6", got "e3b0c442")',
                "hash value",
                r"invalid hash value \(expected \"[^\"]*\", got \"[^\"]*\"\)",
                source="torch 1.0 to 2.15, torch/hub.py: a download that was cut or replaced by a page",
            ),
        ),
        judge=truncated,
        decide="python -m zipfile -t CHECKPOINT; ls -l CHECKPOINT",
    ),
    Cause(
        "CKP255",
        "load-of-no-file",
        "torch.load was given something that is no file.",
        "A dict that was loaded already, a response of requests, or a file that cannot seek (a pipe, a zip member).",
        "torch.load was given a {what}, not a path or a file that can seek",
        Remediation(
            "Give it a path, or read the bytes into a buffer; what is loaded already needs no torch.load",
            (
                "torch.load(io.BytesIO(response.content), map_location='cpu')",
                "torch.load('path/to/file.pt', map_location='cpu')",
            ),
        ),
        (
            Signature(
                "You can only torch.load from a file that is seekable",
                "AttributeError: 'dict' object has no attribute 'seek'. You can only torch.load from a file that is seekable.",
                "the file is seekable",
                r"'(?P<what>\w+)' object has no attribute '\w+'\. You can only torch\.load from a file that is seekable",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
)

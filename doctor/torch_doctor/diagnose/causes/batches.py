"""Samples that cannot become a batch."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.shapes import stacked_by_program
from torch_doctor.model import Remediation


def unequal(seen: Seen, verdict: Verdict) -> Verdict | None:
    """[3, h, w] beside [1, h, w] or [4, h, w] are grey or transparent images; the program may stack tensors, too."""
    if stacked_by_program(seen):
        return None
    sizes = [re.findall(r"\d+", seen.groups.get(name, "")) for name in ("first", "second")]
    first, second = sizes
    if len(first) == len(second) == 3 and first[1:] == second[1:] and {first[0], second[0]} <= {"1", "2", "3", "4"}:
        return with_message(
            verdict,
            f"the samples of one batch differ in their channels ({seen.groups['first']} and {seen.groups['second']}): "
            "grey or transparent images are among them",
            Remediation(
                "Convert each image to RGB when it is read",
                (
                    "image = Image.open(path).convert('RGB')",
                    "torchvision.io.read_image(path, mode=ImageReadMode.RGB)",
                ),
            ),
        )
    return verdict


def not_a_tensor(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A PIL image wants ToTensor; only None is a sample that failed."""
    found = seen.groups.get("what", "")
    if "NoneType" in found:
        return verdict
    if "Image" not in found:
        return with_message(
            verdict,
            f"default_collate got {found}: it stacks tensors, arrays, numbers, strings, dicts and lists only",
            Remediation(
                "Turn it into a tensor, number or string in __getitem__, or give the DataLoader a collate_fn that keeps "
                "it as it is",
                ("def collate(batch): return tuple(zip(*batch))", "DataLoader(..., collate_fn=collate)"),
            ),
        )
    return with_message(
        verdict,
        f"default_collate got {found}: the transform does not turn the image into a tensor",
        Remediation(
            "End the transform with ToTensor, or give the DataLoader a collate_fn that keeps images as they are",
            (
                "transforms.Compose([..., transforms.ToTensor()])",
                "transforms.v2.Compose([transforms.v2.ToImage(), transforms.v2.ToDtype(torch.float32, scale=True)])",
            ),
        ),
    )


register(
    Cause(
        "WRK209",
        "samples-of-unequal-size",
        "Samples of unequal size were to be stacked into one batch.",
        "default_collate stacks; images, sequences or boxes of different sizes do not stack.",
        "the samples of one batch differ in size[[ ({first} and {second})]]: default_collate cannot stack them",
        Remediation(
            "Resize or crop in the transform, or pad in a collate_fn (torch.nn.utils.rnn.pad_sequence)",
            ("DataLoader(..., collate_fn=pad_collate)",),
        ),
        (
            Signature(
                "stack expects each tensor to be equal size",
                "RuntimeError: stack expects each tensor to be equal size, but got [3, 480, 640] at entry 0 and "
                "[3, 427, 640] at entry 1",
                "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
                "dimension 1",
                r"stack expects each tensor to be equal size, but got (?P<first>\[[^\]]*\]) at entry \d+ and "
                r"(?P<second>\[[^\]]*\])",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                "each element in list of batch should be of equal size",
                "RuntimeError: each element in list of batch should be of equal size",
                "batch of equal size",
                source="torch 1.5 to 2.15, torch/utils/data/_utils/collate.py",
            ),
            Signature(
                "Trying to resize storage that is not resizable",
                "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: Trying to resize "
                "storage that is not resizable",
                "storage is resizable",
                also=(r"collate|DataLoader worker",),
                source="torch 1.12 to 2.15",
            ),
        ),
        judge=unequal,
    ),
    Cause(
        "WRK210",
        "none-in-batch",
        "A sample is None, or of a type that default_collate does not know.",
        "A __getitem__ that returns None for a broken file reaches default_collate.",
        "default_collate got {what}: __getitem__ returned None, or a sample holds it",
        Remediation(
            "Skip broken samples when the list is made, or filter None in a collate_fn",
            ("batch = [b for b in batch if b is not None]",),
        ),
        (
            Signature(
                "batch must contain tensors",
                "TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                "found <class 'NoneType'>",
                "batch must contain samples",
                r"batch must contain tensors, numpy arrays, numbers, dicts or lists; found (?P<what><class "
                r"'[^']+'>|\S+)",
                source="torch 0.4 to 2.15, torch/utils/data/_utils/collate.py",
            ),
            Signature(
                "/collate.py",
                '  File "/x/torch/utils/data/_utils/collate.py", line 263, in collate_tensor_fn\n    numel = sum(x.numel() for x in '
                "batch)\nAttributeError: 'NoneType' object has no attribute 'numel'",
                '  File "/x/torch/utils/data/_utils/collate.py", line 263, in collate_tensor_fn\nRuntimeError: stack expects',
                r"_utils/collate\.py\"[^\n]*\n(?:.*\n){0,6}?(?:AttributeError|TypeError): [^\n]*(?P<what>NoneType)",
                source="torch 1.12 to 2.15: a batch whose first sample is no None",
            ),
        ),
        judge=not_a_tensor,
    ),
    Cause(
        "WRK232",
        "sample-cannot-be-decoded",
        "A data file is damaged: an image, audio or video could not be decoded.",
        "A download that was cut, or a file that is no image. With thousands of files one of them is enough.",
        "a data file could not be decoded ({what})",
        Remediation(
            "Find the file and fetch it again, or skip broken files once when the list is made",
            (
                'python -c "from PIL import Image; import sys; [Image.open(f).load() for f in sys.argv[1:]]" DATA/*',
                "PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True  # reads the rest as grey",
            ),
        ),
        (
            Signature(
                (
                    "image file is truncated",
                    "cannot identify image file",
                    "broken data stream",
                    "unrecognized data stream",
                ),
                "OSError: image file is truncated (12 bytes not processed)",
                "WARNING: skipping corrupt image: image file is truncated (12 bytes not processed)",
                r"^(?:OSError|(?:PIL\.)?UnidentifiedImageError|SyntaxError): (?P<what>image file is truncated[^\n]*"
                r"|cannot identify image file[^\n]*|broken data stream[^\n]*|unrecognized data stream[^\n]*)",
                source="Pillow 6 to 12",
            ),
            Signature(
                ("image data is corrupted or truncated", "premature end of data segment", "Corrupt JPEG data"),
                "RuntimeError: image_type.cpp: image data is corrupted or truncated",
                "image data",
                r"^\w*Error: (?P<what>[^\n]*(?:image data is corrupted or truncated|premature end of data segment"
                r"|Corrupt JPEG data)[^\n]*)",
                source="torchvision, libjpeg",
            ),
        ),
        explains=("WRK222",),
    ),
    Cause(
        "WRK239",
        "iterator-has-no-next",
        "A DataLoader's iterator has no method next.",
        "It was a remnant of Python 2, and torch 1.13 removed it.",
        "the iterator of a DataLoader has no .next() (removed in torch 1.13)",
        Remediation(
            "Call the built-in function", ("batch = next(iterator)  # not iterator.next()", "grep -rn '\\.next()' .")
        ),
        (
            Signature(
                "DataLoaderIter' object has no attribute 'next'",
                "AttributeError: '_MultiProcessingDataLoaderIter' object has no attribute 'next'",
                "AttributeError: 'Node' object has no attribute 'next'",
                source="torch 1.13 to 2.15",
            ),
        ),
    ),
    Cause(
        "WRK241",
        "samples-with-different-keys",
        "The samples of one batch are dicts with different keys.",
        "default_collate takes the keys of the first sample and looks them up in all others.",
        "a sample of the batch has no entry {key}, which the first one has: default_collate wants the same keys in each",
        Remediation(
            "Return the same keys for each sample, with an empty or padded value where there is nothing",
            ("sample.setdefault('mask', torch.zeros(h, w))", "DataLoader(..., collate_fn=my_collate)"),
        ),
        (
            Signature(
                "_utils/collate.py",
                "  File \"/x/torch/utils/data/_utils/collate.py\", line 127, in collate\n    return elem_type({key: collate([d[key] for d in batch]) for key in elem})\nKeyError: 'mask'",
                '  File "/x/torch/utils/data/_utils/collate.py", line 127, in collate\nTypeError: default_collate',
                r'_utils/collate\.py"[^\n]*\n(?:(?!  File )[^\n]*\n){0,4}?KeyError: (?P<key>[^\n]+)',
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
)

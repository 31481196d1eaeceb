"""What a DataLoader is given, and what its samples are: arguments, arrays, damaged files."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: start of the error -> (what it means, what to do, commands)
_ARGUMENTS = (
    (
        "num_samples should be",
        "the data set is empty (len() is 0): a wrong path or pattern, most often",
        "Look at what the data set found before the DataLoader is made",
        ("print(len(dataset), dataset.root)", "ls -l DATA | head; find DATA -name '*.jpg' | wc -l"),
    ),
    (
        "prefetch_factor",
        "prefetch_factor is given, and there are no workers",
        "Set num_workers above 0, or leave prefetch_factor out",
        ("DataLoader(ds, num_workers=4, prefetch_factor=2)", "DataLoader(ds, num_workers=0, prefetch_factor=None)"),
    ),
    (
        "persistent_workers",
        "persistent_workers is given, and there are no workers",
        "Set num_workers above 0, or leave persistent_workers out",
        (
            "DataLoader(ds, num_workers=4, persistent_workers=True)",
            "DataLoader(ds, persistent_workers=num_workers > 0)",
        ),
    ),
    (
        "DataLoader with IterableDataset",
        "an IterableDataset has no order that the DataLoader could shuffle or sample",
        "Leave shuffle, sampler and batch_sampler out, and shuffle in the data set",
        (
            "DataLoader(iterable_ds, batch_size=32)",
            "dataset = dataset.shuffle(buffer_size=10_000)  # datasets, webdataset",
        ),
    ),
)


def arguments(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Each of the DataLoader's refusals has a remedy of its own."""
    what = seen.groups.get("what", "")
    for start, message, todo, commands in _ARGUMENTS:
        if what.startswith(start):
            return with_message(verdict, f"{message} ({what})", Remediation(todo, commands))
    return verdict


register(
    Cause(
        "WRK233",
        "loader-arguments-do-not-fit",
        "The DataLoader's arguments contradict each other or the data set.",
        "prefetch_factor and persistent_workers need workers; an iterable data set has no length and no order to shuffle.",
        "the DataLoader's arguments do not fit: {what}",
        Remediation(
            "Set num_workers above 0 where prefetch_factor or persistent_workers is given; leave shuffle and sampler out for an IterableDataset, and shuffle in the data set; give a map-style data set __len__ and __getitem__",
            (
                "DataLoader(ds, num_workers=4, prefetch_factor=2, persistent_workers=True)",
                "DataLoader(iterable_ds, batch_size=32)  # no shuffle, no sampler",
            ),
        ),
        (
            Signature(
                "prefetch_factor option could only be specified in multiprocessing",
                "ValueError: prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.",
                "prefetch_factor=2",
                r"(?P<what>prefetch_factor option could only be specified in multiprocessing)",
                source="torch 1.7 to 2.15, torch/utils/data/dataloader.py",
            ),
            Signature(
                "persistent_workers option needs num_workers > 0",
                "ValueError: persistent_workers option needs num_workers > 0",
                "persistent_workers=True",
                r"(?P<what>persistent_workers option needs num_workers > 0)",
                source="torch 1.7 to 2.15",
            ),
            Signature(
                "DataLoader with IterableDataset: expected unspecified",
                "ValueError: DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True",
                "IterableDataset",
                r"(?P<what>DataLoader with IterableDataset: expected unspecified \w+ option)",
                source="torch 1.2 to 2.15",
            ),
            Signature(
                "has no len()",
                "TypeError: object of type 'StreamDataset' has no len()",
                "TypeError: object of type 'NoneType' has no len()",
                r"(?P<what>object of type '\w*(?:[Dd]ata[Ss]et|DataPipe|Dataset)\w*' has no len\(\))",
                source="torch 1.2 to 2.15: a sampler or len(loader) of a data set without __len__",
            ),
            Signature(
                "num_samples should be a positive integer value",
                "ValueError: num_samples should be a positive integer value, but got num_samples=0",
                "num_samples=10",
                r"(?P<what>num_samples should be a positive integer value, but got num_samples=0)",
                source="torch 1.0 to 2.15: the data set is empty, most often a wrong path",
            ),
            Signature(
                "mutually exclusive",
                "ValueError: sampler option is mutually exclusive with shuffle",
                "options are exclusive",
                r"(?P<what>\w+ option is mutually exclusive with [\w, ]+)",
                source="torch 1.0 to 2.15",
            ),
        ),
        judge=arguments,
    ),
    Cause(
        "WRK234",
        "array-not-convertible",
        "A NumPy array cannot become a tensor.",
        "Rows of unequal length or strings make an object array; a flip makes negative strides; torch takes neither.",
        "a NumPy array cannot be made a tensor ({what})",
        Remediation(
            "Give rows the same length and a number type; copy after a flip",
            (
                "np.stack(rows).astype(np.float32)",
                "torch.from_numpy(np.ascontiguousarray(x))",
                "x[:, ::-1].copy()",
            ),
        ),
        (
            Signature(
                "np.ndarray of type numpy.",
                "TypeError: can't convert np.ndarray of type numpy.object_. The only supported types are: float64, float32, float16",
                "can't convert np.ndarray of type float128",
                r"(?P<what>np\.ndarray of type numpy\.(?:object_|str_|bytes_|uint\d+))",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "in the given numpy array",
                "ValueError: At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported.",
                "stride is 2",
                r"(?P<what>[Aa]t least one (?:of the )?strides? in the given numpy array (?:is|are) negative)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "expected sequence of length",
                "ValueError: expected sequence of length 3 at dim 1 (got 2)",
                "sequence of length 3",
                r"(?P<what>expected sequence of length \d+ at dim \d+ \(got \d+\))",
                source="torch 1.0 to 2.15, torch.tensor of uneven lists",
            ),
            Signature(
                "inhomogeneous shape after",
                "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected shape was (3,) + inhomogeneous part.",
                "inhomogeneous data",
                r"(?P<what>inhomogeneous shape after \d+ dimensions)",
                source="NumPy 1.24 to 2.4",
            ),
        ),
    ),
    Cause(
        "HDF237",
        "data-file-damaged",
        "A data file is cut short or has another format.",
        "A Parquet, Arrow or NumPy file ends with its index or states its length; a copy or download that was cut lacks it. A Git LFS pointer or an error page is another format.",
        "a data file is empty, cut short or has another format than its name says ({what})",
        Remediation(
            "Compare its size and first bytes with the source and fetch it again",
            (
                "ls -l FILE; head -c 120 FILE; sha256sum FILE",
                "git lfs pull",
            ),
        ),
        (
            Signature(
                "Parquet ",
                "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
                "Parquet magic",
                r"(?P<what>Parquet (?:magic bytes not found in footer|file size is \d+ bytes))",
                source="pyarrow 1 to 22",
            ),
            Signature(
                "ArrowInvalid: ",
                "pyarrow.lib.ArrowInvalid: Expected to read 1330795073 metadata bytes, but only read 1138",
                "pyarrow.lib.ArrowInvalid: JSON parse error",
                r"ArrowInvalid: (?P<what>Expected to read \d+ metadata bytes, but only read \d+|Not an Arrow file|File is too small[^\n]*|Tried reading schema message, was null or length 0)",
                source="pyarrow 1 to 22",
            ),
            Signature(
                "File is not a zip file",
                "zipfile.BadZipFile: File is not a zip file",
                "zipfile.BadZipFile: Bad CRC-32 for file 'x'",
                r"BadZipFile: (?P<what>File is not a zip file)",
                source="python 3.8 to 3.14: np.load of a cut .npz",
            ),
            Signature(
                (
                    "cannot reshape array of size",
                    "Failed to read all data for array",
                    "mmap length is greater than file size",
                ),
                "ValueError: mmap length is greater than file size",
                "mmap length is 10",
                r"(?P<what>mmap length is greater than file size|Failed to read all data for array|cannot reshape array of size \d+ into shape[^\n]*(?=\n(?:.*\n){0,3}.*\.npy))",
                source="NumPy 1.x and 2.x, np.load",
            ),
            Signature(
                (
                    "Compressed file ended before the end-of-stream marker",
                    "invalid header @",
                    "unexpected end of data @",
                ),
                "EOFError: Compressed file ended before the end-of-stream marker was reached",
                "the end-of-stream marker was reached",
                r"(?P<what>Compressed file ended before the end-of-stream marker|(?:invalid header|unexpected end of data) @ \S+)",
                source="python 3.8 to 3.14 gzip, lzma; webdataset",
            ),
            Signature(
                "cannot mmap an empty file",
                "ValueError: cannot mmap an empty file",
                "mmap of an empty list",
                r"(?P<what>cannot mmap an empty file)",
                source="python 3.8 to 3.14, mmap and np.memmap: the file has 0 bytes",
            ),
            Signature(
                "you tried to mmap 0GB",
                "RuntimeError: unable to mmap memory: you tried to mmap 0GB.",
                "you tried to mmap 12GB",
                r"(?P<what>unable to mmap memory: you tried to mmap 0GB)",
                source="torch 0.4 to 1.13, TH/THAllocator.c: the file has 0 bytes",
            ),
            Signature(
                "magic string is not correct",
                "ValueError: the magic string is not correct; expected b'\\x93NUMPY', got b'versio'",
                "magic string",
                r"(?P<what>magic string is not correct[^\n]{0,60})",
                source="NumPy 1.x and 2.x, np.load",
            ),
            Signature(
                "Failed to interpret file",
                "_pickle.UnpicklingError: Failed to interpret file 'data/train.npy' as a pickle",
                "interpret the file",
                r"(?P<what>Failed to interpret file '[^']*' as a pickle)",
                source="NumPy 1.x and 2.x, np.load: neither .npy nor .npz, such as a Git LFS pointer",
            ),
            Signature(
                "during blosc decompression",
                "RuntimeError: error during blosc decompression: -1",
                "blosc decompression took 2 s",
                r"(?P<what>error during blosc decompression: -?\d+)",
                source="numcodecs 0.6 to 0.16, zarr",
            ),
        ),
    ),
    Cause(
        "HDF238",
        "object-array-needs-pickle",
        "np.load refused an array of Python objects.",
        "An object array holds pickles, which run code when they are read; NumPy 1.16.3 made them opt-in.",
        "np.load refused an array of Python objects: allow_pickle is False by default",
        Remediation(
            "Save plain arrays; for a file that you made or trust, allow pickles",
            (
                "np.load(path, allow_pickle=True)  # trusted files only",
                "np.savez(path, x=x, y=y)",
            ),
        ),
        (
            Signature(
                "Object arrays cannot be loaded when allow_pickle=False",
                "ValueError: Object arrays cannot be loaded when allow_pickle=False",
                "allow_pickle=False",
                source="NumPy 1.16 to 2.4",
            ),
        ),
    ),
)

"""Objects that cannot be pickled for a worker, or not handed over in that way."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: how to do it, for what is no file: by the start of what to do
_CODE = (
    (
        "create the generator",
        (
            "def seed_worker(_):\n    numpy.random.seed(torch.initial_seed() % 2**32)",
            "DataLoader(..., worker_init_fn=seed_worker)",
        ),
    ),
    (
        "connect lazily",
        ("def __getitem__(self, i):\n    if self.db is None:\n        self.db = connect(self.address)",),
    ),
    (
        "open the environment",
        (
            "def __getitem__(self, i):\n    if self.env is None:\n        self.env = lmdb.open(self.path, readonly=True, lock=False)",
        ),
    ),
    ("keep what makes the generator", ("def __iter__(self):\n    yield from make_samples(self.path)",)),
    ("import the module", ("def __getitem__(self, i):\n    import thatmodule",)),
    ("keep list(", ("self.keys = list(d.keys())",)),
    ("keep the strings", ("self.name = match.group(0)",)),
    ("use torch.multi", ("queue = torch.multiprocessing.Queue()",)),
    ("create CUDA", ("batch = batch.to('cuda', non_blocking=True)  # in the training loop",)),
)
_LEFT_OUT = ("def __getstate__(self):\n    return {k: v for k, v in self.__dict__.items() if k != 'NAME'}",)


def _code(todo: str, commands: tuple[str, ...]) -> tuple[str, ...]:
    """The lines to type for what is to be done."""
    if "__getstate__" in todo:
        return _LEFT_OUT
    return next((code for start, code in _CODE if todo.startswith(start)), commands)


OPEN_LATE = "Open it lazily, on the first __getitem__ in each worker (keep the path in __init__, None for the handle)"
#: type named in "cannot pickle 'X' object" -> (what it is, what to do); Python 3.13 names some without their module
UNPICKLABLE = (
    (
        r"(?:_io\.)?TextIOWrapper",
        "an open text file",
        "read the list into memory in __init__ and close the file, or open it in each worker",
    ),
    (
        r"(?:_io\.)?(?:Buffered\w+|FileIO)",
        "an open binary file (also behind np.load of an .npz archive)",
        "load the arrays and close it, or open it lazily in each worker",
    ),
    (
        r"(?:torch\._C\.)?Generator",
        "a torch.Generator",
        "create the generator in worker_init_fn from a seed (torch.initial_seed())",
    ),
    (r"sqlite3\.\w+", "an sqlite3 connection", "connect lazily, once in each worker"),
    (
        r"\w*[Ee]nvironment|Transaction|lmdb\.\w+",
        "an LMDB environment",
        "open the environment lazily, once in each worker",
    ),
    (
        r"_thread\.\w+|_?thread\.\w*lock\w*|R?Lock|lock",
        "a lock or a thread",
        "make it in each worker, or leave it out in __getstate__",
    ),
    (
        r"generator",
        "a generator",
        "keep what makes the generator (a function and its arguments) and start it in __iter__",
    ),
    (r"module", "a module object", "import the module in the function that needs it"),
    (r"weakref(?:\.\w+)?", "a weak reference", "drop it in __getstate__"),
    (
        r"_?(?:asyncio|ssl|socket)\.\w+|socket|SSL(?:Context|Socket)",
        "a socket or connection",
        "connect lazily, once in each worker",
    ),
    (
        r"(?:_queue\.)?SimpleQueue|queue\.\w+",
        "a thread queue",
        "use torch.multiprocessing.Queue, or make it in each worker",
    ),
    (
        r"\w*(?:VideoCapture|VideoReader|Container|InputContainer)\w*",
        "an open video",
        "open the video lazily in each worker",
    ),
    (r"(?:mmap\.)?mmap", "a memory map", "map the file lazily in each worker"),
    (
        r"(?:\w+\.)*(?:CudaStream|Stream|Event)",
        "a CUDA stream or event",
        "create CUDA objects in the main process only",
    ),
    (r"dict_(?:keys|values|items)", "a view of a dict", "keep list(d.keys()) in place of the view"),
    (
        r"h5py\..*",
        "an open h5py object",
        "open the file lazily in each worker",
    ),
    (
        r"(?:\w+\.)*(?:ProcessGroup\w*|Work|Store)",
        "a process group of torch.distributed",
        "make it in each worker, or leave it out in __getstate__: the data set or a hook holds the trainer or the "
        "wrapped model",
    ),
    (
        r"(?:\w+\.)*(?:SwigPyObject|PyCapsule)|(?:builtins\.)?Py\w+|\w*Tokenizer|\w*[Cc]lient|\w*[Ss]ession|(?:\w+\.)*HASH",
        "a client or native object",
        "make it in each worker, or leave it out in __getstate__",
    ),
    (
        r"ctypes",
        "an object of a C library (ctypes pointers)",
        "keep what makes the object and make it lazily in each worker",
    ),
    (r"(?:re\.)?Match|_sre\.\w+", "a match object", "keep the strings it holds"),
)


def unpicklable(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Name the object, and the remedy that fits its kind."""
    kind = seen.groups.get("kind", "")
    if made := seen.groups.get("made"):
        return with_message(
            verdict,
            f"an object of {made}, a class that is made at run time (a boto3 client, a namedtuple or a factory's class), hangs off "
            "the data set or another argument of the workers, and cannot be pickled for spawn or forkserver",
            Remediation("Make it in each worker, or leave it out in __getstate__", _LEFT_OUT),
            type=made,
        )
    for pattern, what, todo in UNPICKLABLE:
        if re.fullmatch(pattern, kind):
            if elsewhere := _elsewhere(seen, f"{what} ({kind})"):
                return with_message(verdict, elsewhere[0], elsewhere[1], type=kind)
            return with_message(
                verdict,
                f"{what} ({kind}) hangs off the data set, sampler or another argument of the workers{_place(seen)}, and "
                "cannot be pickled for spawn or forkserver",
                Remediation(todo[0].upper() + todo[1:], _code(todo, verdict.remedy.commands)),
                type=kind,
            )
    if elsewhere := _elsewhere(seen, f"a {kind} object"):
        return with_message(verdict, elsewhere[0], elsewhere[1], type=kind)
    remedy = Remediation("Make it in each worker, or leave it out in __getstate__", _LEFT_OUT)
    return with_message(verdict, verdict.message.replace("workers,", f"workers{_place(seen)},"), remedy)


def _elsewhere(seen: Seen, what: str) -> tuple[str, Remediation] | None:
    """copy.deepcopy and the functions of datasets, Ray and joblib pickle, too: no worker of a DataLoader is meant."""
    if seen.near(r'/copy\.py", line \d+, in (?:deepcopy|copy|_reconstruct)', 12, 0):
        return (
            f"{what} hangs off an object that copy.deepcopy is to copy (an averaged model, a configuration, a search)",
            Remediation(
                "Copy what is needed only (a state_dict, a plain dict), or leave the object out in __deepcopy__ or "
                "__getstate__",
                ("state = {k: v.clone() for k, v in model.state_dict().items()}", *_LEFT_OUT),
            ),
        )
    if seen.near(r"/dill/_dill\.py|cloudpickle|/joblib/|ray/_private|/pyspark/", 14, 0):
        return (
            f"{what} is held by the function that is sent to other processes (datasets.map, Ray, joblib), and cannot be "
            "pickled",
            Remediation(
                "Let the function take what it needs as arguments or make it inside; a method holds its whole object",
                (
                    "def prepare(row): ...  # at module level, not self.prepare",
                    "dataset.map(prepare, fn_kwargs={'size': 224})",
                ),
            ),
        )
    return None


def _place(seen: Seen) -> str:
    """Where it hangs, which Python 3.14 adds as notes below the error."""
    item = seen.near(r"^when serializing dict item '(?P<item>\w+)'\n(?:when serializing (?P<of>[\w.]+) state)?", 0, 4)
    if item is None:
        return ""
    return f" (the attribute {item['item']} of {item['of']})" if item["of"] else f" (under the name {item['item']})"


register(
    Cause(
        "WRK203",
        "unpicklable-object-in-dataset",
        "An object that cannot be pickled hangs off the data set or another argument of the workers.",
        "spawn and forkserver pickle the data set with all it holds. Open files, connections, locks and generators "
        "have no meaning in another process.",
        "a {kind} object hangs off the data set or another argument of the workers, and cannot be pickled for "
        "spawn or forkserver",
        Remediation(
            OPEN_LATE,
            ("def __getitem__(self, i):\n    if self.handle is None:\n        self.handle = open(self.path, 'rb')",),
        ),
        (
            Signature(
                "cannot pickle '",
                "TypeError: cannot pickle '_io.TextIOWrapper' object",
                "TypeError: cannot unpack non-iterable NoneType object",
                r"cannot pickle '(?P<kind>[\w.]+)' (?:object|instances?)",
                source="python 3.8 to 3.14, object.__reduce_ex__",
            ),
            Signature(
                "can't pickle ",
                "TypeError: can't pickle _thread.RLock objects",
                "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
                r"TypeError: can't pickle (?P<kind>[\w.]+) objects",
                source="python 3.6 and 3.7",
            ),
            Signature(
                "cannot serialize",
                "TypeError: cannot serialize '_io.TextIOWrapper' object",
                "RuntimeError: cannot serialize the tensor",
                r"cannot serialize '(?P<kind>[\w.]+)' object",
                source="python 3.5 to 3.7, Modules/_io",
            ),
            Signature(
                "Can't pickle <class '",
                "_pickle.PicklingError: Can't pickle <class 'module'>: attribute lookup module on builtins failed",
                "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f0>: attribute lookup <lambda> on "
                "__main__ failed",
                r"Can't pickle <class '(?P<kind>(?:module|generator|_thread\.\w+|weakref\w*))'>"
                r"|Can't pickle <class '(?P<made>[\w.]+)'>: attribute lookup \w+ on (?!__main__|__mp_main__|builtins)[\w.]+ failed",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "cannot be pickled",
                "ValueError: ctypes objects containing pointers cannot be pickled",
                "h5py objects cannot be pickled",
                r"(?P<kind>ctypes) objects containing pointers cannot be pickled",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("WRK21", "WRK22", "SES"),
        judge=unpicklable,
        decide='python -c "import pickle; [pickle.dumps(v) for v in vars(dataset).values()]"',
    ),
    Cause(
        "WRK213",
        "dataset-too-large-to-pickle",
        "The data set is too large to be sent to a worker.",
        "spawn and forkserver send the whole data set through a pipe; old pickle protocols stop at 2 or 4 GiB, deep "
        "structures at the limit of recursion.",
        "the data set is too large or too deep to be pickled for a worker",
        Remediation(
            "Keep paths or an index in the data set and read the data in the worker; map large arrays from disk",
            ("np.load(path, mmap_mode='r')", "DataLoader(..., multiprocessing_context='fork')"),
        ),
        (
            Signature(
                "larger than 4",
                "OverflowError: cannot serialize a bytes object larger than 4 GiB",
                "a file larger than 4 GB",
                r"cannot serialize a (?:bytes|string) object larger than 4 ?GiB",
                source="python 3.6 to 3.14",
            ),
            Signature(
                "format requires -2147483648",
                "struct.error: 'i' format requires -2147483648 <= number <= 2147483647",
                "format requires",
                source="python 3.6 and 3.7, multiprocessing/connection.py",
            ),
            Signature(
                "while pickling an object",
                "RecursionError: maximum recursion depth exceeded while pickling an object",
                "while pickling",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("WRK22",),
    ),
    Cause(
        "WRK235",
        "cuda-tensor-crosses-processes",
        "A CUDA tensor was handed to another process against the rules.",
        "A CUDA tensor that is sent is a handle: its sender must live and keep it until the receiver is done, and a receiver may not send it on.",
        "a CUDA tensor was handed between processes against the rules ({what})",
        Remediation(
            "Hand CPU tensors between processes and move them to the GPU in the training loop, or clone what was received before sending it on",
            (
                "queue.put(x.cpu())",
                "x = queue.get().clone()",
            ),
        ),
        (
            Signature(
                "Attempted to send CUDA tensor received from another process",
                "RuntimeError: Attempted to send CUDA tensor received from another process; this is not currently supported. Consider cloning before sending.",
                "send CUDA tensor",
                r"(?P<what>Attempted to send CUDA tensor received from another process)",
                source="torch 1.0 to 2.15, torch/multiprocessing/reductions.py",
            ),
            Signature(
                "Producer process has been terminated before all shared CUDA tensors released",
                "[W CudaIPCTypes.cpp:15] Producer process has been terminated before all shared CUDA tensors released. See Note [Sharing CUDA tensors]",
                "Producer process started",
                r"(?P<what>Producer process has been terminated before all shared CUDA tensors released)",
                source="torch 1.0 to 2.15, CudaIPCTypes.cpp",
            ),
            Signature(
                "CUDA error: invalid ",
                "RuntimeError: CUDA error: invalid resource handle",
                "invalid handle",
                r"CUDA error: (?P<what>invalid resource handle|invalid device context)",
                source="CUDA 9 to 13: a stream, event or IPC handle of another process or device",
            ),
        ),
        kind=VAGUE,
    ),
)

"""What cannot be pickled for a worker, or imported in it."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

MODULE_LEVEL = Remediation(
    "Move the function to module level and name it, or use functools.partial of a module-level function; it is the "
    "collate_fn, worker_init_fn, sampler or transform of the DataLoader that crosses to the workers",
    ("def collate(batch): ...  # at module level", "DataLoader(..., collate_fn=collate)"),
)


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


def nameless(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A pool pickles the function of map and its arguments whatever the start method, also on fork."""
    what = seen.groups.get("what")
    if not what:
        return with_message(verdict, f"an argument of the worker{verdict.message}")
    if seen.has(r"torch/utils/data|DataLoader") or not seen.has(
        r"multiprocessing/(?:pool|queues)\.py|concurrent/futures"
    ):
        return verdict
    return with_message(
        verdict,
        f"{what} has no importable name, so it cannot be pickled for the processes of a pool: what is given to map or submit "
        "always crosses by pickle",
        Remediation(
            "Give the pool a function of module level, with functools.partial for what it needs",
            ("def work(x): ...  # at module level", "pool.map(functools.partial(work, size=224), items)"),
        ),
    )


def of_main(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A __main__ from a file is a script: what the child lacks stands under the guard, or is set at run time."""
    file = seen.groups.get("file", "")
    if not file or "ipykernel" in file or "/tmp/" in file:
        return verdict
    what = seen.groups["what"]
    return with_message(
        verdict,
        f"{what} is not defined where the spawned child imports {file}: it stands under if __name__ == '__main__' (or after what "
        "starts the workers), or is made at run time",
        Remediation(
            "Define it at the top level of the script, above the guard, or in a module that is imported",
            (f"def {what}(...): ...  # at top level, not under the guard", f"from helpers import {what}"),
        ),
    )


def daemonic(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Without a DataLoader in sight it is a pool in a pool."""
    if seen.has(r"torch/utils/data|DataLoader"):
        return verdict
    return with_message(
        verdict,
        "a pool or process was started in a daemonic process (in a process of another Pool, or in a worker)",
        Remediation(
            "Do the inner work without processes, or use an outer pool that is not daemonic",
            (
                "concurrent.futures.ProcessPoolExecutor(max_workers=4)",
                "multiprocessing.pool.ThreadPool(4)  # for the inner one",
            ),
        ),
    )


register(
    Cause(
        "WRK201",
        "unpicklable-local-function",
        "A lambda or a nested function was sent to a worker that starts by spawn or forkserver.",
        "spawn and forkserver pickle the DataLoader's arguments; a lambda or a nested function or class has no "
        "importable name. "
        "Each Python says it in other words. Python 3.14 made forkserver the default on Linux, so that code that "
        "always worked "
        "there must now pickle.",
        "{what} has no importable name, so spawn or forkserver cannot pickle it for the worker (Python 3.14 uses "
        "forkserver by "
        "default on Linux)",
        MODULE_LEVEL,
        (
            Signature(
                "Can't pickle local object",
                "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
                "AttributeError: Can't get attribute 'ImageDataset' on <module '__main__' (built-in)>",
                r"(?:AttributeError|PicklingError)[^\n]*Can't pickle local object '?<?(?:function |class "
                r")?'?(?P<what>[\w.<>]+)",
                source="python 3.8 to 3.12 (AttributeError), 3.14 (PicklingError), Lib/pickle.py and "
                "Modules/_pickle.c",
            ),
            Signature(
                "Can't get local ",
                "AttributeError: Can't get local object 'main.<locals>.<lambda>'",
                "AttributeError: Can't get attribute 'Net' on <module '__main__'>",
                r"Can't get local (?:object|attribute) '(?P<what>[^']+)'",
                source="python 3.13, Modules/_pickle.c",
            ),
            Signature(
                "Can't pickle",
                "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f0>: attribute lookup <lambda> on "
                "__main__ failed",
                "_pickle.PicklingError: Can't pickle <class 'x.Y'>: it's not the same object as x.Y",
                r"Can't pickle <function (?P<what>\S*<lambda>\S*|[\w.]*<locals>\S*) at 0x[0-9a-f]+>(?:: "
                r"(?:attribute lookup|it's not found|import of))?",
                source="python 3.8 to 3.14, Lib/pickle.py",
            ),
            Signature(
                "not found as",
                "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>: it's not found as "
                "__main__.<lambda>",
                "ModuleNotFoundError: not found as",
                r"Can't pickle <(?:function|class) '?(?P<what>[^ '>]+(?:<\w+>)?)'?[^\n]*: it's not found as "
                r"(?!__main__\.\w+$)[\w.<>]+",
                source="python 3.8 to 3.14, Lib/pickle.py",
            ),
            Signature(
                "Got pickle error when attempting to start a worker Process",
                "UserWarning: Got pickle error when attempting to start a worker Process. This might be because "
                "the worker Process "
                "arguments are not picklable. Python 3.14+ changed the multiprocessing start method in non-Mac "
                "POSIX platforms to "
                "'forkserver', which requires the worker Process arguments to be picklable.",
                "UserWarning: This DataLoader will create 8 worker processes in total.",
                r"(?P<what>)Got pickle error when attempting to start a worker Process",
                unless=(r"cannot be pickled", r"cannot pickle", r"Can't (?:pickle|get)"),
                source="torch 2.10 to 2.15, torch/utils/data/dataloader.py",
            ),
        ),
        explains=("WRK21", "WRK22", "SES"),
        decide='python -c "import pickle; pickle.dumps(loader.collate_fn)"',
        judge=nameless,
        references="https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods",
    ),
    Cause(
        "WRK202",
        "class-not-importable-in-worker",
        "A class or function of __main__ or a notebook is not there in the worker.",
        "spawn and forkserver start a fresh interpreter, whose __main__ is not yours: what a notebook cell, a REPL "
        "or python -c "
        "defined does not exist there.",
        "{what} is defined in __main__ (a notebook cell or an interactive session); the fresh __main__ of a "
        "spawned worker "
        "has no such name",
        Remediation(
            "Put the class in a .py file and import it, or use num_workers=0 in the notebook",
            ("from dataset import {what}", "DataLoader(..., num_workers=0)"),
        ),
        (
            Signature(
                "on __main__ failed",
                "_pickle.PicklingError: Can't pickle <class '__main__.Set'>: attribute lookup Set on __main__ failed",
                "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f0>: attribute lookup <lambda> on "
                "__main__ failed",
                r"attribute lookup (?P<what>(?!<)\w+) on __main__ failed",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "it's not found as __main__.",
                "_pickle.PicklingError: Can't pickle <function collate at 0x7f1>: it's not found as __main__.collate",
                "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f>: it's not found as "
                "__main__.<lambda>",
                r"it's not found as __main__\.(?P<what>\w+)$",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "on <module '__m",
                "AttributeError: Can't get attribute 'ImageDataset' on <module '__main__' (built-in)>",
                "AttributeError: Can't get attribute 'Foo' on <module 'models.old' from '/app/models/old.py'>",
                r"Can't get attribute '(?P<what>[^']+)' on <module '__(?:mp_)?main__'(?: from '(?P<file>[^']+)')?",
                source="python 3.8 to 3.14, Modules/_pickle.c",
            ),
            Signature(
                "has no attribute",
                "AttributeError: module '__main__' has no attribute 'ImageDataset'",
                "AttributeError: module 'torch' has no attribute 'compile'",
                r"module '__(?:mp_)?main__' has no attribute '(?P<what>\w+)'",
                source="python 3.14, Lib/pickle.py",
            ),
        ),
        judge=of_main,
        explains=("WRK21", "WRK22", "SES"),
        references="https://docs.python.org/3/library/multiprocessing.html#programming-guidelines",
    ),
    Cause(
        "WRK203",
        "unpicklable-object-in-dataset",
        "An object that cannot be pickled hangs off the data set or another argument of the workers.",
        "spawn and forkserver pickle the data set with all it holds. Open files, connections, locks and generators "
        "have no "
        "meaning in another process.",
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
        "WRK204",
        "class-redefined-after-pickle",
        "A class is not the same object as the one of its name: it was reloaded or decorated.",
        "pickle stores a class by its name and checks that the name still leads to the same object; a reloaded "
        "module "
        "(%autoreload, importlib.reload) or a decorator that returns another object breaks that.",
        "{what} is not the object that its name leads to: the module was reloaded, or a decorator replaced the name",
        Remediation(
            "Restart the interpreter or kernel, and keep the decorated object under another name than the original",
            (),
        ),
        (
            Signature(
                "it's not the same object as",
                "_pickle.PicklingError: Can't pickle <class 'data.Set'>: it's not the same object as data.Set",
                "they are not the same object",
                r"Can't pickle [^\n]*: it's not the same object as (?P<what>[\w.]+)",
                source="python 3.8 to 3.14, Lib/pickle.py",
            ),
        ),
        explains=("WRK21", "WRK22"),
    ),
    Cause(
        "WRK205",
        "no-main-guard",
        "The script starts workers at import: there is no if __name__ == '__main__' guard.",
        "A spawned or forkserver child imports the script; without the guard it starts training, and workers, again.",
        "the script starts processes while it is being imported by one: the if __name__ == '__main__' guard is "
        "missing",
        Remediation("Put what runs under if __name__ == '__main__':", ("if __name__ == '__main__':\n    main()",)),
        (
            Signature(
                "before the\n        current process has finished its bootstrapping phase",
                "RuntimeError: \n        An attempt has been made to start a new process before the\n        "
                "current process has finished its "
                "bootstrapping phase.",
                "bootstrapping phase finished",
                source="python 3.8 to 3.14, Lib/multiprocessing/spawn.py",
            ),
            Signature(
                "An attempt has been made to start a new process before the",
                "An attempt has been made to start a new process before the",
                "an attempt was made",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("WRK21", "WRK22"),
    ),
    Cause(
        "WRK213",
        "dataset-too-large-to-pickle",
        "The data set is too large to be sent to a worker.",
        "spawn and forkserver send the whole data set through a pipe; old pickle protocols stop at 2 or 4 GiB, "
        "deep structures at the limit of "
        "recursion.",
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
        "WRK214",
        "start-method-set-twice",
        "The start method was set after it had been used, or twice.",
        "set_start_method may be called once, before any process starts.",
        "the start method was set a second time, or after a process had been started",
        Remediation(
            "Set it once under the main guard, or use a context",
            (
                "ctx = torch.multiprocessing.get_context('spawn')",
                "torch.multiprocessing.set_start_method('spawn', force=True)",
            ),
        ),
        (
            Signature(
                "context has already been set",
                "RuntimeError: context has already been set",
                "context set",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "WRK215",
        "workers-in-daemonic-process",
        "A daemonic process may not start workers.",
        "Processes of multiprocessing.Pool, and workers themselves, are daemonic.",
        "a DataLoader with workers was used in a daemonic process (a Pool's, or another worker)",
        Remediation(
            "Use num_workers=0 there, or start that process with daemon=False", ("DataLoader(..., num_workers=0)",)
        ),
        (
            Signature(
                "daemonic processes are not allowed to have children",
                "AssertionError: daemonic processes are not allowed to have children",
                "daemonic process",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=daemonic,
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
    Cause(
        "WRK221",
        "spawn-child-echo",
        "A child of spawn read a cut pickle: its parent failed while sending.",
        "The child's EOFError or UnpicklingError is an echo of the parent's error, which stands in the other "
        "traceback.",
        "a spawned child found its pickle cut short: the parent process failed while it sent the worker's arguments",
        Remediation("Read the parent's traceback above this one: it names what could not be pickled", ()),
        (
            Signature(
                "EOFError: Ran out of input",
                '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main\nEOFError: Ran out '
                "of input",
                "EOFError: Ran out of input\n  in torch.load",
                r"(?:multiprocessing|reduction\.pickle\.load|spawn_main|popen_)[^\n]*\n(?:.*\n){0,12}?EOFError: "
                r"Ran out of input",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "pickle data was truncated",
                '  File "multiprocessing/spawn.py", line 120, in spawn_main\n_pickle.UnpicklingError: pickle data '
                "was truncated",
                "data was truncated",
                also=(r"spawn_main|multiprocessing|Can't pickle|cannot pickle",),
                source="python 3.8 to 3.14",
            ),
        ),
        kind=ECHO,
    ),
)

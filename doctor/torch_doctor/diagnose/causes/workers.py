"""DataLoader workers: what cannot be pickled, what cannot be imported, and workers that are gone."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

MODULE_LEVEL = Remediation(
    "Move the function to module level and name it, or use functools.partial of a module-level function; it is the "
    "collate_fn, worker_init_fn, sampler or transform of the DataLoader that crosses to the workers",
    ("def collate(batch): ...  # at module level", "DataLoader(..., collate_fn=collate)"),
)
OPEN_LATE = "Open it lazily, on the first __getitem__ in each worker (keep the path in __init__, None for the handle)"

#: type named in "cannot pickle 'X' object" -> (what it is, what to do)
UNPICKLABLE = (
    (
        r"_io\.TextIOWrapper",
        "an open text file",
        "read the list into memory in __init__ and close the file, or open it in each worker",
    ),
    (
        r"_io\.Buffered\w+|_io\.FileIO|BufferedReader",
        "an open binary file (also behind np.load of an .npz archive)",
        "load the arrays and close it, or open it lazily in each worker",
    ),
    (
        r"torch\._C\.Generator",
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
        r"_thread\.\w+|_?thread\.\w*lock\w*|RLock",
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
    (r"_?(?:asyncio|ssl|socket)\.\w+|socket", "a socket or connection", "connect lazily, once in each worker"),
    (
        r"_queue\.SimpleQueue|queue\.\w+",
        "a thread queue",
        "use torch.multiprocessing.Queue, or make it in each worker",
    ),
    (
        r"\w*(?:VideoCapture|VideoReader|Container|InputContainer)\w*",
        "an open video",
        "open the video lazily in each worker",
    ),
    (r"mmap\.mmap", "a memory map", "map the file lazily in each worker"),
    (
        r"(?:\w+\.)*(?:CudaStream|Stream|Event)",
        "a CUDA stream or event",
        "create CUDA objects in the main process only",
    ),
    (r"dict_(?:keys|values|items)", "a view of a dict", "keep list(d.keys()) in place of the view"),
    (r"re\.Match|_sre\.\w+", "a match object", "keep the strings it holds"),
)


def unpicklable(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Name the object, and the remedy that fits its kind."""
    kind = seen.groups.get("kind", "")
    for pattern, what, todo in UNPICKLABLE:
        if re.fullmatch(pattern, kind):
            return with_message(
                verdict,
                f"{what} ({kind}) hangs off the data set, sampler or another argument of the workers, and cannot "
                "be pickled "
                "for spawn or forkserver",
                Remediation(todo[0].upper() + todo[1:], verdict.remedy.commands),
                type=kind,
            )
    return verdict


def exited(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A worker that is gone while the run's cgroup counted a kill was the OOM killer's."""
    kills = seen.oom_kills or 0
    if kills > 0:
        return with_message(
            verdict,
            f"DataLoader workers ({seen.groups.get('pid', '?')}) were killed by the OOM killer: the memory cgroup "
            f"counted {kills} kills during the run",
            Remediation(
                "Raise the memory limit, use fewer workers or a smaller prefetch_factor",
                ("docker run --memory=32g ...",),
            ),
            oom_kills=kills,
        )
    return verdict


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
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.removeprefix("? ")
            if seen.groups.get("what")
            else f"an argument of the worker{verdict.message}",
        ),
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
                "on <module '__m",
                "AttributeError: Can't get attribute 'ImageDataset' on <module '__main__' (built-in)>",
                "AttributeError: Can't get attribute 'Foo' on <module 'models.old' from '/app/models/old.py'>",
                r"Can't get attribute '(?P<what>[^']+)' on <module '__(?:mp_)?main__'",
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
                r"Can't pickle <class '(?P<kind>(?:module|generator|_thread\.\w+|weakref\w*))'>",
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
        "WRK206",
        "cuda-in-forked-worker",
        "A forked process used CUDA, which the parent had initialised.",
        "A CUDA context does not survive a fork. A __getitem__, collate_fn or worker_init_fn that touches the GPU "
        "fails in a "
        "forked worker.",
        "CUDA was used in a forked process (a worker's __getitem__, collate_fn or transform touches the GPU) after "
        "the parent "
        "had initialised it",
        Remediation(
            "Keep the data on the CPU in the workers and move the batch in the training loop (pin_memory=True, "
            "non_blocking=True), or start the workers with spawn",
            ("DataLoader(..., multiprocessing_context='spawn')",),
        ),
        (
            Signature(
                "Cannot re-initialize CUDA in forked subprocess",
                "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
                "you must use the "
                "'spawn' start method",
                "CUDA initialized in subprocess",
                source="torch 1.0 to 2.15, torch/cuda/__init__.py",
            ),
            Signature(
                "initialization error",
                "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nRuntimeError: CUDA error: "
                "initialization error",
                "cuDNN initialization error",
                r"CUDA error(?: \(3\))?: initialization error",
                source="torch 1.0 to 2.15",
            ),
        ),
        explains=("WRK21", "WRK22", "GPU2"),
    ),
    Cause(
        "WRK207",
        "workers-disabled-by-start-method",
        "Workers were switched off because the start method is not fork any more.",
        "Code that takes the start method for the operating system sees forkserver on Linux from Python 3.14 on, "
        "and sets "
        "num_workers to 0: nothing fails, and epochs take several times longer. An explicit number is refused with "
        "a text about "
        "macOS and Windows.",
        "num_workers became 0: the code tests for the fork start method, and Python 3.14's default on Linux is "
        "forkserver, so "
        "the workers are disabled without an error",
        Remediation(
            "Test sys.platform in place of the start method, and pass a fork context to the loader explicitly",
            (
                "DataLoader(..., num_workers=8, multiprocessing_context='fork')",
                "multiprocessing.set_start_method('fork')",
            ),
        ),
        (
            Signature(
                "num_workers",
                "(no error) num_workers resolved to 0; GPU utilisation drops, epochs take several times longer",
                "DataLoader(num_workers=0)",
                r"num_workers[^\n]{0,40}\b(?:resolved|set|forced|reset|fall\w*(?: "
                r"back)?|defaulted|reduced|disabled|changed)\b[^\n]{0,12}\b(?:to |= ?)0\b",
                source="metatensor/metatrain#1243",
            ),
            Signature(
                "num_workers",
                "ValueError: num_workers > 0 is not supported on macOS or Windows",
                "num_workers > 0 is recommended",
                r"num_workers[^\n]{0,40}(?:not supported|must be 0|cannot be "
                r"used|requires)[^\n]{0,60}(?:macOS|Windows|fork)",
                also=(r"forkserver|[Pp]ython ?3\.1[4-9]|macOS or Windows",),
                source="metatensor/metatrain#1243",
            ),
        ),
        decide='python -c "import multiprocessing as m; print(m.get_start_method())"',
        references="https://github.com/metatensor/metatrain/pull/1243",
    ),
    Cause(
        "WRK208",
        "worker-timed-out",
        "A DataLoader worker gave no batch within its timeout.",
        "A worker hangs (a lock inherited over the fork, a network file system, a deadlocked library) or one "
        "sample takes longer "
        "than the timeout.",
        "no batch came from the DataLoader within {seconds} s: a worker hangs on a lock that was held over the "
        "fork or on its "
        "storage, or a sample takes longer than that",
        Remediation(
            "See where the worker stands, then fix that; raise timeout= only if a sample really needs longer",
            ("py-spy dump --pid WORKER", "DataLoader(..., num_workers=0)"),
        ),
        (
            Signature(
                "DataLoader timed out after",
                "RuntimeError: DataLoader timed out after 60 seconds",
                "RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed.",
                r"DataLoader timed out after (?P<seconds>[\d.]+) seconds",
                source="torch 0.4 to 2.15, torch/utils/data/dataloader.py",
            ),
        ),
        decide="py-spy dump --pid WORKER",
    ),
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
    ),
    Cause(
        "WRK210",
        "none-in-batch",
        "A sample is None, or of a type that default_collate does not know.",
        "A __getitem__ that returns None for a broken file reaches default_collate.",
        "default_collate got {what}: a sample holds None, or an object that is no tensor, number, string, dict or "
        "list",
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
        ),
    ),
    Cause(
        "WRK211",
        "workers-gone",
        "DataLoader workers ended, and no exception of theirs reached the parent.",
        "This line is an echo: the workers were killed, crashed in native code, or called exit. The cause is "
        "earlier in the log, "
        "in dmesg, or shows with num_workers=0.",
        "DataLoader workers {pid} ended without a Python exception that reached the parent: killed (OOM killer, a "
        "full "
        "/dev/shm), crashed in native code, or ended by exit; this line alone does not tell which",
        Remediation(
            "Run once with num_workers=0 to see the real error, look for a kill in dmesg, and at the free space of "
            "/dev/shm",
            ("DataLoader(..., num_workers=0)", "dmesg -T | grep -i -E 'oom-kill|killed process'", "df -h /dev/shm"),
        ),
        (
            Signature(
                "exited unexpectedly",
                "RuntimeError: DataLoader worker (pid(s) 4141, 4142) exited unexpectedly",
                "A compilation subprocess exited unexpectedly",
                r"DataLoader worker \(pid\(?s?\)?:? (?P<pid>[\d, ]+)\) exited unexpectedly(?! with)",
                source="torch 1.0 to 2.15, torch/utils/data/dataloader.py",
            ),
            Signature(
                "exited unexpectedly with exit code",
                "RuntimeError: DataLoader worker (pid 77) exited unexpectedly with exit code 1. Details are lost "
                "due to "
                "multiprocessing. Rerunning with num_workers=0 may give better error trace.",
                "Process exited unexpectedly",
                r"DataLoader worker \(pid\(?s?\)?:? (?P<pid>[\d, ]+)\) exited unexpectedly with exit code "
                r"(?P<code>\d+)",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
        ),
        kind=VAGUE,
        judge=exited,
        decide="DataLoader(..., num_workers=0)",
    ),
    Cause(
        "WRK212",
        "fork-of-threaded-process",
        "A process with threads was forked, and a worker hangs.",
        "The child inherits locks in their locked state (OpenCV, OpenMP, tokenizers, a logger) whose owner, a "
        "thread, does not exist there.",
        "a process with threads was forked, and a worker hangs on a lock that a thread of the parent held (OpenCV, "
        "OpenMP, a logging or tracking thread)",
        Remediation(
            "Start the workers with forkserver or spawn, start them before any thread, and switch the libraries' "
            "own threads off",
            (
                "DataLoader(..., multiprocessing_context='forkserver')",
                "cv2.setNumThreads(0)",
                "export OMP_NUM_THREADS=1",
                "py-spy dump --pid WORKER",
            ),
        ),
        (
            Signature(
                "use of fork() may lead to deadlocks in the child",
                "DeprecationWarning: This process (pid=51457) is multi-threaded, use of fork() may lead to "
                "deadlocks in the child.\n(hangs at the first batch)",
                "DeprecationWarning: This process (pid=51457) is multi-threaded, use of fork() may lead to "
                "deadlocks in the child.",
                also=(r"(?i)\b(?:hang|hangs|hung|stuck|deadlock(?!s)|timed out|no progress|futex)",),
                source="python 3.12 to 3.14",
            ),
        ),
        kind=VAGUE,
        decide="py-spy dump --pid WORKER",
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
    Cause(
        "WRK222",
        "broken-pipe-echo",
        "A process wrote to a worker, or a parent, that was gone.",
        "BrokenPipeError, ConnectionResetError and ConnectionRefusedError in multiprocessing are echoes of another "
        "process's end.",
        "a process wrote to another one that had ended already",
        Remediation(
            "Look for the process that ended first, above in the log or in its own log", ("dmesg -T | tail",)
        ),
        (
            Signature(
                "Connection reset by peer",
                '  File "multiprocessing/connection.py", line 399, in _recv\nConnectionResetError: [Errno 104] '
                "Connection reset by peer",
                "NCCL WARN Connection reset",
                r"ConnectionResetError: \[Errno 104\] Connection reset by peer",
                also=(r"multiprocessing|DataLoader|resource_sharer|rebuild_storage_fd",),
                source="python 3.8 to 3.14",
            ),
            Signature(
                "BrokenPipeError",
                "BrokenPipeError: [Errno 32] Broken pipe",
                "SIGPIPE",
                r"BrokenPipeError: \[Errno 32\] Broken pipe",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "Pin memory thread exited unexpectedly",
                "RuntimeError: Pin memory thread exited unexpectedly",
                "Pin memory thread started",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "resource_sharer",
                '    return detach\n  File "multiprocessing/resource_sharer.py", line 57, in '
                "detach\nFileNotFoundError: [Errno 2] No such file or directory",
                "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
                r"resource_sharer[^\n]*\n(?:.*\n){0,16}?(?:FileNotFoundError: \[Errno 2\] No such file or "
                r"directory|ConnectionRefusedError[^\n]*)$",
                source="python 3.8 to 3.14",
            ),
        ),
        kind=ECHO,
    ),
)

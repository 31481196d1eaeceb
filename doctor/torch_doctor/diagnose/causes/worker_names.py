"""Functions and classes that a worker looks up by name and does not find."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

MODULE_LEVEL = Remediation(
    "Move the function to module level and name it, or use functools.partial of a module-level function; it is the "
    "collate_fn, worker_init_fn, sampler or transform of the DataLoader that crosses to the workers",
    ("def collate(batch): ...  # at module level", "DataLoader(..., collate_fn=collate)"),
)


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
            (f"def {what}(*args): ...  # at top level, not under the guard", f"from helpers import {what}"),
        ),
    )


register(
    Cause(
        "WRK201",
        "unpicklable-local-function",
        "A lambda or a nested function was sent to a worker that starts by spawn or forkserver.",
        "spawn and forkserver pickle the DataLoader's arguments; a lambda or a nested function or class has no "
        "importable name. Each Python says it in other words. Python 3.14 made forkserver the default on Linux, so "
        "that code that always worked there must now pickle.",
        "{what} has no importable name, so spawn or forkserver cannot pickle it for the worker (Python 3.14 uses "
        "forkserver by default on Linux)",
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
                "UserWarning: Got pickle error when attempting to start a worker Process. This might be because the "
                "worker Process arguments are not picklable. Python 3.14+ changed the multiprocessing start method "
                "in non-Mac POSIX platforms to 'forkserver', which requires the worker Process arguments to be "
                "picklable.",
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
        "or python -c defined does not exist there.",
        "{what} is defined in __main__ (a notebook cell or an interactive session); the fresh __main__ of a spawned "
        "worker has no such name",
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
        "WRK204",
        "class-redefined-after-pickle",
        "A class is not the same object as the one of its name: it was reloaded or decorated.",
        "pickle stores a class by its name and checks that the name still leads to the same object; a reloaded "
        "module (%autoreload, importlib.reload) or a decorator that returns another object breaks that.",
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
)

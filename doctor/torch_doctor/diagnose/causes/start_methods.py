"""How worker processes are started: the main guard, the start method, daemons."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


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

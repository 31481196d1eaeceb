"""DataLoader workers that fail, hang or are gone."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def exited(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A worker that is gone while the run's cgroup counted a kill was the OOM killer's."""
    kills = seen.oom_kills or 0
    code = seen.groups.get("code", "")
    if code and 0 < int(code) < 128 and not kills:
        return with_message(
            verdict,
            f"a DataLoader worker ({seen.groups['pid']}) ended itself with exit status {code}: code in the worker, or a library "
            "that gave up, called exit, so that no exception reached the parent",
            Remediation(
                "Run once with num_workers=0 to see what it printed, and look for exit in the data set and its libraries",
                ("DataLoader(..., num_workers=0)", "grep -rn -E 'sys.exit|os._exit|[^_]exit\\(' DATASET.py"),
            ),
        )
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


def forked(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Lightning refuses before the fork; there is no worker yet."""
    if "create new processes" not in seen.log.lines[seen.index].text:
        return verdict
    return with_message(
        verdict,
        "CUDA was used before a strategy that forks (ddp_notebook, ddp_fork) made its processes",
        Remediation(
            "Touch no GPU before trainer.fit (no .cuda(), no torch.cuda calls but is_available and device_count); restart the "
            "notebook's kernel, or take a strategy that spawns",
            ("trainer = Trainer(strategy='ddp_spawn', devices=2)", "torchrun --nproc-per-node=2 train.py"),
        ),
    )


register(
    Cause(
        "WRK206",
        "cuda-in-forked-worker",
        "A forked process used CUDA, which the parent had initialised.",
        "A CUDA context does not survive a fork. A __getitem__, collate_fn or worker_init_fn that touches the GPU "
        "fails in a forked worker.",
        "CUDA was used in a forked process (a worker's __getitem__, collate_fn or transform touches the GPU) after "
        "the parent had initialised it",
        Remediation(
            "Keep the data on the CPU in the workers and move the batch in the training loop (pin_memory=True, "
            "non_blocking=True), or start the workers with spawn",
            ("DataLoader(..., multiprocessing_context='spawn')",),
        ),
        (
            Signature(
                "Cannot re-initialize CUDA in forked subprocess",
                "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
                "you must use the 'spawn' start method",
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
            Signature(
                "create new processes if CUDA is already initialized",
                "RuntimeError: Lightning can't create new processes if CUDA is already initialized. Did you manually call "
                "`torch.cuda.*` functions",
                "CUDA is already initialized",
                source="Lightning 1.6 to 2.6: strategies that fork, as in notebooks",
            ),
            Signature(
                "cuda runtime error (3)",
                "RuntimeError: cuda runtime error (3) : initialization error at /pytorch/aten/src/THC/THCGeneral.cpp:50",
                "cuda runtime error (2) : out of memory",
                r"cuda runtime error \(3\) : initialization error",
                source="torch 0.3 to 1.4",
            ),
        ),
        judge=forked,
        explains=("WRK21", "WRK22", "GPU2"),
    ),
    Cause(
        "WRK207",
        "workers-disabled-by-start-method",
        "Workers were switched off because the start method is not fork any more.",
        "Code that takes the start method for the operating system sees forkserver on Linux from Python 3.14 on, "
        "and sets num_workers to 0: nothing fails, and epochs take several times longer. An explicit number is "
        "refused with a text about macOS and Windows.",
        "num_workers became 0: the code tests for the fork start method, and Python 3.14's default on Linux is "
        "forkserver, so the workers are disabled without an error",
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
        "A worker hangs (a lock inherited over the fork, a network file system, a deadlocked library) or one sample "
        "takes longer than the timeout.",
        "no batch came from the DataLoader within {seconds} s: a worker hangs on a lock that was held over the fork "
        "or on its storage, or a sample takes longer than that",
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
        "WRK211",
        "workers-gone",
        "DataLoader workers ended, and no exception of theirs reached the parent.",
        "This line is an echo: the workers were killed, crashed in native code, or called exit. The cause is "
        "earlier in the log, in dmesg, or shows with num_workers=0.",
        "DataLoader workers {pid} ended without a Python exception that reached the parent: killed (OOM killer, a "
        "full /dev/shm), crashed in native code, or ended by exit; this line alone does not tell which",
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
                "due to multiprocessing. Rerunning with num_workers=0 may give better error trace.",
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
        "WRK231",
        "worker-stopped-by-sigterm",
        "A DataLoader worker got SIGTERM: the run was being stopped.",
        "A launcher, scheduler or docker stop sends SIGTERM to all processes of the group; the worker's end is only "
        "the first to be seen.",
        "a DataLoader worker got SIGTERM (Terminated): the run was stopped from outside, and this line is only where "
        "it was noticed",
        Remediation(
            "Look at who stopped it: the scheduler, docker stop, or the launcher after another rank failed",
            ("sacct -j JOBID -o State,ExitCode,End", "docker events --since 1h --filter event=kill"),
        ),
        (
            Signature(
                "is killed by signal: Terminated",
                "RuntimeError: DataLoader worker (pid 4018) is killed by signal: Terminated. ",
                "RuntimeError: DataLoader worker (pid 4018) is killed by signal: Killed. ",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
        ),
        kind=ECHO,
        explains=("WRK211", "WRK222"),
    ),
    Cause(
        "WRK236",
        "pool-process-gone",
        "A process of a pool (joblib, concurrent.futures, datasets.map) ended without an exception.",
        "The OOM killer or a native crash ended it; the text leaves both open. A main guard that is missing does it, too.",
        "a process of a pool ended without an exception: killed by the OOM killer, crashed in native code, or never started (no main guard); this line alone does not tell which",
        Remediation(
            "Look for a kill in the kernel's log, use fewer processes, and run once without the pool",
            (
                "dmesg -T | grep -i -E 'oom-kill|killed process'",
                "n_jobs=1  # or ProcessPoolExecutor(max_workers=2), dataset.map(..., num_proc=1)",
                "PYTHONFAULTHANDLER=1 python train.py",
            ),
        ),
        (
            Signature(
                "TerminatedWorkerError",
                "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated.",
                "worker terminated",
                r"TerminatedWorkerError: ",
                source="joblib 0.12 to 1.5",
            ),
            Signature(
                "abruptly died during map operation",
                "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable "
                "multiprocessing.",
                "a subprocess of the map operation",
                r"One of the subprocesses has abruptly died during map operation",
                source="datasets 2.x to 4.x: num_proc",
            ),
            Signature(
                "BrokenProcessPool",
                "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
                "process pool started",
                r"BrokenProcessPool: ",
                source="python 3.8 to 3.14",
            ),
        ),
        kind=VAGUE,
        decide="dmesg -T | grep -i -E 'oom-kill|killed process'",
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
            Signature(
                "(cv2)",
                'Thread 4412 (idle): "MainThread"\n    resize (cv2)\n    __getitem__ (data.py:33)\n    _worker_loop '
                "(torch/utils/data/_utils/worker.py:309)",
                '  File "data.py", line 33, in __getitem__ (cv2)\ncv2.error: resize',
                r"^Thread [^\n]*\n(?:.*\n){0,6}?[^\n]*\(cv2\)(?:.*\n){1,12}?[^\n]*_worker_loop",
                source="py-spy of OpenCV 4 in a forked worker",
            ),
        ),
        kind=VAGUE,
        explains=("SES212", "WRK208"),
        decide="py-spy dump --pid WORKER",
    ),
    Cause(
        "WRK237",
        "fork-server-gone",
        "The fork server of multiprocessing does not answer.",
        "With forkserver, the default on Linux from Python 3.14 on, one server process forks all workers. It may have been "
        "killed, have failed while it imported the main module, or its socket in the temporary folder was deleted.",
        "the fork server of multiprocessing does not answer: it was killed, failed while importing the script, or its socket "
        "in the temporary folder was deleted",
        Remediation(
            "Read the first traceback above; look for a kill; keep cleaners off the temporary folder; or start workers by "
            "another method",
            (
                "dmesg -T | grep -i -E 'oom-kill|killed process'",
                "ls -ld ${TMPDIR:-/tmp}/pymp-*",
                "DataLoader(..., multiprocessing_context='spawn')",
            ),
        ),
        (
            Signature(
                "forkserver.py",
                '  File "/usr/lib/python3.14/multiprocessing/forkserver.py", line 91, in connect_to_new_process\n    '
                "client.connect(self._forkserver_address)\nConnectionRefusedError: [Errno 111] Connection refused",
                '  File "/usr/lib/python3.14/multiprocessing/forkserver.py", line 91, in connect_to_new_process\nKeyboardInterrupt',
                r"multiprocessing/forkserver\.py\"[^\n]*(?:connect_to_new_process|read_signed|ensure_running)[^\n]*\n(?:.*\n){0,6}?"
                r"(?:ConnectionRefusedError|ConnectionResetError|FileNotFoundError: \[Errno 2\]|EOFError|BrokenPipeError)[^\n]*",
                source="python 3.8 to 3.14, multiprocessing/forkserver.py",
            ),
        ),
        kind=VAGUE,
        explains=("WRK222",),
        decide="dmesg -T | tail",
    ),
    Cause(
        "WRK238",
        "worker-killed-by-other-signal",
        "A DataLoader worker died of a native fault.",
        "An integer division by zero, an abort or an illegal instruction ends the worker without a Python exception.",
        "a DataLoader worker ({pid}) died of a native fault ({what}) in a C or C++ library that the data set uses; the log does not name it",
        Remediation(
            "Run once in the main process under faulthandler to get the Python line, and look at what decodes or transforms there",
            (
                "PYTHONFAULTHANDLER=1 python train.py  # with num_workers=0",
                "gdb -batch -ex run -ex bt --args python train.py",
            ),
        ),
        (
            Signature(
                "is killed by signal: ",
                "RuntimeError: DataLoader worker (pid 77) is killed by signal: Floating point exception. ",
                "RuntimeError: DataLoader worker (pid 325) is killed by signal: Killed.",
                r"DataLoader worker \(pid\(?s?\)?:? (?P<pid>[\d, ]+)\) is killed by signal: (?P<what>Floating point exception|Illegal instruction|Aborted|Bad system call)",
                source="torch 0.4 to 2.15, torch/csrc/DataLoader.cpp",
            ),
        ),
        kind=VAGUE,
        explains=("WRK211", "WRK222"),
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
            Signature(
                "ConnectionRefusedError",
                "    fd = df.detach()\nConnectionRefusedError: [Errno 111] Connection refused",
                "ConnectionRefusedError: [Errno 111] Connection refused",
                r"(?:rebuild_storage_fd|df\.detach\(\)|resource_sharer)[^\n]*\n(?:.*\n){0,12}?ConnectionRefusedError",
                source="torch 1.0 to 2.15, torch/multiprocessing/reductions.py",
            ),
        ),
        kind=ECHO,
    ),
)

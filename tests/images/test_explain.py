"""Failures that are made to happen in containers of each variant, and explained from what they really print."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import containers

from torch_doctor import postmortem
from torch_doctor.facts.request import Request
from torch_doctor.model import Outcome

_LOADER = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Set(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            {item}

    def main():
        for step, batch in enumerate(DataLoader(Set(), batch_size=8, num_workers=2{options})):
            print("step", step, "loss", 2.0 - step / 10, flush=True)

    if __name__ == "__main__":
        main()
"""
_TRAIN = """
    import torch
    model = torch.nn.Linear(4, 2)
    x = torch.randn(8, 4)
    print("step 0 loss 2.1", flush=True)
"""


@dataclass(frozen=True)
class Failure:
    """A script, how it is started, and the cause that must come first.

    Attributes:
        ids: the causes that are right; one of them comes first.
        says: words of its message or remedy.
        command: what is run; {python} stands for the interpreter with the script.
    """

    name: str
    ids: str
    script: str
    says: str = ""
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ("python", "/code/train.py")


def loader(item: str, options: str = "") -> str:
    return _LOADER.format(item=item, options=options)


def train(*lines: str) -> str:
    return textwrap.dedent(_TRAIN) + "\n".join(lines) + "\n"


FAILURES = (
    Failure(
        "shm is full",
        "SHM202 SHM201",
        loader("return torch.zeros(3, 512, 512)"),
        "--shm-size",
        ("--shm-size=4m", "--env=TORCH_DOCTOR_SHM=off"),
    ),
    Failure(
        "a lambda under spawn",
        "WRK201",
        loader("return torch.zeros(3)", ", collate_fn=lambda b: b, multiprocessing_context='spawn'"),
        "module level",
    ),
    Failure(
        "a lambda under forkserver",
        "WRK201",
        loader("return torch.zeros(3)", ", collate_fn=lambda b: b, multiprocessing_context='forkserver'"),
        "functools.partial",
    ),
    Failure(
        "an open file under spawn",
        "WRK203",
        loader("return torch.zeros(3)", ", multiprocessing_context='spawn'").replace(
            "    def __len__",
            "    def __init__(self):\n            self.f = open('/etc/passwd')\n\n        def __len__",
        ),
        "text file",
    ),
    Failure(
        "a worker that is killed",
        "MEM203",
        loader("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        "memory limit",
    ),
    Failure(
        "the OOM killer",
        "MEM203 MEM206 SES203",
        loader("self.kept = getattr(self, 'kept', []) + [torch.ones(16 << 20)]; return torch.zeros(3)"),
        "OOM killer",
        ("--memory=1500m", "--memory-swap=1500m"),
    ),
    Failure("a worker that crashes", "SES211", loader("import ctypes; ctypes.string_at(0)"), "native crash"),
    Failure("a worker that exits", "WRK211", loader("import os; os._exit(3)"), "num_workers=0"),
    Failure("samples of unequal size", "WRK209", loader("return torch.zeros(3 + i)"), "default_collate"),
    Failure(
        "an HDF5 file that is open elsewhere",
        "HDF203",
        """
    import h5py, subprocess, sys
    f = h5py.File('/tmp/x.h5', 'w')
    f['a'] = 1
    f.flush()
    sys.exit(subprocess.call([sys.executable, '-c', "import h5py; h5py.File('/tmp/x.h5', 'a')"]))
""",
        "another process",
    ),
    Failure(
        "an HDF5 handle under spawn",
        "HDF206",
        loader("return torch.zeros(3)", ", multiprocessing_context='spawn'").replace(
            "    def __len__",
            "    def __init__(self):\n            import h5py\n            self.f = h5py.File('/tmp/x.h5', "
            "'w')\n\n        def __len__",
        ),
        "__getitem__",
    ),
    Failure(
        "no compiler",
        "CMP201",
        "import os\nos.environ['CXX'] = 'no-such-g++'\n"
        + train("print(torch.compile(lambda t: t.sin() + t.cos())(x))"),
        "gcc",
    ),
    Failure(
        "a cache on noexec",
        "CMP204",
        "import os\nos.environ['TORCHINDUCTOR_CACHE_DIR'] = '/noexec'\n"
        + train("print(torch.compile(lambda t: t.sin() + t.cos())(x))"),
        "noexec",
        ("--tmpfs=/noexec:mode=1777",),
    ),
    Failure(
        "a uid without a name",
        "FS201",
        """
    import getpass, os
    for key in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        os.environ.pop(key, None)
    print(getpass.getuser())
""",
        "passwd",
        (
            "--user=4242:4242",
            "--entrypoint=/opt/venv/bin/python",
            "--volume={code}/nsswitch.conf:/etc/nsswitch.conf:ro",
        ),
        ("/code/train.py",),
    ),
    Failure("tensors on two devices", "DEV201", train("model.to('meta')(x)"), "x.device"),
    Failure(
        "backward twice", "GRD201", train("y = model(x).square().sum()", "y.backward()", "y.backward()"), "detach"
    ),
    Failure("in place", "GRD202", train("y = model(x).exp()", "y += 1", "y.sum().backward()"), "set_detect_anomaly"),
    Failure(
        "no graph", "GRD203", train("with torch.no_grad():", "    y = model(x).sum()", "y.backward()"), "no_grad"
    ),
    Failure("shapes", "LOS202", train("model(torch.zeros(2, 3))"), "2x3 and 4x2"),
    Failure("data types", "AMP201", train("model(x.double())"), "float()"),
    Failure(
        "a label out of range",
        "GPU221",
        train("torch.nn.functional.cross_entropy(model(x), torch.full((8,), 7))"),
        "label 7",
    ),
    Failure(
        "a prefix",
        "CKP201",
        train(
            "torch.nn.Sequential(torch.nn.Linear(4, 2))",
            "model.load_state_dict(torch.nn.DataParallel(model).state_dict())",
        ),
        "module.",
    ),
    Failure(
        "a compiled model's prefix",
        "CKP201",
        train("model.load_state_dict(torch.compile(model).state_dict())"),
        "_orig_mod.",
    ),
    Failure(
        "another number of classes",
        "CKP209",
        train("model.load_state_dict(torch.nn.Linear(4, 3).state_dict())"),
        "number of classes",
    ),
    Failure(
        "a truncated checkpoint",
        "CKP205",
        train(
            "torch.save(model.state_dict(), '/tmp/a.pt')",
            "data = open('/tmp/a.pt', 'rb').read()",
            "open('/tmp/a.pt', 'wb').write(data[: len(data) // 2])",
            "torch.load('/tmp/a.pt')",
        ),
        "cut short",
    ),
    Failure(
        "an empty checkpoint",
        "CKP205",
        train("open('/tmp/a.pt', 'wb').close()", "torch.load('/tmp/a.pt')"),
        "is empty",
    ),
    Failure(
        "a Git LFS pointer",
        "CKP203",
        train(
            "open('/tmp/a.pt', 'w').write('version https://git-lfs.github.com/spec/v1\\noid sha256:0\\nsize 1\\n')",
            "torch.load('/tmp/a.pt', weights_only=False)",
        ),
        "git lfs pull",
    ),
    Failure(
        "a pickled module",
        "CKP208",
        train("torch.save(model, '/tmp/a.pt')", "torch.load('/tmp/a.pt')"),
        "weights_only",
    ),
    Failure(
        "a full disk",
        "CKP206 FS206",
        train("torch.save(torch.zeros(1 << 20), '/small/a.pt')"),
        "space",
        ("--tmpfs=/small:size=1m,mode=1777",),
    ),
    Failure(
        "a read-only root",
        "FS204",
        train("open('/nonexistent', 'w')"),
        "read-only",
        ("--read-only", "--tmpfs=/tmp:exec", "--user=0"),
    ),
    Failure("another user's folder", "FS202", train("open('/etc/logs.txt', 'w')"), "--user"),
    Failure(
        "no temporary folder",
        "FS205",
        "import tempfile\nprint(tempfile.gettempdir())\n",
        "/tmp:exec",
        ("--read-only", "--entrypoint=/opt/venv/bin/python", "--env=TMPDIR=", "--workdir=/"),
        ("/code/train.py",),
    ),
    Failure(
        "too many open files",
        "FS207",
        train("kept = [open('/etc/passwd') for _ in range(500)]"),
        "ulimit",
        ("--ulimit=nofile=256:256",),
    ),
    Failure(
        "a port that is taken",
        "DST201",
        """
    import socket, torch.distributed as dist
    s = socket.socket(); s.bind(('127.0.0.1', 29517)); s.listen()
    dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29517', rank=0, world_size=1)
""",
        "29517",
    ),
    Failure(
        "a rank that never comes",
        "DST202",
        """
    import datetime, torch.distributed as dist
    dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29518', rank=0, world_size=2,
                            timeout=datetime.timedelta(seconds=3))
""",
        "WORLD_SIZE",
    ),
    Failure(
        "a rank that is killed under torchrun",
        "MEM206",
        """
    import os, signal
    if os.environ['RANK'] == '1':
        os.kill(os.getpid(), signal.SIGKILL)
""",
        "OOM killer",
        command=("torchrun", "--standalone", "--nproc-per-node=2", "/code/train.py"),
    ),
    Failure(
        "one rank's error under torchrun",
        "DEV201",
        """
    import os, signal, torch
    if os.environ['RANK'] == '1':
        torch.nn.Linear(2, 2).to('meta')(torch.ones(1, 2))
    signal.pause()
""",
        "x.device",
        command=("torchrun", "--standalone", "--nproc-per-node=2", "/code/train.py"),
    ),
    Failure(
        "a value-dependent branch with fullgraph",
        "CMP211",
        train(
            "def f(x):",
            "    if x.sum() > 0:",
            "        return x + 1",
            "    return x - 1",
            "torch.compile(f, fullgraph=True, backend='eager')(x)",
        ),
        "torch.where",
    ),
    Failure(
        "too many recompilations with fullgraph",
        "CMP210 CMP209",
        train(
            "def f(x, n):",
            "    return x * n",
            "g = torch.compile(f, fullgraph=True, backend='eager', dynamic=False)",
            "for n in range(2, 40):",
            "    g(torch.zeros(n), 2)",
        ),
        "dynamic|force_parameter_static_shapes|limit",
    ),
    Failure("no CUDA in this build, or no GPU", "GPU212 GPU213", train("x.cuda()"), "CUDA"),
    Failure("a module that is not installed", "PKG206", "import a_module_that_is_not_there\n", "pip install"),
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    return folder


def log_of(image: str, code: Path, failure: Failure, options: Sequence[str] = ()) -> str:
    (code / "train.py").write_text(textwrap.dedent(failure.script))
    (code / "nsswitch.conf").write_text("passwd: files\n")  # the image's own names every uid
    theirs = [option.replace("{code}", str(code)) for option in failure.options]
    ours = ("--shm-size=1g",) if not any(o.startswith("--shm-size") for o in failure.options) else ()
    done = containers.run(
        image,
        *failure.command,
        options=("--env=TORCH_DOCTOR_PREFLIGHT=off", f"--volume={code}:/code:ro", *ours, *theirs, *options),
    )
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize("failure", FAILURES, ids=[f.name for f in FAILURES])
def test_a_real_failure_is_explained(image: str, code: Path, failure: Failure) -> None:
    text = log_of(image, code, failure)
    log = code.parent / "train.log"
    log.write_text(text)
    report = postmortem.explain(Request(log=log))
    assert not report.count(Outcome.CRASHED)
    assert report.findings(), text
    check, finding = report.findings()[0]
    assert check.id in failure.ids.split(), text
    said = " ".join([finding.message, finding.remediation.text, *finding.remediation.commands])
    assert any(words in said for words in failure.says.split("|")), said
    assert report.exit_code() == 1

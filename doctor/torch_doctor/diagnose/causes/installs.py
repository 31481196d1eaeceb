"""Installing: programs that are not on the path, wheels that do not exist, environments that refuse."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "PKG241",
        "launcher-not-found",
        "The shell does not find torchrun, accelerate or Python itself.",
        "The environment is not active in the job or container, or the script folder is not on PATH.",
        "{program} is not on PATH: the environment is not active here, or its bin folder is not on PATH",
        Remediation(
            "Activate the environment in the job script, or call the module through its Python",
            (
                "python -m torch.distributed.run --nproc-per-node=8 train.py  # is torchrun",
                "source VENV/bin/activate  # or: conda activate NAME",
                "command -v python; echo $PATH",
            ),
        ),
        (
            Signature(
                (": command not found", ": not found"),
                "bash: torchrun: command not found",
                "bash: nvidia-smi: command not found",
                r"^\S*: (?:line \d+: |\d+: )?(?P<program>torchrun|accelerate|deepspeed|composer|python3?|lightning): "
                r"(?:command )?not found",
                source="bash, dash, zsh",
            ),
        ),
        explains=("SES22",),
    ),
    Cause(
        "PKG242",
        "environment-externally-managed",
        "pip may not install into the system's Python.",
        "Debian, Ubuntu and others mark it as managed by their own package manager (PEP 668).",
        "pip may not change this Python: the system's package manager owns it (PEP 668)",
        Remediation(
            "Install into a virtual environment",
            ("python3 -m venv ~/venv && ~/venv/bin/pip install PACKAGE", "uv venv && uv pip install PACKAGE"),
        ),
        (
            Signature(
                "externally-managed-environment",
                "error: externally-managed-environment",
                "the environment is externally managed",
                r"error: externally-managed-environment",
                source="pip 23 to 26, PEP 668",
            ),
        ),
    ),
    Cause(
        "PKG243",
        "no-matching-wheel",
        "pip finds no build of the wanted version for this Python and platform.",
        "torch wheels exist for a few Python versions only; +cu builds lie on PyTorch's own index.",
        "there is no {package} for this Python, platform and index: wheels exist for some Python versions only, and +cuXXX "
        "builds lie on PyTorch's index",
        Remediation(
            "Compare Python's version with what the wanted release supports; name the index for +cu builds",
            (
                "python --version; python -m pip debug --verbose | grep -m3 cp3",
                "pip index versions torch",
                "pip install torch==VERSION --index-url https://download.pytorch.org/whl/cuXXX",
            ),
        ),
        (
            Signature(
                "No matching distribution found for",
                "ERROR: No matching distribution found for torch==1.9.0+cu111",
                "No matching file found for torch",
                r"No matching distribution found for (?P<package>[^\s(]+)",
                source="pip 9 to 26",
            ),
        ),
    ),
    Cause(
        "PKG244",
        "requirements-conflict",
        "The requirements exclude each other.",
        "torchvision and torchaudio pin one torch each.",
        "the requirements exclude each other[[: {what}]][[ is installed, {want} is wanted]][[ by {by}]]",
        Remediation(
            "Ask for torch, torchvision and torchaudio of one release, or leave the versions of the latter two open",
            ("pip install torch==VERSION torchvision torchaudio", "pip install -r requirements.txt --dry-run"),
        ),
        (
            Signature(
                "VersionConflict: (",
                "pkg_resources.ContextualVersionConflict: (torch 2.4.0 (/x/site-packages), Requirement.parse('torch==2.3.1'), "
                "{'xformers'})",
                "VersionConflict was caught",
                r"VersionConflict: \((?P<what>[\w.-]+ \S+) \([^)]*\), Requirement\.parse\('(?P<want>[^']+)'\)(?:, \{'(?P<by>[^']+)'\})?",
                source="setuptools, pkg_resources",
            ),
            Signature(
                ("conflicting dependencies", "ResolutionImpossible"),
                "ERROR: Cannot install torch==2.1.0 and torchvision==0.15.0 because these package versions have conflicting "
                "dependencies.",
                "no conflicting dependencies",
                r"ERROR: Cannot install (?P<what>[^\n]+?) because these package versions have conflicting dependencies"
                r"|ERROR: ResolutionImpossible",
                source="pip 20.3 to 26",
            ),
        ),
    ),
    Cause(
        "PKG245",
        "wheel-of-another-platform",
        "A wheel file is for another Python or platform.",
        "Its name says for which: cp310 is Python 3.10, linux_x86_64 the platform, cu and torch what it was built for.",
        "{wheel} is for another Python or platform than this one (its name says which)",
        Remediation(
            "Take the wheel whose cpXY is this Python, and whose cu and torch are the installed ones",
            (
                'python -c "import sys, platform; print(sys.version_info[:2], platform.machine())"',
                'python -c "import torch; print(torch.__version__, torch.version.cuda)"',
                "python -m pip debug --verbose | grep -m3 cp3",
            ),
        ),
        (
            Signature(
                "is not a supported wheel on this platform",
                "ERROR: flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp310-cp310-linux_x86_64.whl is not a supported wheel on this "
                "platform.",
                "is a supported wheel",
                r"(?P<wheel>[^\s/]+\.whl) is not a supported wheel on this platform",
                source="pip 9 to 26",
            ),
        ),
    ),
)

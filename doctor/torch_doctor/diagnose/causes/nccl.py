"""What NCCL itself reports: versions, GPUs, CUDA calls, families of errors."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, ECHO, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.runs import progress
from torch_doctor.model import Remediation


def last_words(seen: Seen, verdict: Verdict) -> Verdict | None:
    """NCCL's channel lines are healthy, unless nothing came after them."""
    if "hang" in seen.groups.get("how", ""):
        return verdict
    later = [i for i in progress(seen.log) if i > seen.index]
    last = len(seen.log.lines) - 1
    if (
        later
        or last - seen.index > 12
        or any("NCCL INFO" not in line.text for line in seen.log.lines[seen.end + 1 :] if line.text)
    ):
        return None
    return verdict


def cuda_in_nccl(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The error's text, and the transport that made the call, name the remedy."""
    what, file = seen.groups["what"], seen.groups.get("file", "")
    if "out of memory" in what:
        return with_message(
            verdict,
            "NCCL got no GPU memory for its buffers: PyTorch's cache or another process has it all",
            Remediation(
                "Leave NCCL room: a smaller batch or a limit for PyTorch, fewer channels, and no other process on the "
                "GPU",
                ("nvidia-smi", "torch.cuda.set_per_process_memory_fraction(0.9)", "export NCCL_BUFFSIZE=1048576"),
            ),
        )
    if file.lower() == "nvls" or "multicast" in what:
        return with_message(
            verdict,
            f"NCCL's NVLink SHARP (NVLS) could not be set up ({what}): the fabric manager or the driver does not "
            "support multicast here, as in a container or VM with a part of the GPUs",
            Remediation(
                "Switch NVLS off, or bring the fabric manager to the driver's version",
                (
                    "NCCL_NVLS_ENABLE=0 torchrun ...",
                    "systemctl status nvidia-fabricmanager",
                    "nvidia-smi -q | grep -i fabric",
                ),
            ),
        )
    if "no kernel image" in what or "named symbol not found" in what:
        return with_message(
            verdict,
            f"NCCL has no kernels for this GPU ({what}): the NCCL that is loaded is older than the GPU, or another one than "
            "torch's own",
            Remediation(
                "Install a torch (and with it an NCCL) that knows this GPU, and see that no other NCCL is loaded",
                (
                    'python -c "import torch; print(torch.cuda.nccl.version(), torch.cuda.get_arch_list())"',
                    "LD_DEBUG=libs python -c 'import torch' 2>&1 | grep libnccl",
                    "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128",
                ),
            ),
        )
    if "installed CUDA driver" in what or "driver version is insufficient" in what:
        return with_message(
            verdict,
            f"the NVIDIA driver is too old for this NCCL ({what})",
            Remediation(
                "Update the driver, or take a torch that is built for an older CUDA",
                (
                    "nvidia-smi",
                    'python -c "import torch; print(torch.version.cuda, torch.cuda.nccl.version())"',
                    "NCCL_CUMEM_ENABLE=0 torchrun ...",
                ),
            ),
        )
    if "peer access" in what or file == "p2p":
        return with_message(
            verdict,
            f"the GPUs cannot reach each other's memory ({what}): peer-to-peer access is blocked by the platform "
            "(IOMMU, ACS, virtualisation, MIG) or the GPUs do not have it",
            Remediation(
                "Switch peer-to-peer off, and look at the topology",
                ("NCCL_P2P_DISABLE=1 torchrun ...", "nvidia-smi topo -m", "nvidia-smi topo -p2p r"),
            ),
        )
    return verdict


register(
    Cause(
        "DST204",
        "peer-to-peer-blocked-by-acs",
        "The first collective hangs: PCIe access control redirects peer-to-peer traffic through the IOMMU.",
        "With ACS or the IOMMU on, P2P over PCIe stalls; all GPUs stay at 100 % and nothing is printed any more.",
        "NCCL chose P2P for its channels and the first collective hangs: PCIe ACS or the IOMMU redirects "
        "peer-to-peer traffic",
        Remediation(
            "Switch ACS off in the BIOS or boot with iommu=pt; NCCL_P2P_DISABLE=1 as a probe tells whether it is "
            "that",
            (
                "NCCL_P2P_DISABLE=1 torchrun ...",
                "sudo lspci -vvv | grep -i acsctl | grep 'SrcValid+'",
                "cat /proc/cmdline | grep -o 'iommu=[^ ]*'",
            ),
        ),
        (
            Signature(
                "via P2P",
                "(hang at first collective, GPUs at 100%) NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct "
                "pointer",
                "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
                r"^(?P<how>\(?hang[^\n]*)?[^\n]*NCCL INFO Channel [^\n]*via P2P/",
                source="NVIDIA/nccl#2079, NCCL 2.4 to 2.28",
            ),
        ),
        kind=DEGRADED,
        judge=last_words,
        decide="NCCL_P2P_DISABLE=1 torchrun ...",
    ),
    Cause(
        "DST207",
        "two-ranks-on-one-gpu",
        "Two ranks use the same GPU.",
        "set_device(LOCAL_RANK) is missing, or CUDA_VISIBLE_DEVICES is set in the script. The number in the text "
        "is a PCI bus id in hexadecimal.",
        "rank {a} and rank {b} use the same GPU (PCI bus id {bus}): set_device(LOCAL_RANK) is missing, or the "
        "script sets its own visible devices",
        Remediation(
            "Set the device from LOCAL_RANK before the process group is made, and start no more ranks than GPUs",
            (
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
                "torchrun --nproc-per-node=gpu train.py",
                "nvidia-smi -L",
            ),
        ),
        (
            Signature(
                "Duplicate GPU detected",
                "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
                "GPU detected",
                r"Duplicate GPU detected : rank (?P<a>\d+) and rank (?P<b>\d+) both on CUDA device (?P<bus>\w+)",
                source="NCCL 2.4 to 2.28, init.cc",
            ),
        ),
        explains=("DST2",),
    ),
    Cause(
        "DST215",
        "nccl-versions-differ",
        "The ranks run different versions of NCCL or torch.",
        "Messages of the bootstrap have another length in each version.",
        "the ranks do not speak alike ({what}): they run different versions of NCCL or torch, "
        "or different numbers of GPUs",
        Remediation(
            "Run the same image on every node",
            (
                'python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"',
                "NCCL_DEBUG=VERSION torchrun ...",
            ),
        ),
        (
            Signature(
                "Message truncated",
                "bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256",
                "Message truncated by the logger",
                r"(?P<what>Message truncated : received \d+ bytes instead of \d+)",
                source="NCCL 2.x",
            ),
            Signature(
                "Mismatched NCCL version detected",
                "init.cc:416 NCCL WARN Mismatched NCCL version detected : rank 0 version 22005 rank 1 version 21805",
                "NCCL version 22005",
                r"(?P<what>Mismatched NCCL version detected[^\n]*)",
                source="NCCL 2.19 to 2.28, init.cc",
            ),
        ),
        explains=("DST22",),
    ),
    Cause(
        "DST231",
        "nccl-cuda-call-failed",
        "A CUDA call failed inside NCCL; its text names the reason.",
        "'unhandled cuda error' is only the family. The line 'Cuda failure' names the call's error: out of memory, "
        "peer access, an unsupported operation, an error that an earlier kernel left.",
        "a CUDA call failed inside NCCL ({what})",
        Remediation(
            "Run with NCCL_DEBUG=INFO to see which call it was, and look at the GPUs",
            ("NCCL_DEBUG=INFO torchrun ...", "nvidia-smi", "CUDA_LAUNCH_BLOCKING=1 torchrun ..."),
        ),
        (
            Signature(
                "Cuda failure ",
                "transport/nvls.cc:254 NCCL WARN Cuda failure 801 'operation not supported'",
                "NCCL INFO Cuda failure ignored",
                r"(?:(?P<file>\w+)\.cc:\d+ NCCL WARN |NCCL WARN |Last error:\s*\n)[^\n]*Cuda failure (?:\d+ )?'(?P<what>[^']+)'",
                unless=(r"creating shared memory segment",),
                source="NCCL 2.4 to 2.28",
            ),
            Signature(
                "NVLS) Multicast",
                "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be "
                "performed in the present state'",
                "NVLS multicast support is not available on dev 0",
                r"Failed to \w+ NVLink SHARP \((?P<file>NVLS)\) Multicast[^\n]*'(?P<what>[^']+)'",
                source="NCCL 2.18 to 2.28",
            ),
        ),
        explains=("DST22", "GPU206"),
        judge=cuda_in_nccl,
    ),
    Cause(
        "DST221",
        "nccl-system-error-echo",
        "NCCL reports that a system call or a peer failed; another line has the cause.",
        "ncclSystemError, ncclRemoteError and ncclUnhandledCudaError are families. The first NCCL WARN line, or "
        "the first rank to fail, has the cause.",
        "NCCL failed ({what}), and this line has no cause: the first NCCL WARN, or the first rank that failed, has "
        "it",
        Remediation(
            "Run with NCCL_DEBUG=INFO and read the first WARN of the first failing rank",
            ("NCCL_DEBUG=INFO torchrun ...", "grep -n 'NCCL WARN' LOG | head"),
        ),
        (
            Signature(
                "NCCL error in:",
                "torch.distributed.DistBackendError: NCCL error in: "
                "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled system error",
                "NCCL error rate",
                r"NCCL error in: [^\n]*?, (?P<what>unhandled \w+ error|invalid usage|remote process "
                r"exited[^\n(]*|internal error|\w[\w ]*)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "nccl",
                "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
                "nccl version 2.27",
                r"(?P<what>nccl(?:System|Remote|Internal|UnhandledCuda)Error)\b",
                source="NCCL 2.x",
            ),
            Signature(
                "HorovodInternalError: ",
                "horovod.common.exceptions.HorovodInternalError: ncclCommInitRank failed: unhandled system error",
                "HorovodInternalError",
                r"HorovodInternalError: (?P<what>[^\n]{1,80})",
                source="Horovod 0.19 to 0.28",
            ),
            Signature(
                "ncclInvalid",
                "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
                "ncclInvalid",
                r"(?P<what>ncclInvalidUsage|ncclInvalidArgument)",
                source="NCCL 2.x",
            ),
            Signature(
                "unhandled cuda error",
                "torch.distributed.DistBackendError: NCCL error ... unhandled cuda error",
                "handled cuda error",
                r"(?P<what>unhandled cuda error)",
                source="torch 1.0 to 2.15",
            ),
        ),
        kind=ECHO,
    ),
)

"""What ranks do together: collectives, NCCL, DDP."""

from __future__ import annotations

import re
from dataclasses import replace

from torch_doctor.diagnose.cause import DEGRADED, ECHO, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.runs import failures, progress
from torch_doctor.model import Remediation

_SEQUENCE = re.compile(
    r"\[?Rank (\d+)\][^\n]*?Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)",
    re.IGNORECASE,
)


HEARTBEAT = Remediation(
    "See where the threads of that rank stand and whether the GPU answers; read the other ranks' logs for who failed "
    "first; a longer limit helps only where a call is slow, not stuck",
    (
        "py-spy dump --native --pid PID",
        "nvidia-smi; dmesg -T | grep -i xid",
        "grep -n -E 'Traceback|Error' RANK_LOGS",
        "export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800",
    ),
)
#: rank, operation and shape of a collective in the texts of TORCH_DISTRIBUTED_DEBUG=DETAIL
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\((?:SequenceNumber=(\d+),? ?)?"
    r"OpType=(\w+)(?:, TensorShape=(\[[^\]]*\]))?"
)


def mismatch(line: str, verdict: Verdict) -> Verdict:
    """The ranks called different collectives, or the same with different shapes: the text names both."""
    told = "; ".join(
        f"rank {r}: {op}{f' number {n}' if n else ''} {shape}".strip()
        for r, n, op, shape in _FINGERPRINT.findall(line)[:3]
    )
    return with_message(
        verdict,
        f"the ranks called different collectives, or with different shapes{f' ({told})' if told else ''}: their code took "
        "different paths, or their tensors differ in size",
        Remediation(
            "Call the same collectives in the same order on every rank, outside of rank-dependent branches; pad or gather "
            "sizes first where shapes differ (uneven batches, frozen parts that differ)",
            (
                "TORCH_DISTRIBUTED_DEBUG=DETAIL TORCH_SHOW_CPP_STACKTRACES=1 torchrun ...",
                "DistributedSampler(ds, drop_last=True)",
                "torch.distributed.all_gather_object(sizes, x.shape)",
            ),
        ),
    )


def watchdog(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Different sequence numbers: the ranks went different ways; one rank missing: it left, or hangs elsewhere."""
    found: dict[int, tuple[int, str]] = {}
    for m in _SEQUENCE.finditer(seen.log.text):
        first = (int(m[2]), m[3])  # later collectives of a rank wait for its first one
        found[int(m[1])] = min(first, found.get(int(m[1]), first))
    if seen.has(r"exhausted inputs|Forward order differs across ranks"):
        return with_message(
            verdict,
            "the ranks diverged: one had fewer batches or took another path through the model than the others",
            Remediation(
                "Give each rank the same number of batches (drop_last, DistributedSampler) or use join(), and the same "
                "control flow",
                ("DistributedSampler(ds, drop_last=True)", "with model.join(): ..."),
            ),
        )
    line = seen.log.lines[seen.index].text
    if "Detected mismatch between collectives" in line:
        return mismatch(line, verdict)
    if not found and ("Heartbeat monitor" in line or "watchdog got stuck" in line):
        return with_message(
            verdict,
            "NCCL's watchdog thread itself did not come back: a CUDA or NCCL call hangs (a GPU or a link that does "
            "not answer, a peer that is gone), or a thread holds Python's lock inside of one",
            HEARTBEAT,
        )
    if match := seen.find(r"waiting for rank (\d+) in monitoredBarrier"):
        return with_message(
            verdict,
            f"rank {match[1]} did not come to the barrier: it crashed, or hangs in its own work",
            missing=match[1],
        )
    numbers = {n for n, _ in found.values()}
    kinds = {k for _, k in found.values()}
    if len(numbers) > 1 or len(kinds) > 1:
        listed = ", ".join(f"rank {r} at {k} {n}" for r, (n, k) in sorted(found.items())[:4])
        return with_message(
            verdict,
            f"the ranks diverged before the timeout ({listed}): their control flow differs, by uneven batches, "
            "work on one rank only (validation, saving), or a crash of one",
            Remediation(
                "Give each rank the same number of batches (drop_last, DistributedSampler) or use join(), keep "
                "collectives out of rank-0-only code, and find the rank that left first",
                (
                    "with model.join(): ...",
                    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...",
                    "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
                    "py-spy dump --pid RANK",
                ),
            ),
            sequence_numbers={str(r): n for r, (n, _) in found.items()},
        )
    return verdict


def peer_gone(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A warning of the store alone is also what a run prints whose ranks end one after the other, without a failure."""
    text = seen.log.lines[seen.index].text
    at_exit = "sendBytes" in text or seen.has(r"destroy_process_group\(\) was not called")
    if at_exit and re.match(r"\[?W\d{4} |\[W", text) and not failures(seen.log):
        return replace(verdict, kind=HINT)
    return verdict


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
    if file == "nvls" or "multicast" in what:
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
        "DST203",
        "ranks-diverged",
        "A collective timed out: one or more ranks did not come to it.",
        "The watchdog only says that a collective did not finish. Different sequence numbers mean that the control "
        "flow of the ranks differs; the same number on all but one "
        "means that the one left or hangs elsewhere.",
        "a collective did not finish: one rank did not come to it, since it crashed, hangs in its own work (data "
        "loading, saving), or took another branch",
        Remediation(
            "Find the rank that is missing from the reports or stopped first, and where it stands",
            (
                "grep -n -E 'Traceback|Error' RANK_LOGS",
                "py-spy dump --pid RANK",
                "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
            ),
        ),
        (
            Signature(
                ("watchdog got stuck for", "Heartbeat monitor timed out"),
                "[rank0]:[F1130 ProcessGroupNCCL.cpp:1552] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL's watchdog "
                "got stuck for 480 seconds "
                "without making progress in monitoring enqueued collectives.",
                "watchdog started",
                r"watchdog got stuck for \d+ seconds|Heartbeat monitor timed out",
                source="torch 2.2 to 2.15, ProcessGroupNCCL.cpp",
            ),
            Signature(
                "Watchdog caught collective operation timeout",
                "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 "
                "milliseconds before timing out.",
                "watchdog started",
                source="torch 1.9 to 2.15, ProcessGroupNCCL.cpp",
            ),
            Signature(
                ("Timeout at NCCL work", "detected by watchdog at work"),
                "[rank0]:[E1101 12:00:00.0 ProcessGroupNCCL.cpp:1834] [PG ID 2 PG GUID 5 Rank 0] Timeout at NCCL work: 54053, "
                "last enqueued NCCL work: 54054, last completed NCCL work: 54052.",
                "last completed NCCL work",
                source="torch 2.3 to 2.15, ProcessGroupNCCL.cpp",
            ),
            Signature(
                "waiting for remainder of ranks",
                "[W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or "
                "broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
                "remainder of ranks",
                source="Horovod 0.16 to 0.28",
            ),
            Signature(
                "Timed out waiting ",
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
                "1800000ms for recv operation to complete",
                "waiting",
                r"Timed out waiting \d+ms for (?:recv|send) operation to complete",
                source="gloo",
            ),
            Signature(
                "monitoredBarrier",
                "RuntimeError: Rank 1 failed to pass monitoredBarrier in 1800000 ms",
                "monitoredBarrier",
                r"failed to pass monitoredBarrier",
                source="torch 1.8 to 2.15",
            ),
            Signature(
                "Detected mismatch between collectives on ranks",
                "RuntimeError: Detected mismatch between collectives on ranks.",
                "mismatch",
                source="torch 1.11 to 2.15",
            ),
            Signature(
                "monitoredBarrier",
                "RuntimeError: Rank 0 timed out waiting for rank 3 in monitoredBarrier in 30000 ms",
                "Rank 0 passed monitoredBarrier",
                r"timed out waiting for rank (?P<missing>\d+) in monitoredBarrier|monitoredBarrier[^\n]*(?:did not respond|failed to pass)",
                source="torch 1.8 to 2.15",
            ),
            Signature(
                "due to ProcessGroupNCCL ",
                "[rank0]:[F1130 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 0] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
                "watchdog hang",
                r"due to ProcessGroupNCCL (?:watchdog hang|stuck)",
                source="torch 2.2 to 2.15, ProcessGroupNCCL.cpp",
            ),
            Signature(
                "exhausted inputs",
                "RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks.",
                "inputs exhausted",
                r"at least one rank that exhausted inputs",
                source="torch 1.9 to 2.15, Join with throw_on_early_termination",
            ),
            Signature(
                "Forward order differs across ranks",
                "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while rank 3 is all-gathering 0 parameters",
                "forward order",
                source="torch 1.12 to 2.15, FSDP",
            ),
        ),
        kind=ECHO,
        judge=watchdog,
        explains=("DST21", "SES22", "SES211", "SES221"),
    ),
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
        "DST208",
        "unused-parameters-in-ddp",
        "A parameter got no gradient in the last iteration under DDP.",
        "DDP waits for the gradients of all parameters; a branch that is not taken, or an output that does not "
        "enter the loss, leaves some without.",
        "DDP waits for gradients of parameters that were not used in the loss{detail}",
        Remediation(
            "Use all outputs in the loss, take out unused layers, or set find_unused_parameters=True",
            (
                "DistributedDataParallel(model, find_unused_parameters=True)",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun train.py",
            ),
        ),
        (
            Signature(
                "Expected to have finished reduction in the prior iteration",
                "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
                "finished reduction",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "LightningModule has parameters that were not used in producing the loss",
                "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss "
                "returned by training_step.",
                "LightningModule has parameters",
                r"(?P<lightning>LightningModule has parameters that were not used in producing the loss)",
                source="Lightning 1.6 to 2.6",
            ),
            Signature(
                "Expected to mark a variable ready only once",
                "RuntimeError: Expected to mark a variable ready only once.",
                "ready only once",
                source="torch 1.0 to 2.15: checkpointing with reuse",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "a parameter was marked ready twice under DDP: it is used in several checkpointed blocks or "
                "backward passes",
                Remediation(
                    "Use use_reentrant=False in checkpointing, or static_graph=True",
                    (
                        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
                        "DistributedDataParallel(model, static_graph=True)",
                    ),
                ),
            )
            if "ready only once" in seen.log.lines[seen.index].text
            else with_message(
                verdict,
                verdict.message.replace("?", ""),
                Remediation(
                    verdict.remedy.text,
                    ("Trainer(strategy='ddp_find_unused_parameters_true')", *verdict.remedy.commands[1:])
                    if "lightning" in seen.groups
                    else verdict.remedy.commands,
                ),
            )
        ),
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
        "DST216",
        "cpu-tensor-in-nccl-collective",
        "A CPU tensor was given to a collective of NCCL.",
        "NCCL moves GPU memory only; objects and CPU tensors need gloo.",
        "a collective got a CPU tensor on the NCCL backend",
        Remediation(
            "Move it to the rank's GPU, or make the group with both backends",
            ("tensor = tensor.to(device)", "init_process_group('cpu:gloo,cuda:nccl')"),
        ),
        (
            Signature(
                "No backend type associated with device type cpu",
                "RuntimeError: No backend type associated with device type cpu",
                "device type cpu",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "Tensors must be CUDA and dense",
                "RuntimeError: Tensors must be CUDA and dense",
                "Tensors must be dense",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST217",
        "models-differ-between-ranks",
        "DDP found different models on the ranks.",
        "The parameters' number, order or shapes differ: another configuration, a random architecture, or another "
        "checkpoint on one rank.",
        "the models of the ranks[[ (rank {rank})]] are not the same: the parameters' number, order or shapes differ",
        Remediation(
            "Build the model from the same configuration and seed on every rank",
            (
                "torch.manual_seed(0)  # before the model is made, on every rank",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
            ),
        ),
        (
            Signature(
                "in this process with sizes",
                "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has "
                "inconsistent 6 params.\n[1]: "
                "params[0] in this process with sizes [4] appears not to match sizes of the same param in process 0.",
                "in this process with size",
                r"params\[\d+\] in this process with sizes",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "DDP expects same model across all ranks",
                "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has "
                "inconsistent 6 params.",
                "same model across all ranks",
                r"DDP expects same model across all ranks, but Rank (?P<rank>\d+)",
                source="torch 1.9 to 2.15",
            ),
        ),
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
                r"(?:(?P<file>\w+)\.cc:\d+ NCCL WARN |Last error:\s*\n)[^\n]*Cuda failure (?:\d+ )?'(?P<what>[^']+)'",
                unless=(r"creating shared memory segment",),
                source="NCCL 2.4 to 2.28",
            ),
        ),
        explains=("DST22",),
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
    Cause(
        "DST222",
        "peer-gone-echo",
        "A peer closed its connection: it ended first.",
        "Socket errors, closed connections and a lost store are echoes of the end of another rank.",
        "a peer rank closed its connection: it ended first, and its own log has the cause",
        Remediation(
            "Find the rank that ended first, and read its log",
            ("grep -n -E 'Traceback|Error|Killed' RANK_LOGS", "torchrun --tee 3 --log-dir logs ..."),
        ),
        (
            Signature(
                "Socket recv failed",
                "proxy.cc:1326 NCCL WARN Socket recv failed while polling for opId=0x7f2c",
                "Socket recv",
                source="NCCL 2.x",
            ),
            Signature(
                "Connection closed by peer",
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                "[10.0.0.2]:4242",
                "closed by",
                source="gloo",
            ),
            Signature(
                "Connection closed by remote peer",
                "NCCL WARN [Service thread] Connection closed by remote peer node-1<4242>",
                "remote peer",
                source="NCCL 2.14 to 2.28",
            ),
            Signature(
                "Connection reset by peer",
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection reset by peer",
                "reset by",
                r"(?:gloo|NCCL|TCPStore|recvValue|c10d|store|DistNetworkError|DistStoreError)[^\n]*Connection reset by peer",
                source="gloo, NCCL, torch",
            ),
            Signature(
                ("Failed to recv, got 0 bytes", "Connection was likely closed"),
                "[W TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl: Failed to recv, got 0 bytes. "
                "Connection was likely closed. recvValueWithTimeout",
                "recv",
                r"Failed to recv, got 0 bytes|Connection was likely closed",
                source="torch 2.4 to 2.15",
            ),
            Signature(
                "Connection was likely closed",
                "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. "
                "Did the remote server shutdown or crash?",
                "likely",
                source="torch 2.4 to 2.15",
            ),
            Signature(
                "Some NCCL operations have failed or timed out",
                "[E ProcessGroupNCCL.cpp:475] Some NCCL operations have failed or timed out.",
                "operations",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                ("NCCL communicator was aborted", "communicator was aborted on rank"),
                "RuntimeError: NCCL communicator was aborted on rank 1.",
                "NCCL communicator created",
                source="torch 1.8 to 2.15",
            ),
            Signature(
                ("TCPStore server has shut down too early", "Broken pipe"),
                'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
                "BrokenPipeError: [Errno 32] Broken pipe",
                r"TCPStore server has shut down too early|(?:TCPStore|c10d|store|sendBytes|NCCL|gloo)[^\n]*Broken pipe",
                source="torch 2.1 to 2.15",
            ),
            Signature(
                "To avoid data inconsistency, we are taking the entire process down",
                "[E ProcessGroupNCCL.cpp:481] To avoid data inconsistency, we are taking the entire process down.",
                "inconsistency",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "closing signal SIG",
                "Sending process 124533 closing signal SIGTERM",
                "signal SIGTERM",
                source="torch 1.9 to 2.15",
            ),
        ),
        kind=ECHO,
        judge=peer_gone,
    ),
)

"""What ranks do together: collectives that time out or differ, and the echoes of a peer that is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from torch_doctor.diagnose.cause import ECHO, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.runs import failures
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
    found = _waiting(seen)
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
    return _diverged(found, verdict) or _absent(found, verdict) or verdict


def _waiting(seen: Seen) -> dict[int, tuple[int, str]]:
    """Rank -> (number, operation) of the collective that it waited for: later ones wait for its first one."""
    found: dict[int, tuple[int, str]] = {}
    for m in _SEQUENCE.finditer(seen.log.text):
        first = (int(m[2]), m[3])
        found[int(m[1])] = min(first, found.get(int(m[1]), first))
    return found


def _diverged(found: Mapping[int, tuple[int, str]], verdict: Verdict) -> Verdict | None:
    """The ranks waited for different collectives."""
    if len(set(found.values())) < 2:
        return None
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


def _absent(found: Mapping[int, tuple[int, str]], verdict: Verdict) -> Verdict | None:
    """All waited for one collective, and a rank is missing among them.

    The ranks of another node are not missing: only gaps count, and rank 0 where rank 1 is there.
    """
    if len(found) < 2:
        return None
    first = 0 if min(found) == 1 else min(found)
    absent = sorted(set(range(first, max(found))) - set(found))
    if not 0 < len(absent) <= 2:
        return None
    named = ", ".join(map(str, absent))
    number, operation = next(iter(found.values()))
    return with_message(
        verdict,
        f"rank {named} did not come to {operation} {number}, for which the others waited: it crashed, hangs in its own "
        "work (data loading, saving a checkpoint), or took another branch",
        missing=named,
    )


def peer_gone(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A warning of the store alone is also what a run prints whose ranks end one after the other, without a failure."""
    text = seen.log.lines[seen.index].text
    at_exit = "sendBytes" in text or seen.has(r"destroy_process_group\(\) was not called")
    if at_exit and re.match(r"\[?W\d{4} |\[W", text) and not failures(seen.log):
        return replace(verdict, kind=HINT)
    return verdict


register(
    Cause(
        "DST203",
        "ranks-diverged",
        "A collective timed out: one or more ranks did not come to it.",
        "The watchdog only says that a collective did not finish. Different sequence numbers mean that the control "
        "flow of the ranks differs; the same number on all but one means that the one left or hangs elsewhere.",
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
                "got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
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

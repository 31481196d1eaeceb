"""Ranks that did not meet, or did not part: the store and its barriers."""

from __future__ import annotations

from dataclasses import replace

from torch_doctor.diagnose.cause import ECHO, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def joined(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A connection that is lost during the run is the end of the node that holds the store, not a missing rank."""
    line = seen.log.lines[seen.index].text
    if "RendezvousConnectionError" in line and seen.has(
        r"keep-alive heartbeat to the rendezvous|(?i:failed to recv)|failed to shutdown the rendezvous|reset by peer"
    ):
        return replace(
            with_message(
                verdict,
                "the node that holds the rendezvous store (the first one, MASTER_ADDR) ended or was cut off during the "
                "run: its own log has the cause",
                Remediation(
                    "Read the log of that node: the first rank that failed there has the cause",
                    (
                        "grep -n -E 'Traceback|Error|Killed' NODE0_LOGS",
                        "sacct -j JOBID -o JobID,NodeList,State,ExitCode,End",
                    ),
                ),
            ),
            kind=ECHO,
        )
    if "FileStore" in seen.log.text or "file://" in seen.log.text:
        return with_message(
            verdict,
            f"{seen.groups.get('joined', 'not all')} ranks came to the rendezvous file: one was not started or cannot see "
            "the file, or an old file of an earlier run is in its place",
            Remediation(
                "Remove the file before each run, and put it on a file system that all nodes share and that locks files",
                (
                    "rm -i RENDEZVOUS_FILE  # the file that init_method names, while no run uses it",
                    "torchrun --standalone --nproc-per-node=gpu train.py",
                ),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", "not all"))


register(
    Cause(
        "DST202",
        "ranks-did-not-join",
        "Not all ranks came to the rendezvous.",
        "The others crashed earlier, were never started (a wrong world size), or cannot reach the master.",
        "{joined} ranks came to the rendezvous: the others crashed earlier, were never started (WORLD_SIZE or "
        "--nnodes is wrong), or cannot reach the master's address and port",
        Remediation(
            "Look at the log of the first failing rank; check WORLD_SIZE, --nnodes and --nproc-per-node; test the "
            "port from the other node",
            (
                "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK",
                "nc -vz $MASTER_ADDR $MASTER_PORT",
                "nvidia-smi -L | wc -l",
            ),
        ),
        (
            Signature(
                ("clients joined", "workers joined"),
                "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients "
                "joined.",
                "3/3 clients joined",
                r"waiting for (?:client|worker)s\. (?P<joined>(?P<a>\d+)/(?!(?P=a)\b)\d+) (?:clients joined|workers joined)",
                source="torch 1.11 to 2.15",
            ),
            Signature(
                "RendezvousTimeoutError",
                "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
                "Rendezvous ok",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "store based barrier",
                "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
                "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)",
                "barrier",
                r"store based barrier on rank: \d+[^\n]*world_size=(?P<w>\d+), "
                r"(?:num_workers_joined|worker_count)=(?P<joined>\d+)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "store based barrier",
                "RuntimeError: Timed out initializing process group in store based barrier on rank 1",
                "Rank 0: Completed store-based barrier",
                r"Timed out initializing process group in store based barrier",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "RendezvousConnectionError",
                "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d "
                "store has failed.",
                "connection",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "retrieving ncclUniqueId from [0]",
                "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms",
                "ncclUniqueId",
                r"retrieving ncclUniqueId from \[0\][^\n]*wait timeout",
                source="torch 1.10 to 2.15: rank 0 did not come",
            ),
            Signature(
                "Timeout waiting for key: ",
                "RuntimeError: Timeout waiting for key: default_pg/0/1 after 1800000 ms",
                "waiting for the API key",
                r"Timeout waiting for key: \S+ after \d+ ms",
                source="torch 1.5 to 2.15, FileStore",
            ),
            Signature(
                "wait timeout after",
                "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0/store_based_barrier_key:1",
                "wait timeout",
                r"wait timeout after \d+ms, keys: ",
                source="torch 2.2 to 2.15, TCPStore",
            ),
        ),
        judge=joined,
        explains=("DST22", "SES22"),
    ),
    Cause(
        "DST255",
        "agents-not-at-exit-barrier",
        "The agents of the other nodes did not come to the barrier at the exit.",
        "Each agent of torchrun waits for the others when its ranks have ended. A node whose ranks still work, or that "
        "ended without a word, keeps it waiting until the time is over.",
        "the other agents did not come to the barrier at the exit: their nodes still work, or ended without a word",
        Remediation(
            "Read the logs of the other nodes; where ranks end at different times, meet at a barrier before the end",
            (
                "torch.distributed.barrier(); torch.distributed.destroy_process_group()",
                "grep -n -E 'Traceback|Error' NODE_LOGS",
            ),
        ),
        (
            Signature(
                ("Error waiting on exit barrier", "/terminal_state"),
                "torch.distributed.elastic.agent.server.api: [ERROR] Error waiting on exit barrier. Elapsed: 300.1 seconds",
                "Done waiting for other agents.",
                r"Error waiting on exit barrier|wait timeout after \d+ms, keys: \S*/terminal_state",
                source="torch 1.9 to 2.15, torch elastic",
            ),
        ),
        kind=ECHO,
        explains=("DST202", "DST210", "DST22", "SES22"),
    ),
    Cause(
        "DST254",
        "rendezvous-closed",
        "The rendezvous was closed before this node came to it.",
        "The other nodes had ended, or finished, already; or the ID is that of a job that has ended.",
        "the rendezvous was closed already: the other nodes have ended, or --rdzv-id belongs to a job that is over",
        Remediation(
            "Read the logs of the nodes that ended first; start all nodes anew with an ID of their own",
            ("torchrun --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 ...",),
        ),
        (
            Signature(
                "RendezvousClosedError",
                "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
                "RendezvousTimeoutError",
                source="torch 1.9 to 2.15",
            ),
        ),
        kind=ECHO,
        explains=("DST22", "SES22"),
    ),
)

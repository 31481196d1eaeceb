"""Several processes: rendezvous, NCCL, gloo, DDP."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.runs import progress
from torch_doctor.model import Remediation

_SEQUENCE = re.compile(
    r"\[?Rank (\d+)\][^\n]*?Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)",
    re.IGNORECASE,
)


def watchdog(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Different sequence numbers: the ranks went different ways; one rank missing: it left, or hangs elsewhere."""
    found: dict[int, tuple[int, str]] = {}
    for m in _SEQUENCE.finditer(seen.log.text):
        first = (int(m[2]), m[3])  # later collectives of a rank wait for its first one
        found[int(m[1])] = min(first, found.get(int(m[1]), first))
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


def port(seen: Seen, verdict: Verdict) -> Verdict | None:
    number = seen.groups.get("port") or (seen.near(r"port:? ?(\d{2,5})|:(\d{4,5})\b", 4, 4) or [""])[0].strip(
        "port: "
    )
    number = number or "29500"
    return with_message(
        verdict,
        f"port {number} is taken: another job or a leftover process holds the rendezvous port, or several "
        "processes act as rank 0",
        Remediation(
            "Let torchrun choose a free port, or give another one; see who holds it, and check that RANK comes "
            "from the environment",
            (
                "torchrun --standalone --nproc-per-node=gpu train.py",
                f"ss -ltnp | grep {number}",
                "torchrun --rdzv-endpoint=localhost:0 train.py",
                "export MASTER_PORT=29501",
            ),
        ),
        port=number,
    )


register(
    Cause(
        "DST201",
        "rendezvous-port-in-use",
        "The rendezvous port is taken.",
        "Another job on the node, or what is left of an earlier one, listens on it; or several processes take "
        "themselves for rank 0.",
        "the rendezvous port is taken by another process",
        Remediation("Use torchrun --standalone or another port", ("torchrun --standalone train.py",)),
        (
            Signature(
                "EADDRINUSE",
                "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, "
                "useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
                "Address already in use (tmux)",
                r"(?:port: (?P<port>\d+)[^\n]*)?EADDRINUSE",
                source="torch 2.0 to 2.15, c10d TCPStore",
            ),
            Signature(
                "has failed to listen on any local network address",
                "The server socket has failed to listen on any local network address.",
                "listen on",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "Address already in use",
                "RuntimeError: Address already in use",
                "error creating /tmp/tmux-0/default (Address already in use)",
                r"^(?![^\n]*tmux)(?:[^\n]*(?:Error|error|failed|bind)[^\n]*)Address already in use",
                source="torch 1.0 to 2.15, python 3.8 to 3.14",
            ),
        ),
        judge=port,
        explains=("DST2",),
        decide="ss -ltnp | grep PORT",
    ),
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
                "clients joined",
                "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients "
                "joined.",
                "3/3 clients joined",
                r"waiting for clients\. (?P<joined>(?P<a>\d+)/(?!(?P=a)\b)\d+) clients joined",
                source="torch 1.11 to 2.15",
            ),
            Signature(
                "RendezvousTimeoutError",
                "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
                "Rendezvous ok",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "Timed out initializing process group in store based barrier",
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
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "not all")),
        explains=("DST21", "DST22"),
    ),
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
                "Watchdog caught collective operation timeout",
                "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 "
                "milliseconds before timing out.",
                "watchdog started",
                source="torch 1.9 to 2.15, ProcessGroupNCCL.cpp",
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
                "collectives on ranks",
                "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective",
                "ranks",
                source="torch 1.11 to 2.15",
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
        "DST205",
        "docker-bridge-address-advertised",
        "A rank advertised the address of a Docker bridge, which its peers cannot reach.",
        "NCCL, gloo and MPI choose the first interface; docker0 or a veth has an address that is local to the node.",
        "a peer advertised {address}, the address of a Docker bridge (docker0) that other nodes cannot reach",
        Remediation(
            "Name the interface to use",
            (
                "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0",
                "export NCCL_SOCKET_IFNAME=^docker0,lo,veth",
                "mpirun --mca btl_tcp_if_exclude docker0,lo ...",
                "ip -br addr",
            ),
        ),
        (
            Signature(
                "172.",
                "[btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 failed: "
                "Connection refused (111)",
                "connect() to 10.0.0.2 failed: Connection refused (111)",
                r"(?:[Cc]onnect\w*|[Cc]onnection|Call to "
                r"connect)[^\n]*\b(?P<address>172\.(?:1[7-9]|2\d|3[01])\.\d+\.\d+)\b[^\n]*(?:refused|unreachable"
                r"|timed out|No route|failed)",
                source="Open MPI 3 to 5, gloo, NCCL",
            ),
            Signature(
                "docker0",
                "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>\nNCCL WARN socketProgress: Connection refused",
                "docker0 is up",
                r"Using \[0\]docker0:(?P<address>[\d.]+)",
                also=(r"refused|timed out|Timeout|failed",),
                source="NCCL 2.x",
            ),
        ),
        explains=("DST2",),
    ),
    Cause(
        "DST206",
        "no-network-for-nccl",
        "NCCL found no IP interface to bootstrap over.",
        "NCCL needs one even on a single node; docker run --network none gives none.",
        "NCCL cannot make a socket: the container has no IP network, and NCCL's bootstrap needs an interface even "
        "on one node",
        Remediation(
            "Give the container a network, or use the loopback on a single node",
            (
                "docker run --network host ...",
                "docker run --network bridge ...",
                "export NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo",
            ),
        ),
        (
            Signature(
                "Address family not supported by protocol",
                "include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol",
                "address family",
                r"^(?![^\n]*(?:c10d|errno: 97))[^\n]*Address family not supported by protocol",
                source="NCCL 2.x, --network none",
            ),
            Signature(
                "no socket interface found",
                "NCCL WARN Bootstrap : no socket interface found",
                "socket interface found",
                source="NCCL 2.x",
            ),
            Signature(
                "Unable to find interface for",
                "RuntimeError: [enforce fail at device.cc] Unable to find interface for: [0.17.4.210]",
                "interface for",
                source="gloo",
            ),
            Signature(
                "Unable to resolve hostname to a",
                "RuntimeError: Unable to resolve hostname to a (local) address",
                "resolve",
                r"makeDeviceForHostname\(\)|Unable to resolve hostname to a \(local\) address",
                source="gloo, torch 1.8 to 2.15",
            ),
        ),
        explains=("DST2",),
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
            else with_message(verdict, verdict.message.replace("?", ""))
        ),
    ),
    Cause(
        "DST209",
        "process-group-not-initialised",
        "A collective or DDP was used before init_process_group, or without torchrun's environment.",
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun.",
        "the process group is not initialised{detail}",
        Remediation(
            "Start the script with torchrun, and call init_process_group first",
            ("torchrun --standalone --nproc-per-node=gpu train.py", "torch.distributed.init_process_group('nccl')"),
        ),
        (
            Signature(
                "Default process group has not been initialized",
                "ValueError: Default process group has not been initialized, please make sure to call "
                "init_process_group.",
                "process group",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "environment variable RANK expected, but not set",
                "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
                "RANK expected, but not set",
                "RANK",
                r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "environment variable ",
                "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
                "WORLD_SIZE expected, but not set",
                "environment variable x",
                r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
                source="torch 1.0 to 2.15",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "")),
    ),
    Cause(
        "DST210",
        "master-not-reachable",
        "The master's address cannot be reached or resolved.",
        "A wrong MASTER_ADDR, a port that is closed between the nodes, or a master that has ended.",
        "the master {host} cannot be reached: wrong MASTER_ADDR or port, no route between the nodes, or the "
        "process there has ended",
        Remediation(
            "Test the name and the port from this node",
            ("getent hosts $MASTER_ADDR", "nc -vz $MASTER_ADDR $MASTER_PORT", "ip -br addr"),
        ),
        (
            Signature(
                "The client socket has failed to connect to any network address of",
                "torch.distributed.DistNetworkError: The client socket has failed to connect to any network "
                "address of (node-0, 29500).",
                "client socket",
                r"failed to connect to any network address of \((?P<host>[^)]*)\)|The client socket has timed out "
                r"after \S+ while trying to connect to \((?P<h>[^)]*)\)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "The client socket has timed out",
                "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
                "connect to (node-0, 29500).",
                "timed out",
                r"client socket has timed out after \S+ while trying to connect to \((?P<host>[^)]*)\)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "gai error:",
                "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai "
                "error: -2 - Name or service not known).",
                "gai",
                r"network addresses of \((?P<host>[^)]*)\) cannot be retrieved",
                unless=(r"listen",),
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "Connect to",
                "NCCL WARN socketStartConnect: Connect to 10.0.0.2<40003> failed : No route to host",
                "Connect to w&b",
                r"NCCL WARN[^\n]*Connect to (?P<host>\S+) failed : (?:No route to host|Connection timed "
                r"out|Network is unreachable)",
                source="NCCL 2.x",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict, verdict.message.replace("?", seen.groups.get("h", "address"))
        ),
        explains=("DST22",),
    ),
    Cause(
        "DST211",
        "infiniband-failed",
        "An InfiniBand or RoCE operation of NCCL failed.",
        "A link that went down, a wrong GID index, or a limit of locked memory.",
        "InfiniBand or RoCE failed under NCCL ({what}): link, GID index or locked-memory limit",
        Remediation(
            "Check the links and the limit of locked memory; NCCL_IB_DISABLE=1 as a probe",
            (
                "ibstat",
                "ulimit -l",
                "docker run --ulimit memlock=-1 --device /dev/infiniband ...",
                "NCCL_IB_DISABLE=1 torchrun ...",
                "export NCCL_IB_GID_INDEX=3",
            ),
        ),
        (
            Signature(
                "NET/IB",
                "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4003> with status=12 opcode=0 len=0 vendor "
                "err 129",
                "NCCL INFO NET/IB : Using [0]mlx5_0",
                r"NCCL WARN[^\n]*NET/IB[^\n]*(?P<what>status=\d+|Unable to|Async|failed)",
                source="NCCL 2.x",
            ),
            Signature(
                "ibv_",
                "NCCL WARN Call to ibv_reg_mr failed",
                "ibv_devices",
                r"NCCL WARN Call to (?P<what>ibv_\w+) failed",
                source="NCCL 2.x",
            ),
        ),
        explains=("DST2",),
    ),
    Cause(
        "DST212",
        "ports-or-pids-exhausted",
        "No more processes or threads can be made.",
        "The container's limit of PIDs, or ulimit -u, is reached: workers, compile threads and OpenMP add up.",
        "no more threads or processes can be made: the limit of PIDs (docker --pids-limit, the pids cgroup) or "
        "ulimit -u is reached",
        Remediation(
            "Raise the limit, or use fewer workers and threads",
            (
                "docker run --pids-limit=-1 ...",
                "ulimit -u",
                "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
                "export OMP_NUM_THREADS=4",
            ),
        ),
        (
            Signature(
                "can't start new thread",
                "RuntimeError: can't start new thread",
                "start new thread",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "Resource temporarily unavailable",
                "BlockingIOError: [Errno 11] Resource temporarily unavailable",
                "OSError: Unable to open file (unable to lock file, errno = 11, error message = 'Resource "
                "temporarily unavailable')",
                r"^(?![^\n]*lock file)[^\n]*(?:\[Errno 11\] Resource temporarily "
                r"unavailable$|pthread_create[^\n]*Resource temporarily|fork[^\n]*Resource temporarily "
                r"unavailable|OMP: Error #34|libgomp: Thread creation failed[^\n]*)",
                source="python 3.8 to 3.14, libgomp, bash",
            ),
            Signature(
                "libgomp: Thread creation failed",
                "libgomp: Thread creation failed: Resource temporarily unavailable",
                "libgomp: ok",
                source="gcc",
            ),
            Signature(
                "OMP: Error #34",
                "OMP: Error #34: System unable to allocate necessary resources for OMP thread:",
                "OMP: Info",
                source="LLVM OpenMP",
            ),
            Signature(
                "pthread_create failed",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily "
                "unavailable",
                "pthread_create",
                source="OpenBLAS",
            ),
        ),
    ),
    Cause(
        "DST213",
        "nccl-without-gpus",
        "The NCCL backend was chosen where there is no GPU or no NCCL.",
        "NCCL needs GPUs and a torch that was built with it.",
        "the NCCL backend was chosen, and {what}",
        Remediation(
            "Use gloo on the CPU, or give the job GPUs and a CUDA build of torch",
            (
                "torch.distributed.init_process_group('gloo')",
                "nvidia-smi -L",
                'python -c "import torch; print(torch.version.cuda, torch.distributed.is_nccl_available())"',
            ),
        ),
        (
            Signature(
                "ProcessGroupNCCL is only supported with GPUs",
                "RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
                "ProcessGroupNCCL started",
                r"(?P<gpu>ProcessGroupNCCL is only supported with GPUs)",
                source="torch 1.7 to 2.15",
            ),
            Signature(
                "have NCCL built in",
                "RuntimeError: Distributed package doesn't have NCCL built in",
                "NCCL built in",
                r"Distributed package doesn't have NCCL built in",
                source="torch 1.0 to 2.15",
            ),
        ),
        explains=("GPU212",),
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace(
                "?", "no GPU is visible" if "gpu" in seen.groups else "this torch was built without it (a CPU build)"
            ),
        ),
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
                "ncclInvalidUsage",
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
                r"(?:gloo|NCCL|TCPStore|recvValue|c10d|store)[^\n]*Connection reset by peer",
                source="gloo, NCCL, torch",
            ),
            Signature(
                "recvValueWithTimeout",
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
    ),
)

"""How ranks find each other: ports, addresses, interfaces, world size."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


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


def not_started(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A variable of torchrun's that is not set: the script was started without it."""
    if match := re.search(r"environment variable (\w+) expected|^KeyError: '(\w+)'", seen.log.lines[seen.index].text):
        return with_message(
            verdict,
            f"{match[1] or match[2]} is not set: the script was started with python in place of torchrun, which sets RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        )
    return with_message(verdict, verdict.message.replace("?", ""))


def _unresolved(seen: Seen) -> str:
    """The message for a name that does not resolve; empty where it does."""
    if "cannot be retrieved" not in seen.log.lines[seen.index].text:
        return ""
    return (
        f"the master's host name ({seen.groups.get('host', '?')}) does not resolve: a wrong MASTER_ADDR, no DNS entry "
        "(a headless service in Kubernetes), or the pod is not up yet"
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
            Signature(
                "but another process is utilizing it",
                "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it.",
                "another process",
                r"launch distributed communication on port `(?P<port>\d+)`, but another process is utilizing it",
                source="accelerate 0.20 to 1.12: --main_process_port",
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
                "wait timeout after",
                "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0/store_based_barrier_key:1",
                "wait timeout",
                r"wait timeout after \d+ms, keys: ",
                source="torch 2.2 to 2.15, TCPStore",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", "not all")),
        explains=("DST21", "DST22"),
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
                ("Unable to resolve hostname to a", "makeDeviceForHostname"),
                "RuntimeError: Unable to resolve hostname to a (local) address",
                "resolve",
                r"makeDeviceForHostname\(\)|Unable to resolve hostname to a \(local\) address",
                source="gloo, torch 1.8 to 2.15",
            ),
        ),
        explains=("DST2",),
    ),
    Cause(
        "DST209",
        "process-group-not-initialised",
        "A collective or DDP was used before init_process_group, or without torchrun's environment.",
        "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun.",
        "the process group is not initialised{detail}: init_process_group was not called",
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
                "environment variable ",
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
            Signature(
                "KeyError: '",
                "KeyError: 'LOCAL_RANK'",
                "KeyError: 'rank'",
                r"^KeyError: '(?P<variable>LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_WORLD_SIZE)'$",
                source="python 3.8 to 3.14, os.environ",
            ),
        ),
        judge=not_started,
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
                ("failed to connect to any network address of", "client socket has timed out"),
                "torch.distributed.DistNetworkError: The client socket has failed to connect to any network "
                "address of (node-0, 29500).",
                "client socket",
                r"failed to connect to any network address of \((?P<host>[^)]*)\)|The client socket has timed out "
                r"after \S+ while trying to connect to \((?P<h>[^)]*)\)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "client socket has timed out",
                "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
                "connect to (node-0, 29500).",
                "timed out",
                r"client socket has timed out after \S+ while trying to connect to \((?P<host>[^)]*)\)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "cannot be retrieved",
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
            Signature(
                "Connect to",
                "misc/socket.cc:538 NCCL WARN Net : Connect to 10.0.0.2<48339> failed : Connection refused",
                "NCCL INFO Connect to 10.0.0.2",
                r"NCCL WARN[^\n]*Connect to (?P<host>(?!172\.(?:1[7-9]|2\d|3[01])\.)\S+) failed : Connection refused",
                source="NCCL 2.x: the peer has ended, or a port is closed",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict, _unresolved(seen) or verdict.message.replace("?", seen.groups.get("h", "address"))
        ),
        explains=("DST22",),
    ),
    Cause(
        "DST214",
        "host-name-is-loopback",
        "A rank advertised a loopback address: its host name resolves to 127.x.",
        "Debian maps the host name to 127.0.1.1 in /etc/hosts; gloo and NCCL then advertise an address that no "
        "other node can reach.",
        "a peer advertised the loopback address {address}: its host name resolves to 127.x in /etc/hosts",
        Remediation(
            "Name the interface to use, or map the host name to the node's real address",
            ("export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0", "getent hosts $(hostname)", "ip -br addr"),
        ),
        (
            Signature(
                "remote=[127.",
                "RuntimeError: Gloo connectFullMesh failed with "
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] timed out connecting: "
                "SO_ERROR: Connection refused, remote=[127.0.1.1]:33445",
                "remote=[10.0.0.2]:33445",
                r"(?:connectFullMesh|gloo|SO_ERROR)[^\n]*remote=\[(?P<address>127\.[\d.]+)\]",
                source="gloo, torch 1.8 to 2.15",
            ),
        ),
        explains=("DST2",),
    ),
    Cause(
        "DST232",
        "local-rank-argument-of-old-launcher",
        "The script and the launcher pass the local rank in different ways.",
        "torch.distributed.launch passes --local-rank (before torch 2.0 --local_rank); torchrun sets LOCAL_RANK only.",
        "the script does not know the launcher's argument {what}: torch.distributed.launch passes it, torchrun sets LOCAL_RANK in its place",
        Remediation(
            "Start with torchrun and read LOCAL_RANK from the environment, or accept both spellings",
            (
                "torchrun --nproc-per-node=gpu train.py",
                "local_rank = int(os.environ['LOCAL_RANK'])",
                "parser.add_argument('--local-rank', '--local_rank', type=int)",
            ),
        ),
        (
            Signature(
                "unrecognized arguments:",
                "train.py: error: unrecognized arguments: --local-rank=0",
                "error: unrecognized arguments: --lr=0",
                r"unrecognized arguments:[^\n]*(?P<what>--local[-_]rank)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "DST233",
        "launcher-has-no-slots",
        "The launcher or scheduler has no room for what was asked.",
        "mpirun counts cores as slots; Slurm knows GPUs as a generic resource by a name of its own.",
        "the launcher cannot start the processes: {what}",
        Remediation(
            "Ask for what the nodes have",
            (
                "sinfo -o '%N %c %G %t'",
                "mpirun --oversubscribe -np 8 ...",
                "mpirun --hostfile hosts ...  # node1 slots=8",
            ),
        ),
        (
            Signature(
                "not enough slots available",
                "There are not enough slots available in the system to satisfy the 8",
                "slots available",
                r"(?P<what>not enough slots available in the system)",
                source="Open MPI 2 to 5",
            ),
            Signature(
                "generic resource (gres)",
                "srun: error: Unable to create step for job 123: Invalid generic resource (gres) specification",
                "gres=gpu:1",
                r"(?P<what>Invalid generic resource \(gres\) specification)",
                source="Slurm 18 to 25",
            ),
        ),
    ),
    Cause(
        "DST234",
        "mpirun-as-root",
        "mpirun refuses to run as root.",
        "Open MPI guards against it; in a container it is harmless.",
        "mpirun refuses to run as root",
        Remediation(
            "Run as another user, or allow it in a container",
            (
                "docker run --user $(id -u):$(id -g) ...",
                "mpirun --allow-run-as-root ...",
            ),
        ),
        (
            Signature(
                "attempt to run as root",
                "mpirun has detected an attempt to run as root.",
                "run as root",
                r"detected an attempt to run as root",
                source="Open MPI 1.8 to 5",
            ),
        ),
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
                ("Resource temporarily", "OMP: Error #34", "libgomp: Thread creation failed"),
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
)

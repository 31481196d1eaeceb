"""The addresses at which ranks look for each other: ports, names, networks."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: words of a rendezvous, and of other servers that take a port
_OF_SERVERS = r"(?i)\.bind\(\(|tensorboard|uvicorn|http\.server|jupyter|visdom|gradio|flask|grpc|fastapi|streamlit|mlflow|HTTPServer"


_OF_RANKS = r"(?i)c10d|TCPStore|torch\.distributed|rendezvous|torchrun|init_process_group|MASTER_|accelerate|deepspeed|lightning"


def port(seen: Seen, verdict: Verdict) -> Verdict | None:
    number = seen.groups.get("port") or (seen.near(r"port:? ?(\d{2,5})|:(\d{4,5})\b", 4, 4) or [""])[0].strip(
        "port: "
    )
    if not number and (bound := seen.near(r"\.bind\(\([^\n]*?,\s*(\d{2,5})\)|(?:port|PORT)\W{1,3}(\d{4,5})\b", 6, 2)):
        number = bound[1] or bound[2]
    if seen.has(_OF_SERVERS) and not seen.has(_OF_RANKS):
        return with_message(
            verdict,
            f"{f'port {number}' if number else 'the port'} is taken: another process listens on it, most often a server "
            "or run that was left behind",
            Remediation(
                "Find and end what holds it, or take another port",
                (f"ss -ltnp | grep :{number or 'PORT'}", f"fuser -v -n tcp {number or 'PORT'}"),
            ),
        )
    which = f"port {number}" if number else "the port (29500 is the default of a rendezvous)"
    return with_message(
        verdict,
        f"{which} is taken: another job or a leftover process holds the rendezvous port, or several processes act as "
        "rank 0",
        Remediation(
            "Let torchrun choose a free port, or give another one; see who holds it, and check that RANK comes "
            "from the environment",
            (
                "torchrun --standalone --nproc-per-node=gpu train.py",
                f"ss -ltnp | grep :{number or 29500}",
                "torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 train.py",
                "export MASTER_PORT=29501",
            ),
        ),
        port=number or "29500",
    )


def _named(seen: Seen) -> str:
    """The address that the traceback's init_method names."""
    match = seen.near(r"tcp://([\w.:-]+)")
    return match[1] if match else "address"


def _peer(seen: Seen, verdict: Verdict) -> Verdict | None:
    """NCCL's ranks connect to each other on ports that they choose: MASTER_ADDR plays no part there."""
    host = seen.groups.get("host", "")
    if "<" not in host or "NCCL WARN" not in seen.log.lines[seen.index].text:
        return None
    address, port = host.rstrip(">").split("<", 1)
    return with_message(
        verdict,
        f"NCCL's peer at {address} (port {port}) cannot be reached: the process there has ended, a firewall closes the "
        "ports between the nodes, or NCCL chose the wrong interface",
        Remediation(
            "Read the log of the rank on that node; open the ports between the nodes, and name the interface",
            (
                f"ping -c 3 {address}; nc -vz {address} {port}",
                "export NCCL_SOCKET_IFNAME=eth0",
                "NCCL_DEBUG=INFO torchrun ...",
                "ip -br addr",
            ),
        ),
    )


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
                "connect() to 172.31.14.7 failed: Connection refused (111)",
                r"^(?![^\n]*(?:ConnectionPool|https?://|psycopg|redis|mysql|Operational))[^\n]*?"
                r"(?:[Cc]onnect\w*|Call to connect)[^\n]*\b(?P<address>172\.(?:1[7-9]|2\d|30)\.0\.\d+)\b[^\n]*(?:refused|unreachable"
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
        ),
        explains=("DST2",),
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
                ("connect() timed out", "RuntimeError: Connection timed out", "RuntimeError: Socket Timeout"),
                "    store = TCPStore(result.hostname, result.port, world_size, start_daemon)\nRuntimeError: connect() timed out.",
                "TimeoutError: [Errno 110] Connection timed out",
                r"RuntimeError: (?:connect\(\) timed out|Connection timed out|Socket Timeout)",
                also=(r"rendezvous|TCPStore|init_process_group|c10d",),
                source="torch 1.0 to 1.12",
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
                r"NCCL WARN[^\n]*Connect to (?P<host>(?!172\.(?:1[7-9]|2\d|30)\.0\.)\S+) failed : Connection refused",
                source="NCCL 2.x: the peer has ended, or a port is closed",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: (
            _peer(seen, verdict)
            or with_message(
                verdict, _unresolved(seen) or verdict.message.replace("?", seen.groups.get("h") or _named(seen))
            )
        ),
        explains=("DST202", "DST22", "SES22"),
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
)

"""Names, interfaces and fabrics that ranks need to reach each other."""

from __future__ import annotations

from dataclasses import replace

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: status of a work completion -> what it means. Source: libibverbs, ibv_wc_status; NVIDIA/nccl issues 426, 902, 1405.
COMPLETIONS = {
    "1": "a local length error",
    "2": "a local queue pair error",
    "4": "a local protection error: memory was registered wrongly, as with GPUDirect RDMA over a driver mismatch",
    "5": "flushed work: an echo of an earlier error on the same connection",
    "9": "a remote invalid request",
    "10": "a remote access error",
    "11": "a remote operation error",
    "12": "transport retries used up: the peer did not answer",
    "13": "receiver-not-ready retries used up: the peer is stuck",
}


#: what helps against a transfer that is not answered
FABRIC = Remediation(
    "Check the links and error counters of both NICs and test them without NCCL; for RoCE choose the GID index of "
    "RoCE v2 and check PFC/ECN; raise the timeout only where the network is busy",
    (
        "ibstat; rdma link show",
        "show_gids; export NCCL_IB_GID_INDEX=3",
        "ib_write_bw -d mlx5_0 HOST",
        "export NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7",
        "NCCL_IB_DISABLE=1 torchrun ...  # as a probe: slow, over TCP",
    ),
)


def infiniband(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A completion's status tells a dead link from a wrong registration; 5 only echoes another error."""
    if "status" not in seen.groups:
        if "UCX" not in seen.log.lines[seen.index].text:
            return verdict
        return with_message(
            verdict,
            f"UCX, which NCCL or MPI uses for InfiniBand, failed ({seen.groups.get('what', 'UCX error')}): memory could not be "
            "registered",
            Remediation(
                "Leave UCX out of NCCL, give the container the limit of locked memory, and check GPUDirect RDMA",
                (
                    "NCCL_NET_PLUGIN=none torchrun ...  # NCCL's own InfiniBand code",
                    "docker run --ulimit memlock=-1 --device /dev/infiniband ...",
                    "lsmod | grep nvidia_peermem; ucx_info -d | grep -i cuda",
                ),
            ),
        )
    status = seen.groups["status"] or "12"
    means = COMPLETIONS.get(status, f"status {status}")
    where = f" ({seen.groups['peer']})" if seen.groups.get("peer") else ""
    told = with_message(
        verdict,
        f"an InfiniBand or RoCE transfer failed{where}: {means}; a link, routing or GID index at fault, or a peer that has ended",
        FABRIC if status in ("12", "13") else None,
        status=status,
    )
    return replace(told, kind=ECHO) if status == "5" else told


def name(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A warning may be followed by a name that resolves later; the exception is the end."""
    ended = "Error" in seen.log.lines[seen.index].text
    return verdict if ended else replace(verdict, kind=VAGUE)


register(
    Cause(
        "DST241",
        "master-name-does-not-resolve",
        "The host name of the master does not resolve on this node.",
        "MASTER_ADDR or the rendezvous endpoint is a name that DNS or /etc/hosts of this node does not know: a short "
        "name, a headless service that is not up, a name of another cluster. That the rendezvous failed is an echo.",
        "the master's host name {host} does not resolve on this node: a wrong MASTER_ADDR or --rdzv-endpoint, no DNS "
        "entry (a headless service in Kubernetes), or the pod is not up yet",
        Remediation(
            "Test the name on this node; give an address or a full name, or add it to /etc/hosts",
            (
                "getent hosts {host}",
                "export MASTER_ADDR=10.0.0.1  # the IP address of rank 0's node",
                "scontrol show hostnames $SLURM_JOB_NODELIST | head -1",
                "kubectl get svc,endpoints",
            ),
        ),
        (
            Signature(
                "cannot be retrieved",
                "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
                "(node-0, 29400). The IPv6 network addresses cannot be retrieved (gai error: -2 - Name or service not "
                "known). The IPv4 network addresses cannot be retrieved (gai error: -2 - Name or service not known).",
                "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error: "
                "-2 - Name or service not known).",
                r"network address of \((?P<host>[^,)\s]+), ?\d+\)[^\n]*IPv4 network addresses (?:of \([^)]*\) )?cannot be retrieved",
                source="torch 1.10 to 2.15, socket.cpp",
            ),
            Signature(
                "cannot be retrieved",
                "[W socket.cpp:601] [c10d] The IPv4 network addresses of (node-0, 29400) cannot be retrieved (gai error: "
                "-3 - Temporary failure in name resolution).",
                "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-0, 29400) cannot be retrieved (gai error: "
                "-3 - Temporary failure in name resolution).",
                r"IPv4 network addresses of \((?P<host>[^,)\s]+), ?\d+\) cannot be retrieved",
                source="torch 1.10 to 2.15, socket.cpp",
            ),
        ),
        judge=name,
        explains=("DST202", "DST210", "DST22", "SES22"),
        decide="getent hosts $MASTER_ADDR",
    ),
    Cause(
        "DST211",
        "infiniband-failed",
        "An InfiniBand or RoCE operation of NCCL or UCX failed.",
        "NCCL's error is ncclRemoteError or ncclSystemError; the WARN line says more. Status 12 is a timeout: at the "
        "start the NICs cannot talk to each other at all (routing, GID index, VLAN), later the network loses packets, a "
        "link flaps, or the peer is gone. Registration fails at the limit of locked memory.",
        "InfiniBand or RoCE failed under NCCL ({what}): link, GID index or locked-memory limit",
        Remediation(
            "Check the links and the limit of locked memory; NCCL_IB_DISABLE=1 as a probe",
            (
                "ibstat",
                "ulimit -l",
                "docker run --ulimit memlock=-1 --device /dev/infiniband ...",
                "lsmod | grep nvidia_peermem  # GPUDirect RDMA needs it",
                "NCCL_IB_DISABLE=1 torchrun ...",
                "export NCCL_IB_GID_INDEX=3",
            ),
        ),
        (
            Signature(
                "Got completion ",
                "NCCL WARN NET/IB: Got completion from peer 10.1.4.23<55921> with status=IBV_WC_RETRY_EXC_ERR(12) "
                "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129",
                "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE",
                r"NET/IB\w* ?: ?Got completion (?:from peer (?P<peer>[^\s<]+)(?:<\d+>)? )?with "
                r"(?:error |status=)(?:\w+\()?(?P<status>\d+)",
                source="NCCL 2.4 to 2.28, net_ib.cc",
            ),
            Signature(
                "Transport retry count exceeded",
                "[gpu1:77:0:77] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 "
                "hw_synd 0/0)",
                "retry count exceeded for the download",
                r"Transport retry count exceeded on (?P<peer>\S+)(?P<status>)",
                source="UCX 1.8 to 1.19",
            ),
            Signature(
                "NET/IB",
                "net_ib.cc:114 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
                "NCCL INFO NET/IB : Using [0]mlx5_0",
                r"NCCL WARN[^\n]*NET/IB(?![^\n]*Got completion)[^\n]*(?P<what>Unable to|[Aa]sync[^\n]*|failed)",
                source="NCCL 2.x",
            ),
            Signature(
                "UCX",
                "[1707768585.533445] [n8:1458:0] ucp_mm.c:63   UCX  ERROR failed to register address (nil) (cuda) length 14022 on "
                "md[1]=cuda_ipc: Invalid parameter",
                "UCX  DEBUG mlx5_0: cuda GPUDirect RDMA is disabled",
                r"UCX +ERROR (?P<what>(?:failed to register|uct_md_mem_reg|failed to insert region|ibv_)[^\n]{0,80})|NCCL WARN Failed: "
                r"(?P<ucx>UCX error)",
                source="UCX 1.8 to 1.19, nccl-rdma-sharp-plugins",
            ),
            Signature(
                "ibv_",
                "NCCL WARN Call to ibv_reg_mr failed",
                "ibv_devices",
                r"(?:NCCL WARN Call to |UCX +ERROR [^\n]*?)(?P<what>ibv_\w+)(?:\([^)]*\))? failed",
                source="NCCL 2.x, UCX 1.8 to 1.19",
            ),
        ),
        judge=infiniband,
        explains=("DST2", "SES22", "SES211"),
        references="https://github.com/NVIDIA/nccl/issues/426",
    ),
    Cause(
        "DST243",
        "libfabric-found-no-efa",
        "The network plugin of NCCL (aws-ofi-nccl) found no usable EFA device.",
        "fi_getinfo returns nothing where the container does not see /dev/infiniband, where the security group or the "
        "instance has no EFA, or where libfabric is too old for the plugin.",
        "NCCL's libfabric plugin found no EFA device[[ ({what})]]: the container does not see /dev/infiniband, the "
        "instance has no EFA attached, or libfabric and the plugin do not fit",
        Remediation(
            "Give the container the EFA devices, and see that libfabric lists them; without EFA use the sockets",
            (
                "fi_info -p efa -t FI_EP_RDM; ls /dev/infiniband",
                "docker run --device=/dev/infiniband --ulimit memlock=-1 ...",
                "resources: {limits: {vpc.amazonaws.com/efa: 4}}",
                "NCCL_NET=Socket torchrun ...  # as a probe: slow, over TCP",
            ),
        ),
        (
            Signature(
                ("fi_getinfo", "provider efa output empty list"),
                "nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available",
                "NCCL INFO NET/OFI Selected Provider is efa",
                r"fi_getinfo\(\) call failed: (?P<what>[^\n]+)|fi_getinfo: provider efa output empty list|Couldn't find any "
                r"optimal provider[^\n]*fi_getinfo",
                source="aws-ofi-nccl 1.3 to 1.17",
            ),
            Signature(
                "NET/OFI ",
                "NCCL WARN NET/OFI Couldn't find any optimal provider",
                "NCCL INFO NET/OFI Using aws-ofi-nccl 1.14.0",
                r"NCCL WARN NET/OFI (?P<what>(?:Couldn't find any optimal provider|Failed to initialize \w+ protocol|"
                r"Unable to find a protocol|Only EFA provider is supported)[^\n]*)",
                source="aws-ofi-nccl 1.3 to 1.17",
            ),
        ),
        kind=VAGUE,
        explains=("DST22", "SES22"),
        references="https://github.com/aws/aws-ofi-nccl/issues/1020",
    ),
    Cause(
        "DST244",
        "gloo-finds-no-interface",
        "gloo cannot tell which network interface to use: the host's name resolves to nothing, or to the loopback.",
        "gloo takes the address that the host name resolves to. In a container or on a laptop it has none, or 127.0.1.1.",
        "gloo found no usable address: this host's name does not resolve to one of its interfaces",
        Remediation(
            "Name the interface for gloo, or map the host name to the node's address in /etc/hosts",
            (
                "export GLOO_SOCKET_IFNAME=eth0",
                "export GLOO_SOCKET_IFNAME=lo  # on a single node",
                "ip -br addr; getent hosts $(hostname)",
            ),
        ),
        (
            Signature(
                "Unable to find address for",
                "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address "
                "for: eth1",
                "find address for delivery",
                r"Unable to find address for: (?P<what>\S+)",
                source="gloo, torch 1.3 to 2.15",
            ),
            Signature(
                "Unable to find interface for",
                "RuntimeError: [enforce fail at device.cc] Unable to find interface for: [0.17.4.210]",
                "interface for",
                source="gloo, torch 1.3 to 2.15",
            ),
            Signature(
                ("Unable to resolve hostname to a", "makeDeviceForHostname"),
                "RuntimeError: Unable to resolve hostname to a (local) address",
                "resolve",
                r"(?:makeDeviceForHostname\(\)|Unable to resolve hostname to a \(local\) address)(?![^\n]*as fallback)",
                source="gloo, torch 1.8 to 2.15",
            ),
            Signature(
                "Unable to resolve hostname to a",
                "[W1201 gloo] Unable to resolve hostname to a (local) address. Using the loopback address as fallback.\n"
                "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error",
                "[W1201 gloo] Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
                r"Unable to resolve hostname to a \(local\) address[^\n]*as fallback",
                also=(r"connectFullMesh failed|gloo[^\n]*(?:[Cc]onnection refused|timed out|timeout)",),
                source="gloo, torch 2.0 to 2.15",
            ),
        ),
        explains=("DST203", "DST210", "DST22", "DST214"),
    ),
    Cause(
        "DST245",
        "rank-taken-twice",
        "Two processes took the same rank.",
        "RANK or --node-rank is the same on two nodes, a second job uses the same master and port, or a script sets the "
        "rank from LOCAL_RANK. NCCL calls it an internal error.",
        "rank {rank} was taken twice: two processes have the same RANK, or another job uses the same master and port",
        Remediation(
            "Give each node its own --node-rank, take RANK (not LOCAL_RANK) for the process group, and a port of its own "
            "to each job",
            (
                "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT  # on each process",
                "torchrun --nnodes=2 --node-rank=$SLURM_NODEID --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 train.py",
            ),
        ),
        (
            Signature(
                "has already checked in",
                "bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
                "already checked in the file",
                r"rank (?P<rank>\d+) of \d+ ranks has already checked in",
                source="NCCL 2.4 to 2.28, bootstrap.cc",
            ),
        ),
        explains=("DST22", "DST202", "SES22"),
    ),
    Cause(
        "DST246",
        "nccl-cannot-read-topology",
        "NCCL could not read the PCI tree of the machine.",
        "It reads /sys; a sandbox (gVisor), a virtual machine or a container with a masked /sys shows it only in part.",
        "NCCL could not read the machine's PCI tree ({what}): /sys is masked or incomplete in this container or virtual "
        "machine",
        Remediation(
            "Show the container the host's /sys, or give NCCL a topology file",
            (
                "ls -l /sys/class/pci_bus | head",
                "docker run -v /sys:/sys:ro ...",
                "export NCCL_TOPO_FILE=/etc/nccl/topo.xml",
            ),
        ),
        (
            Signature(
                "Could not find real path of",
                "graph/topo.cc:633 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:86/../../0000:86:00.0",
                "real path of the file",
                r"Could not find real path of (?P<what>/sys/\S+)",
                source="NCCL 2.4 to 2.28, graph/xml.cc",
            ),
        ),
        kind=VAGUE,
        explains=("DST22", "SES22"),
    ),
    Cause(
        "DST251",
        "gloo-mesh-not-connected",
        "gloo's ranks could not connect to each other.",
        "Each rank connects to the address that its peers advertised: a wrong interface, a firewall, or a peer that has "
        "ended already.",
        "gloo's ranks could not connect to each other: a wrong interface was advertised, a firewall is between the "
        "nodes, or a peer has ended",
        Remediation(
            "Look at the first rank that failed; name the interface for gloo",
            (
                "grep -n -E 'Traceback|Error' RANK_LOGS",
                "export GLOO_SOCKET_IFNAME=eth0",
                "ip -br addr; getent hosts $(hostname)",
            ),
        ),
        (
            Signature(
                "connectFullMesh failed",
                "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] "
                "no error",
                "Gloo connectFullMesh done",
                source="gloo, torch 2.2 to 2.15",
            ),
        ),
        kind=VAGUE,
        explains=("DST22", "SES22"),
    ),
    Cause(
        "DST252",
        "ssh-to-node-failed",
        "The launcher could not log in to another node by ssh.",
        "mpirun, pdsh and DeepSpeed start the other nodes over ssh without a password: it needs a key, a known host, and "
        "a running sshd.",
        "the launcher could not log in to the other node by ssh ({what})",
        Remediation(
            "Make ssh to each node work without a question, from the node and user that launches",
            (
                "ssh-copy-id NODE",
                "ssh-keyscan -H NODE >> ~/.ssh/known_hosts  # compare the key first: this trusts what answers",
                "ssh -o BatchMode=yes NODE hostname",
            ),
        ),
        (
            Signature(
                "Host key verification failed",
                "pdsh@node1: node2: ssh exited with exit code 255\nHost key verification failed.",
                "Host key verification failed.",
                r"(?P<what>Host key verification failed)",
                also=(r"(?i)mpirun|orted|pdsh|deepspeed|prte|horovod|ORTE",),
                source="OpenSSH, Open MPI, DeepSpeed",
            ),
            Signature(
                ("(publickey", "port 22"),
                "node2: Permission denied (publickey,password).\npdsh@node1: node2: ssh exited with exit code 255",
                "git@github.com: Permission denied (publickey).",
                r"(?P<what>Permission denied \(publickey[^)]*\)|connect to host \S+ port 22: [^\n]+)",
                also=(r"(?i)mpirun|orted|pdsh|deepspeed|prte|horovod|ORTE",),
                source="OpenSSH, Open MPI, DeepSpeed",
            ),
        ),
        explains=("SES22", "DST202", "FS202"),
    ),
    Cause(
        "DST253",
        "address-not-of-this-host",
        "A socket was to be bound to an address that this host does not have.",
        "MASTER_ADDR must be an address of rank 0's own node; rank 0 listens on it.",
        "the address to listen on does not belong to this host: rank 0 runs on another node than MASTER_ADDR names",
        Remediation(
            "Start rank 0 (node rank 0) on the node that MASTER_ADDR names, or correct the address",
            ("ip -br addr; echo $MASTER_ADDR $NODE_RANK", "export MASTER_ADDR=$(hostname -I | cut -d' ' -f1)"),
        ),
        (
            Signature(
                "annot assign requested address",
                "torch.distributed.DistNetworkError: The server socket has failed to bind to 10.0.0.9:29500 (errno: 99 - "
                "Cannot assign requested address).",
                "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - "
                "Cannot assign requested address).",
                r"^(?:[^\n]*(?:server socket|bind)[^\n]*|OSError: \[Errno 99\] )Cannot assign requested address",
                source="torch 1.10 to 2.15, python 3.8 to 3.14",
            ),
        ),
        explains=("DST201", "DST202", "DST210", "DST22"),
    ),
)

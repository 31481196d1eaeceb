"""What the Docker daemon and registries say when a container is not made at all."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def pull(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Why the image did not come: the words near it decide."""
    text = seen.log.text
    if "toomanyrequests" in text or "429 Too Many Requests" in text:
        return with_message(
            verdict,
            "the registry refused the pull: its rate limit is reached",
            Remediation("Log in, or use a mirror, and pull again later", ("docker login", "docker pull IMAGE")),
        )
    if seen.has(r"no matching manifest for|does not match the specified platform"):
        return with_message(
            verdict,
            "the image has no build for this machine's architecture",
            Remediation(
                "Take an image for this architecture, or build one",
                (
                    "docker manifest inspect IMAGE | grep architecture; uname -m",
                    "docker build --platform linux/arm64 ...",
                ),
            ),
        )
    if seen.has(r"(?i)manifest unknown|manifest for \S+ not found|: not found$|name unknown"):
        return with_message(
            verdict,
            "the image or its tag does not exist in the registry: a wrong name or tag, or it was never pushed",
            Remediation(
                "Check the name and the tag, and push the image",
                ("docker manifest inspect IMAGE", "docker push IMAGE", "kubectl describe pod POD"),
            ),
        )
    if seen.has(r"(?i)x509|certificate|no such host|i/o timeout|dial tcp|connection refused|TLS handshake"):
        return with_message(
            verdict,
            "the registry cannot be reached: DNS, a proxy, a firewall or its certificate",
            Remediation(
                "Test the registry from that node; give the daemon its proxy and certificates",
                (
                    "curl -vI https://REGISTRY/v2/",
                    "cat /etc/docker/daemon.json",
                    "systemctl show docker | grep -i proxy",
                ),
            ),
        )
    return verdict


register(
    Cause(
        "SES271",
        "image-not-pulled",
        "The container's image could not be pulled.",
        "A wrong name or tag, missing credentials, a rate limit, or a registry that cannot be reached. The event or "
        "message beside it says which; ImagePullBackOff itself does not.",
        "the image could not be pulled: access was denied (no credentials for the registry), or the repository does "
        "not exist",
        Remediation(
            "Log in to the registry, or give the pod an imagePullSecret; check the name and the tag",
            (
                "docker login REGISTRY",
                "kubectl create secret docker-registry regcred --docker-server=REGISTRY ...",
                "spec: {imagePullSecrets: [{name: regcred}]}",
                "kubectl describe pod POD | grep -A5 Failed",
            ),
        ),
        (
            Signature(
                ("ErrImagePull", "ImagePullBackOff", "Failed to pull image", "InvalidImageName"),
                '  Warning  Failed  11s  kubelet  Failed to pull image "registry.corp/train:1": authorization failed',
                'Successfully pulled image "registry.corp/train:1"',
                unless=(r"Successfully pulled image",),
                source="Kubernetes kubelet 1.20 to 1.34",
            ),
            Signature(
                (
                    "pull access denied",
                    "unauthorized: ",
                    "no basic auth credentials",
                    "requested access to the resource is denied",
                ),
                "docker: Error response from daemon: pull access denied for corp/train, repository does not exist or "
                "may require 'docker login'",
                "access denied to the bucket",
                r"pull access denied for \S+|unauthorized: (?:authentication|access|incorrect)[^\n]*|no basic auth "
                r"credentials|requested access to the resource is denied",
                source="Docker 17 to 29",
            ),
            Signature(
                "/v2/",
                'Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: TLS handshake timeout',
                'GET /v2/models/resnet/infer HTTP/1.1" 200',
                r"(?:[Ee]rror[^\n]*|failed to do request: )(?:Get|Head) \"https?://[^\"\s]+/v2/[^\"]*\": [^\n]+",
                source="Docker 17 to 29, containerd",
            ),
            Signature(
                ("manifest unknown", "no matching manifest", "toomanyrequests: ", "not found: manifest"),
                "docker: Error response from daemon: manifest for pytorch/pytorch:9.9 not found: manifest unknown: "
                "manifest unknown",
                "the manifest of the dataset",
                r"manifest unknown|no matching manifest for \S+|toomanyrequests: [^\n]*|not found: manifest",
                source="Docker 17 to 29",
            ),
        ),
        kind=VAGUE,
        judge=pull,
        explains=("SES2",),
    ),
    Cause(
        "SES272",
        "host-port-taken",
        "The port that the container is to publish is taken on the host.",
        "Another container, or a server on the host (Jupyter, TensorBoard), listens on it.",
        "port {port} of the host is taken: another container or a server there listens on it",
        Remediation(
            "Publish another port, or end what holds it",
            (
                "docker ps --filter publish={port}",
                "sudo ss -ltnp | grep :{port}",
                "docker run -p 127.0.0.1:0:{port} ...",
            ),
        ),
        (
            Signature(
                "port is already allocated",
                "docker: Error response from daemon: driver failed programming external connectivity on endpoint x: "
                "Bind for 0.0.0.0:8888 failed: port is already allocated.",
                "RuntimeError: Address already in use",
                r"Bind for \S*:(?P<port>\d+) failed: port is already allocated",
                source="Docker 17 to 28",
            ),
            Signature(
                "ddress already in use",
                "docker: Error response from daemon: failed to set up container networking: driver failed programming "
                "external connectivity on endpoint x: failed to bind host port 0.0.0.0:6006/tcp: address already in use",
                "RuntimeError: Address already in use",
                r"(?:listen tcp4?6?|failed to bind host port(?: for)?)[: ]\S*:(?P<port>\d+)[^\n]*address already in use",
                source="Docker 17 to 29",
            ),
        ),
        explains=("DST201", "SES22"),
    ),
    Cause(
        "SES273",
        "docker-storage-full",
        "The disk of Docker's own storage is full.",
        "Images and layers lie under /var/lib/docker (or the data-root), often a small system disk; the dataset's disk "
        "and /dev/shm play no part.",
        "the disk that holds Docker's images and layers (/var/lib/docker, or its data-root) is full",
        Remediation(
            "Remove images and build caches that nobody needs, or move the data-root to a larger disk",
            (
                "docker system df",
                "docker image prune; docker builder prune",
                "docker info | grep 'Root Dir'; df -h /var/lib/docker",
                'sudoedit /etc/docker/daemon.json  # add "data-root": "/big/docker"; then restart docker, which ends its containers',
            ),
        ),
        (
            Signature(
                ("no space left on device", "No space left on device"),
                "docker: failed to register layer: write /usr/lib/libcublasLt.so.12: no space left on device.",
                "OSError: [Errno 28] No space left on device: 'ckpt.pt'",
                r"(?:failed to register layer|failed to extract layer|Error processing tar file|failed to copy files|/var/lib/"
                r"(?:docker|containerd)|(?:error|failed) (?:creating|to create) (?:overlay|temporary|rwlayer)|ApplyLayer|failed to solve)"
                r"[^\n]*[nN]o space left on device|[nN]o space left on device: '/var/lib/(?:docker|containerd)/",
                source="Docker 17 to 29, containerd, BuildKit",
            ),
        ),
        explains=("FS2", "SES2"),
    ),
    Cause(
        "SES275",
        "bind-mount-source-missing",
        "The folder or file to be mounted does not exist on the host, or is of the other kind.",
        "--mount type=bind refuses a source that is not there. -v makes an empty folder in its place, so that a file "
        "then meets a folder.",
        "the mount of {path} failed: it does not exist on the Docker host, or a file and a folder were mixed up",
        Remediation(
            "Give an absolute path that exists on the host of the daemon (not inside a container)",
            ("ls -ld {path}", "docker run -v $PWD/data:/data ...", "docker context show"),
        ),
        (
            Signature(
                "bind source path does not exist",
                'docker: Error response from daemon: invalid mount config for type "bind": bind source path does not '
                "exist: /data/imagenet.",
                "bind source path",
                r"bind source path does not exist: (?P<path>[^\s.]+(?:\.[^\s.]+)*)",
                source="Docker 17 to 29",
            ),
            Signature(
                "Are you trying to mount a directory onto a file",
                'error mounting "/home/u/cfg.yaml" to rootfs at "/cfg.yaml": not a directory: Are you trying to mount a '
                "directory onto a file (or vice-versa)?",
                "mount a directory",
                r"mounting [\\\"]*(?P<path>/[^\\\"\s]+)[^\n]*Are you trying to mount a directory onto a file",
                source="runc 1.0 to 1.3",
            ),
        ),
        explains=("SES2",),
    ),
    Cause(
        "SES276",
        "docker-daemon-not-running",
        "No Docker daemon answers at the socket.",
        "It is not started, the client looks at another context or DOCKER_HOST, or the command runs inside a "
        "container without the socket.",
        "no Docker daemon answers at {socket}: it does not run, or the client looks in the wrong place",
        Remediation(
            "Start the daemon, or point the client at it",
            ("sudo systemctl start docker; systemctl status docker", "docker context ls; echo $DOCKER_HOST"),
        ),
        (
            Signature(
                ("Cannot connect to the Docker daemon", "failed to connect to the docker API"),
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
                r"(?:Cannot connect to the Docker daemon|failed to connect to the docker API) at (?P<socket>\S+?)[.;,]?(?:\s|$)",
                source="Docker 1.10 to 29",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES249",
        "mount-refused",
        "The engine could not mount a folder into the container.",
        "The daemon works as root of the host: an NFS export with root_squash, SELinux, a rootless engine or Docker from "
        "snap cannot reach each path.",
        "the container engine could not mount {path}: it may not read or make that path (root_squash, SELinux, rootless or "
        "snap's Docker), or its file system is read-only",
        Remediation(
            "Give the engine a path that it may reach, or the right label",
            (
                "ls -ld {path}; namei -l {path}",
                "docker run -v {path}:/data:z ...  # SELinux",
                "docker info | grep -i 'root dir'; which docker",
            ),
        ),
        (
            Signature(
                "error mounting",
                'error mounting "/home/me/data" to rootfs at "/data": change mount propagation through procfd: mount dst=/data: '
                "permission denied",
                'error mounting "/a" to rootfs at "/b": not a directory',
                r"error mounting \"(?P<path>[^\"]+)\" to rootfs[^\n]*(?:permission denied|operation not permitted)",
                source="runc 1.0 to 1.3",
            ),
            Signature(
                "creating mount source path",
                "error while creating mount source path '/host_mnt/data': mkdir /host_mnt/data: read-only file system.",
                "creating mount source",
                r"creating mount source path '(?P<path>[^']+)'",
                source="Docker 17 to 29",
            ),
        ),
        explains=("SES2", "FS2"),
    ),
    Cause(
        "SES287",
        "interpreter-of-start-script-missing",
        "The start script is there, and what its first line names is not.",
        "The kernel says 'no such file' of the interpreter: #!/bin/bash in an image without bash, a CRLF line end, or a "
        "binary for another C library.",
        "the container's start command or its interpreter does not exist in the image: a first line (#!) with Windows "
        "line ends or for a shell that is not there, or a wrong path",
        Remediation(
            "Look at the script's first line in the image; convert it to LF, or install the interpreter",
            (
                "docker run --rm --entrypoint sh IMAGE -c 'head -1 SCRIPT | od -c | head -2; ls -l SCRIPT'",
                "sed -i 's/\\r$//' SCRIPT",
                "docker run --rm --entrypoint sh IMAGE -c 'command -v bash'",
            ),
        ),
        (
            Signature(
                "no such file or directory",
                "standard_init_linux.go:228: exec user process caused: no such file or directory",
                'exec: "/app/run.sh": stat /app/run.sh: no such file or directory: unknown',
                r"exec user process caused:? \"?no such file or directory|^(?:\S+\s+\| )?exec /\S+: no such file or directory$",
                source="runc 1.0 to 1.3, Docker 17 to 29",
            ),
        ),
        explains=("SES2",),
    ),
    Cause(
        "SES279",
        "device-node-missing",
        "A device that the container is to get does not exist on the host.",
        "--device names a node under /dev that the driver has not made: no InfiniBand stack, or a GPU whose driver is "
        "not loaded.",
        "the device {path} does not exist on the Docker host: its driver is not loaded there",
        Remediation(
            "Load the driver on the host, or leave the option out",
            ("ls -l {path}", "lsmod | grep -E 'nvidia|mlx5|efa'"),
        ),
        (
            Signature(
                "error gathering device information",
                "docker: Error response from daemon: error gathering device information while adding custom device "
                '"/dev/infiniband": no such file or directory.',
                "gathering device information",
                r"error gathering device information while adding custom device \"(?P<path>[^\"]+)\"",
                source="Docker 17 to 29",
            ),
        ),
        kind=VAGUE,
    ),
)

"""What hands GPUs to containers and pods: Docker, containerd, the container toolkit, Kubernetes."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _daemon(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Kubernetes asks containerd, not Docker."""
    if "no runtime for" not in seen.log.lines[seen.index].text:
        return verdict
    return with_message(
        verdict,
        "containerd on this node has no NVIDIA runtime, which the pod's runtime class asks for",
        Remediation(
            "Configure containerd on the node and restart it, or install the GPU operator",
            (
                "sudo nvidia-ctk runtime configure --runtime=containerd",
                "sudo systemctl restart containerd",
                "kubectl get runtimeclass nvidia",
            ),
        ),
    )


register(
    Cause(
        "GPU201",
        "gpu-lost-after-daemon-reload",
        "A running container lost its GPUs: systemd rewrote the device cgroup.",
        "With the systemd cgroup driver a daemon-reload on the host rewrites the rules for devices without those of "
        "the GPU. The host's nvidia-smi stays healthy; only a new container has them again.",
        "NVML: Unknown Error inside the container: it lost access to the GPU's device nodes, as after a systemctl "
        "daemon-reload on the host (systemd cgroup driver)",
        Remediation(
            "Restart the container; to keep it from happening, pass the device nodes explicitly, use CDI, or create "
            "the /dev/char symlinks on the host",
            (
                "docker restart CONTAINER",
                "docker run --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm --gpus all ...",
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            ),
        ),
        (
            Signature(
                "Failed to initialize NVML: Unknown Error",
                "Failed to initialize NVML: Unknown Error",
                "Failed to initialize NVML: Driver/library version mismatch",
                source="nvidia-smi 470 to 590",
            ),
            Signature(
                "NVMLError_Unknown",
                "pynvml.NVMLError_Unknown: Unknown Error",
                "NVMLError_NotSupported",
                source="nvidia-ml-py 11 to 13",
            ),
            Signature(
                "Can't initialize NVML",
                "UserWarning: Can't initialize NVML\nRuntimeError: No CUDA GPUs are available",
                "NVML initialized",
                also=(r"CUDA error|No CUDA GPUs|no CUDA-capable|Unknown Error",),
                source="torch 1.9 to 2.15, torch/cuda/__init__.py",
            ),
        ),
        explains=("GPU2",),
        decide="nvidia-smi on the host; docker exec CONTAINER ls -l /dev/nvidia0",
        references="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    ),
    Cause(
        "GPU208",
        "docker-has-no-gpu-runtime",
        "The Docker daemon has no NVIDIA runtime.",
        "The NVIDIA container toolkit is absent, the daemon was not restarted after it was configured, or the "
        "daemon in use (snap, rootless) reads another configuration.",
        "the Docker daemon cannot give a container GPUs: the NVIDIA Container Toolkit is not installed, or not "
        "configured in the daemon that is in use",
        Remediation(
            "Install the toolkit, configure Docker for it and restart the daemon that is in use; Docker from snap "
            "does not work with it",
            (
                "sudo apt-get install -y nvidia-container-toolkit",
                "sudo nvidia-ctk runtime configure --runtime=docker",
                "sudo systemctl restart docker  # ends running containers",
                "docker info | grep -i -E 'runtimes|root dir'",
            ),
        ),
        (
            Signature(
                "could not select device driver",
                'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
                "could not select database",
                source="Docker 19.03 to 29",
            ),
            Signature(
                "nvidia",
                "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
                "unknown runtime",
                r"(?i)unknown (?:or invalid )?runtime (?:specified|name:?) \"?nvidia",
                source="Docker 19.03 to 29",
            ),
            Signature(
                "Unknown runtime specified nvidia",
                "docker: Error response from daemon: Unknown runtime specified nvidia.",
                "runtime specified",
                source="Docker 17 to 24",
            ),
            Signature(
                "is configured",
                'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured',
                'the runtime "nvidia" is configured',
                r"no runtime for \"nvidia[\w-]*\" is configured",
                source="containerd 1.4 to 2.1",
            ),
        ),
        judge=_daemon,
    ),
    Cause(
        "GPU254",
        "nvidia-smi-not-in-container",
        "nvidia-smi is not there: the container was started without the NVIDIA runtime.",
        "The runtime mounts nvidia-smi from the host; without --gpus, or without the utility capability, it is missing. On a host it comes with the driver.",
        "nvidia-smi is not there: the container was started without --gpus, or without the utility capability; on a host the driver is not installed",
        Remediation(
            "Start the container with GPUs and the utility capability",
            (
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                "ls -l /dev/nvidia*",
            ),
        ),
        (
            Signature(
                "nvidia-smi",
                "/bin/sh: 1: nvidia-smi: not found",
                "nvidia-smi -L",
                r"nvidia-smi: (?:command )?not found|\"nvidia-smi\": executable file not found",
                source="sh, bash, runc",
            ),
        ),
        kind=VAGUE,
        explains=("SES254",),
    ),
    Cause(
        "GPU255",
        "no-gpu-to-schedule",
        "No node has the GPUs that the pod or job asks for.",
        "All are taken, the request is larger than a node, a taint keeps the pod off, or the device plugin does not run.",
        "no node has the GPUs that are asked for ({what})",
        Remediation(
            "See what the nodes have and what holds it; look at taints and the device plugin",
            (
                "kubectl describe nodes | grep -A8 -E 'Allocated|nvidia.com/gpu'",
                "kubectl get pods -A -o wide | grep -v Completed",
                "kubectl -n kube-system get pods | grep nvidia",
                "sinfo -o '%N %G %t'",
            ),
        ),
        (
            Signature(
                "nsufficient nvidia.com/",
                "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                "nvidia.com/gpu: 1",
                r"(?P<what>(?:\d+ )?Insufficient nvidia\.com/[\w.-]+)",
                source="Kubernetes scheduler",
            ),
            Signature(
                "Requested node configuration is not available",
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
                "node configuration",
                r"(?P<what>Requested node configuration is not available)",
                source="Slurm",
            ),
            Signature(
                "devices unavailable for nvidia.com/",
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, "
                "Available: 0, which is unexpected",
                "devices for nvidia.com/gpu",
                r"(?P<what>requested number of devices unavailable for nvidia\.com/[\w.-]+\. Requested: \d+, Available: \d+)",
                source="Kubernetes 1.10 to 1.34, kubelet: the device plugin was restarted or sees the GPU as unhealthy",
            ),
        ),
    ),
    Cause(
        "GPU215",
        "no-driver-on-host",
        "The container toolkit found no NVIDIA driver on the host.",
        "The driver is not installed or not loaded, or the daemon (snap, Docker Desktop, rootless) sees another "
        "root file system than the one that has it.",
        "the NVIDIA container toolkit found no driver on the Docker host[[ ({what})]]: it is not installed or not "
        "loaded there, or the daemon in use (snap, Docker Desktop) does not see it",
        Remediation(
            "Install and load the driver on the host, see that nvidia-smi works there, and restart the daemon",
            (
                "nvidia-smi",
                "sudo modprobe nvidia",
                "sudo systemctl restart docker  # ends running containers",
                "docker info | grep -i 'root dir'",
            ),
        ),
        (
            Signature(
                "nvml error: ",
                "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
                "nvml error count",
                r"nvidia-container-cli: (?:initialization|detection) error: (?P<what>nvml error: [\w ]+)",
                source="libnvidia-container 1.x",
            ),
            Signature(
                "load library failed: libnvidia-ml.so",
                "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open "
                "shared object file: no such file or directory: unknown.",
                "load library libnvidia-ml.so",
                r"(?P<what>load library failed: libnvidia-ml\.so[\w.]*)",
                source="libnvidia-container 1.x",
            ),
            Signature(
                "GPU access blocked by the operating system",
                "Failed to initialize NVML: GPU access blocked by the operating system",
                "access blocked",
                r"(?P<what>GPU access blocked by the operating system)",
                source="NVML under WSL 2",
            ),
            Signature(
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "NVIDIA-SMI 535",
                source="nvidia-smi 390 to 590",
            ),
        ),
        explains=("PKG2", "GPU2"),
    ),
)

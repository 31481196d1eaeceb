"""What Kubernetes says of a pod that does not run."""

from __future__ import annotations

from torch_doctor.diagnose.cause import ECHO, VAGUE, Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "SES277",
        "pod-not-scheduled",
        "No node can take the pod.",
        "The scheduler names for each reason how many nodes it rules out: CPU, memory, taints, selectors, volumes.",
        "no node can take the pod ({what})",
        Remediation(
            "Ask for less than a node has free, or tolerate the taint; compare with the nodes",
            (
                "kubectl describe pod POD | tail -20",
                "kubectl describe nodes | grep -A8 'Allocated resources'",
                "kubectl get nodes -o custom-columns=N:.metadata.name,T:.spec.taints",
            ),
        ),
        (
            Signature(
                "nodes are available: ",
                "0/14 nodes are available: 14 Insufficient memory.",
                "14 nodes are available",
                r"0/\d+ nodes are available: (?P<what>(?![^\n]*nvidia\.com)[^\n]{1,160})",
                source="Kubernetes scheduler 1.18 to 1.34",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES278",
        "pod-configuration-not-found",
        "A secret, config map or volume that the pod names is not there.",
        "The container is not even created: CreateContainerConfigError and FailedMount name the object.",
        "the pod's container cannot be made: {what}",
        Remediation(
            "Create the object in the pod's namespace, or correct its name",
            ("kubectl describe pod POD | tail -20", "kubectl get secret,configmap,pvc -n NAMESPACE"),
        ),
        (
            Signature(
                ("MountVolume.SetUp failed", "Unable to attach or mount", "Multi-Attach error"),
                '  Warning  FailedMount  3s  kubelet  MountVolume.SetUp failed for volume "data" : secret "s3" not found',
                "MountVolume.SetUp succeeded",
                r"(?P<what>MountVolume\.SetUp failed for volume[^\n]*|Unable to attach or mount volumes[^\n]*|Multi-Attach error[^\n]*)",
                source="Kubernetes kubelet 1.18 to 1.34",
            ),
            Signature(
                ('secret "', 'configmap "', "persistentvolumeclaim"),
                '  Warning  Failed  3s  kubelet  Error: secret "wandb" not found',
                'secret "wandb" created',
                r"(?P<what>(?:secret|configmap|persistentvolumeclaim) \"[^\"]+\" not found)",
                source="Kubernetes kubelet 1.18 to 1.34",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES288",
        "pod-keeps-restarting",
        "A container ends again and again, and Kubernetes waits longer each time.",
        "CrashLoopBackOff is not the cause: the container's own log of its last end has it.",
        "the pod's container ends again and again (CrashLoopBackOff)[[, the last time with status {status}]]: its own log has "
        "the cause",
        Remediation(
            "Read the log of the container that ended, and how it ended",
            ("kubectl logs POD --previous", "kubectl describe pod POD | grep -A6 'Last State'"),
        ),
        (
            Signature(
                ("Back-off restarting failed container", "CrashLoopBackOff"),
                "  Warning  BackOff  2m  kubelet  Back-off restarting failed container trainer in pod train-0\n    Last State: "
                "Terminated\n      Reason: Error\n      Exit Code:    1",
                "restarting container",
                r"(?:Back-off restarting failed container|CrashLoopBackOff)(?:[^\n]*\n){0,12}?\s*Exit Code:\s*(?P<status>\d+)",
                source="Kubernetes kubelet 1.18 to 1.34",
            ),
            Signature(
                ("Back-off restarting failed container", "CrashLoopBackOff"),
                "train-0   0/1   CrashLoopBackOff   7 (32s ago)   12m",
                "restarting container",
                source="Kubernetes 1.18 to 1.34",
            ),
        ),
        kind=ECHO,
    ),
)

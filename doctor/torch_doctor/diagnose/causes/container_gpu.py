"""What keeps a container from getting its GPUs: device specifications (CDI), the toolkit's hook, frameworks' words."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: what nvidia-container-cli says -> (what it means, remedy). Source: libnvidia-container 1.0 to 1.18, 2026-11
_HOOK: tuple[tuple[str, str, Remediation], ...] = (
    (
        "unknown device",
        "the GPU that was asked for is not on this host (unknown device): NVIDIA_VISIBLE_DEVICES or --gpus names an "
        "index, a UUID or a MIG device that is not there",
        Remediation(
            "Take a name that is there",
            ("nvidia-smi -L", "docker run --gpus '\"device=0\"' ...", "docker run -e NVIDIA_VISIBLE_DEVICES=all ..."),
        ),
    ),
    (
        "file exists",
        "the image itself holds files of the driver, and the toolkit cannot mount the host's over them",
        Remediation(
            "Remove the driver's files from the image: it must not bring libcuda or libnvidia-ml",
            ("RUN rm -f /usr/lib/x86_64-linux-gnu/libnvidia-*.so* /usr/lib/x86_64-linux-gnu/libcuda.so*",),
        ),
    ),
    (
        "ldcache error",
        "the toolkit's hook did not find ldconfig, or could not read its cache",
        Remediation(
            "Set ldconfig's real path in the toolkit's configuration",
            (
                "sudo nvidia-ctk config --set nvidia-container-cli.ldconfig=@/sbin/ldconfig --in-place",
                "sudo systemctl restart docker  # ends running containers",
            ),
        ),
    ),
    (
        "driver rpc error: timed out",
        "the driver did not answer the toolkit in time: persistence mode is off on a host with many GPUs, or the "
        "driver hangs",
        Remediation(
            "Switch persistence on, and look for an Xid",
            ("sudo nvidia-smi -pm 1", "dmesg -T | grep -i -E 'xid|nvrm'", "nvidia-smi"),
        ),
    ),
)


def _stale(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A specification names files with the driver's version in them, and is stale after an upgrade."""
    if not seen.groups.get("old"):
        return verdict
    return with_message(
        verdict,
        f"the host's CDI specification names files of driver {seen.groups['old']}, which are gone: the driver was upgraded after "
        "the specification was made",
    )


def _hook(seen: Seen, verdict: Verdict) -> Verdict | None:
    text = seen.groups["what"]
    for words, meaning, remedy in _HOOK:
        if words in text:
            return with_message(verdict, meaning, remedy)
    return verdict


#: GPUs before Ampere, which have no bf16
_BEFORE_AMPERE = r"\bV100\b|\bT4\b|\bP100\b|\bP40\b|\bK80\b|\bM60\b|GTX 1\d{3}|RTX 20\d0|TITAN|Quadro (?:RTX|[PM])"


def _no_bf16(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Transformers' text on bf16 has two causes; a GPU that the log names decides."""
    named = seen.find(_BEFORE_AMPERE) if "bf16" in seen.groups.get("what", "") else None
    if named is None:
        return verdict
    return with_message(
        verdict,
        f"the GPU ({named[0]}) has no bf16: it is older than Ampere (compute capability 8.0)",
        Remediation(
            "Train in fp16 with a GradScaler, or in float32",
            ("TrainingArguments(bf16=False, fp16=True)", "Trainer(precision='16-mixed')"),
        ),
    )


register(
    Cause(
        "GPU256",
        "cdi-device-not-defined",
        "The container asks for a CDI device that no specification on the host defines.",
        "CDI names devices in files under /etc/cdi and /var/run/cdi. Without the file, or after a driver upgrade that "
        "made it stale, the name cannot be resolved. The container never started.",
        "no CDI specification on the host defines the device[[ {device}]]: it was never generated, or the driver that "
        "it is generated from does not work",
        Remediation(
            "See that nvidia-smi works on the host, generate the specification, and list what it defines",
            (
                "nvidia-smi",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                "nvidia-ctk cdi list",
                "sudo systemctl restart docker  # ends running containers; Podman needs no restart",
            ),
        ),
        (
            Signature(
                "unresolvable CDI devices",
                "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
                "CDI devices",
                r"unresolvable CDI devices (?P<device>[\w./=:,-]+)",
                source="Docker 25 to 29, Podman 4 and 5, containerd 1.7 and 2",
            ),
            Signature(
                "CDI",
                "Error response from daemon: CDI device injection failed: unresolvable CDI devices",
                "CDI spec loaded",
                r"CDI (?:device )?injection failed|CDI registry has errors|failed to (?:inject|resolve) CDI devices",
                source="Docker 25 to 29, containerd 1.7 and 2",
            ),
            Signature(
                "stat ",
                "Error: crun: cannot stat `/usr/lib64/libEGL_nvidia.so.550.54.14`: No such file or directory: OCI runtime attempted "
                "to invoke a command that was not found",
                "cannot stat '/data/x.so'",
                r"(?:cannot stat|: stat|lstat) [`'\"]?/\S*(?:nvidia|libcuda)\S*\.so\.(?P<old>\d+\.[\d.]*\d)[`'\"]?: ?[Nn]o such file",
                source="crun 1.x, runc 1.x with a CDI specification that names the files of another driver",
            ),
        ),
        judge=_stale,
        explains=("GPU208", "GPU212", "GPU258", "SES254"),
    ),
    Cause(
        "GPU258",
        "toolkit-hook-failed",
        "nvidia-container-cli, the toolkit's hook, could not prepare the container.",
        "The daemon's line is long; what counts is what follows 'nvidia-container-cli'. The container never started.",
        "the NVIDIA container toolkit could not prepare the container: {what}",
        Remediation(
            "See that the driver works on the host, and ask the toolkit itself",
            (
                "nvidia-smi",
                "sudo nvidia-container-cli -k -d /dev/tty info",
                "sudo systemctl restart docker  # ends running containers",
            ),
        ),
        (
            Signature(
                "nvidia-container-cli",
                "OCI runtime create failed: error running prestart hook: nvidia-container-cli: device error: 7: unknown device: "
                "unknown.",
                "nvidia-container-cli info",
                r"nvidia-container-cli(?:\.real)?: (?P<what>(?:mount|device|ldcache|detection|container|initialization) "
                r"error: (?!nvml error|load library failed|failed to add device rules|open failed: /sys)[^\n]{1,200}?)(?:: unknown)?[.\\]*$",
                source="libnvidia-container 1.x",
            ),
        ),
        judge=_hook,
    ),
    Cause(
        "GPU257",
        "framework-sees-no-gpu",
        "A trainer was asked for a GPU, or for a precision that needs one, and torch sees none.",
        "Lightning, Transformers and Accelerate stop before CUDA says a word. A CPU build of torch, a driver that is "
        "too old, a container without GPUs or CUDA_VISIBLE_DEVICES give the same.",
        "the framework was set to use a GPU[[ ({what})]] and torch sees none: a container without --gpus, hidden "
        "devices, a driver that is too old, or a CPU build of torch",
        Remediation(
            "Ask torch itself what it sees; then start with a GPU, or set the trainer to the CPU",
            (
                'python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"',
                "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
                "docker run --gpus all ...",
                "Trainer(accelerator='cpu')  # Lightning;  TrainingArguments(use_cpu=True)  # Transformers",
            ),
        ),
        (
            Signature(
                ("No supported gpu backend found", "can not run on your system"),
                "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
                "No supported backend",
                r"(?P<what>No supported gpu backend found|\w*(?:CUDA|GPU)\w*` can not run on your system since[^\n]*)",
                source="Lightning 1.6 to 2.6",
            ),
            Signature(
                "support bf16/gpu",
                "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
                "cuda>=11.0",
                "bf16 supported",
                r"Your setup doesn't support (?P<what>bf16/gpu)",
                source="Transformers 4.20 to 5: also a GPU older than Ampere",
            ),
            Signature(
                ("mixed precision requires a GPU", "can only be used on CUDA"),
                "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
                "mixed precision on",
                r"(?P<what>\w+ mixed precision requires a GPU|FP16 Mixed precision training with AMP[^\n]{0,80}can only be "
                r"used on CUDA)",
                source="Accelerate 0.10 to 1.13, Transformers 4.x",
            ),
        ),
        kind=VAGUE,
        judge=_no_bf16,
        alternatives=("GPU212",),
        decide='python -c "import torch; print(torch.version.cuda, torch.cuda.is_available())"',
    ),
)

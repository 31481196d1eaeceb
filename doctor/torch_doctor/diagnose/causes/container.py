"""What the container engine and the kernel say when a program cannot start."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, VAGUE, Cause, Signature, register, with_message
from torch_doctor.model import Remediation

register(
    Cause(
        "SES251",
        "binary-of-another-architecture",
        "The program is built for another architecture, or a script has no first line that names its interpreter.",
        "The kernel refuses both with the same text, exec format error: an arm64 image on an x86 host, or a script "
        "without #!.",
        "the kernel cannot execute the program[[ {path}]][[ {file}]]: the image is built for another architecture, or the script has no #! line",
        Remediation(
            "Compare the architectures and pull or build for the host's; give scripts a #! line",
            (
                "docker image inspect -f '{{.Architecture}}' IMAGE; uname -m",
                "docker build --platform linux/amd64 ...",
                "head -1 SCRIPT  # has to begin with #!, as #!/usr/bin/env bash",
            ),
        ),
        (
            Signature(
                "xec format error",
                "exec /usr/local/bin/entrypoint.sh: exec format error",
                "format error in line 3",
                r"(?:(?<![\w./-])(?!caused\b)(?P<path>/?[\w./-]+)\"?: (?:cannot execute binary file: )?|caused:? \"?|\[Errno 8\] )"
                r"[Ee]xec format error(?:: '(?P<file>[^'\n]+)')?",
                source="Docker 17 to 29, runc, bash",
            ),
        ),
        explains=("SES2",),
        decide="docker image inspect -f '{{.Architecture}}' IMAGE; uname -m; head -1 SCRIPT",
    ),
    Cause(
        "SES252",
        "windows-line-ends-in-script",
        "A script has Windows line ends: the carriage return becomes part of the interpreter's name.",
        "It was checked out with CRLF and copied into the image. The file that is 'not found' is bash\\r.",
        "a script has Windows line ends (CRLF): the interpreter's name ends in a carriage return",
        Remediation(
            "Convert the script to LF, and keep it so in git",
            ("sed -i 's/\\r$//' SCRIPT", "echo '*.sh text eol=lf' >> .gitattributes"),
        ),
        (
            Signature(
                ("\\r", "^M", "contains DOS line breaks"),
                "/usr/bin/env: 'bash\\r': No such file or directory",
                "/usr/bin/env: 'bash': No such file or directory",
                r"(?:Batch script contains DOS line breaks|/usr/bin/env: ['‘]\w+\\r['’]|(?:bad interpreter: )?/\S+\^M|\$'\\r': command not found"
                r"|exec: \"?/\S+\\r)",
                source="coreutils, bash, runc",
            ),
        ),
        explains=("SES2", "FS2"),
    ),
    Cause(
        "SES253",
        "start-script-not-executable",
        "The start script has no permission to execute.",
        "COPY keeps the mode of the checkout; a file from Windows or a zip has no x bit. A noexec mount refuses, too.",
        "the container's start command {path} may not be executed: it has no x bit, or lies on a noexec mount",
        Remediation(
            "Give it the bit in the image, or start it through its interpreter",
            (
                "COPY --chmod=755 run.sh /app/run.sh",
                "git update-index --chmod=+x run.sh",
                'ENTRYPOINT ["bash", "/app/run.sh"]',
            ),
        ),
        (
            Signature(
                "permission denied",
                'runc create failed: unable to start container process: exec: "/app/run.sh": permission denied: unknown.',
                "dial unix /var/run/docker.sock: connect: permission denied",
                r"exec:? \"?(?P<path>[^\"\s:]+)\"?: (?:stat [^:\n]+: )?permission denied",
                source="runc 1.0 to 1.3, Docker 17 to 29",
            ),
        ),
        explains=("SES2", "FS202"),
    ),
    Cause(
        "SES254",
        "start-command-not-found",
        "The command that the container is to start does not exist in the image.",
        "A wrong name, a PATH without it, or a mount that hides the folder it lies in.",
        "the container's start command {path} is not in the image, or a mount hides it",
        Remediation(
            "Look for it in the image without the mounts, and give its full path",
            ("docker run --rm --entrypoint ls IMAGE -l FOLDER", "docker run --rm IMAGE sh -c 'command -v python'"),
        ),
        (
            Signature(
                ("executable file not found in $PATH", "no such file or directory: unknown"),
                'exec: "torchrun": executable file not found in $PATH: unknown.',
                'exec: "/app/run.sh": permission denied: unknown.',
                r"exec:? \"(?P<path>[^\"]+)\": (?:executable file not found in \$PATH|(?:stat [^:\n]+: )?no such file or "
                r"directory: unknown)",
                source="runc 1.0 to 1.3, Docker 17 to 29",
            ),
        ),
        explains=("SES2", "FS208"),
    ),
    Cause(
        "SES255",
        "docker-socket-not-permitted",
        "The user may not use Docker's socket.",
        "The socket belongs to root and the docker group. A user who was added to the group gets it at the next login.",
        "this user may not use Docker's socket: it belongs to the docker group",
        Remediation(
            "Join the docker group and log in anew (it is as powerful as root), or use sudo or rootless Docker",
            ("sudo usermod -aG docker $USER && newgrp docker", "ls -l /var/run/docker.sock; id"),
        ),
        (
            Signature(
                "trying to connect to the ",
                "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                r"[Pp]ermission denied while trying to connect to the (?:Docker daemon socket|docker API)",
                source="Docker 1.13 to 29",
            ),
        ),
    ),
    Cause(
        "SES257",
        "container-not-running",
        "The container has ended, so that nothing can be executed in it.",
        "docker exec needs a running container; its main process has ended.",
        "the container {name} is not running: its main process has ended",
        Remediation(
            "See how it ended, and start it again",
            (
                "docker ps -a --filter id=CONTAINER",
                "docker logs --tail 50 CONTAINER",
                "docker inspect -f '{{.State.ExitCode}} {{.State.OOMKilled}}' CONTAINER",
            ),
        ),
        (
            Signature(
                "o such container: ",
                "Error response from daemon: No such container: train",
                "No such file: train",
                r"[Nn]o such container: (?P<name>\S+)",
                source="Docker 1.10 to 29",
            ),
            Signature(
                "is restarting, wait until",
                "Error response from daemon: container 4f5a is restarting, wait until the container is running",
                "the worker is restarting",
                r"[Cc]ontainer (?P<name>\S+) is restarting, wait until",
                source="Docker 1.10 to 29",
            ),
            Signature(
                "is not running",
                "Error response from daemon: Container 4f5a is not running",
                "the container is running",
                r"[Cc]ontainer (?P<name>\S+) is not running",
                source="Docker 1.10 to 29",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(
            verdict,
            f"there is no container {seen.groups['name']}: another name, another Docker context, or it was removed (--rm)"
            if "uch container" in seen.log.lines[seen.index].text
            else f"the container {seen.groups['name']} ends and is restarted again and again: its own log has the cause"
            if "restarting" in seen.log.lines[seen.index].text
            else verdict.message,
        ),
    ),
    Cause(
        "SES256",
        "init-is-not-pid-1",
        "tini does not run as PID 1, so that it cannot reap orphans.",
        "docker run --init, or a shell as the entry point, starts another process first. Orphaned workers then stay as "
        "zombies.",
        "tini does not run as PID 1 and reaps no orphaned processes: another process was started before it",
        Remediation(
            "Start tini first (ENTRYPOINT), or tell it to be a subreaper",
            ('ENTRYPOINT ["tini", "--"]', "tini -s -- python train.py", "docker run -e TINI_SUBREAPER=1 ..."),
        ),
        (
            Signature(
                "Tini is not running as PID 1",
                "[WARN  tini (7)] Tini is not running as PID 1 and isn't registered as a child subreaper.",
                "tini 0.19.0",
                source="tini 0.16 to 0.19",
            ),
        ),
        kind=DEGRADED,
    ),
    Cause(
        "GPU251",
        "gpu-devices-not-permitted",
        "The GPU's device nodes may not be opened, or the device cgroup cannot be changed.",
        "A user outside the group that owns /dev/nvidia*, a rootless engine that cannot write device rules, or an old "
        "nvidia-container-toolkit on cgroup v2.",
        "the container may not use the GPU's device nodes ({what})",
        Remediation(
            "Give the user the group that owns /dev/nvidia*; with a rootless engine set no-cgroups, or use CDI; update "
            "the toolkit where cgroup v2 is in use",
            (
                "ls -l /dev/nvidia*; id",
                "docker run --group-add $(stat -c %g /dev/nvidia0) ...",
                "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place  # rootless engines only",
                "sudo apt-get install --only-upgrade nvidia-container-toolkit  # on the host",
            ),
        ),
        (
            Signature(
                ("nsufficient Permissions", "nsufficient permissions"),
                "Failed to initialize NVML: Insufficient Permissions",
                "insufficient permissions for the bucket",
                r"(?:NVML|nvml|NVMLError_NoPermission)[^\n]*(?P<what>[Ii]nsufficient [Pp]ermissions)",
                source="NVML 390 to 590",
            ),
            Signature(
                ("failed to add device rules", "bpf_prog_query"),
                "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device "
                "filters attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
                "nvidia-container-cli: initialization error",
                r"(?P<what>failed to add device rules|bpf_prog_query\(BPF_CGROUP_DEVICE\) failed)",
                source="libnvidia-container 1.8 to 1.17",
            ),
            Signature(
                "open failed: /sys/fs/cgroup/devices",
                "nvidia-container-cli: mount error: open failed: /sys/fs/cgroup/devices/user.slice/devices.allow: "
                "permission denied",
                "open failed: /data",
                r"(?P<what>open failed: /sys/fs/cgroup/devices/\S+: permission denied)",
                source="libnvidia-container 1.0 to 1.17, rootless engines",
            ),
        ),
        explains=("GPU2", "SES2"),
    ),
    Cause(
        "SES260",
        "no-systemd-here",
        "systemctl was called where systemd is not PID 1.",
        "In a container the main process is PID 1: services are not started with systemctl there.",
        "systemctl cannot work here: systemd is not PID 1, as in most containers",
        Remediation(
            "Start the program itself in the foreground, one service a container; on a host use systemctl there",
            ("docker run -d --init IMAGE python train.py", "ps -p 1 -o comm="),
        ),
        (
            Signature(
                ("not been booted with systemd", "Failed to get D-Bus connection"),
                "System has not been booted with systemd as init system (PID 1). Can't operate.",
                "booted with systemd",
                source="systemd 219 to 258",
            ),
        ),
        kind=VAGUE,
    ),
)

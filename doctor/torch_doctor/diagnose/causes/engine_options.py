"""Options, names, networks and Compose files that the container engine refuses."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "SES274",
        "container-name-in-use",
        "A container of that name exists already.",
        "docker run without --rm leaves the ended container behind, with its name.",
        "a container with the name {name} exists already, from an earlier run",
        Remediation(
            "Remove the old one (what it wrote outside of volumes goes with it), or start it again; --rm removes it at its end",
            (
                "docker ps -a --filter name={name}",
                "docker start -a {name}  # runs the old one again",
                "docker rm {name}; docker run --rm --name {name} ...",
            ),
        ),
        (
            Signature(
                "is already in use by container",
                'docker: Error response from daemon: Conflict. The container name "/exp1" is already in use by '
                'container "4f5a".',
                "the name is in use",
                r"container name \"/?(?P<name>[^\"]+)\" is already in use by container",
                source="Docker 1.10 to 29",
            ),
        ),
    ),
    Cause(
        "SES294",
        "compose-file-invalid",
        "Docker Compose cannot read its file.",
        "A mistake of YAML (an indent, a tab, a colon in a value), an unknown key, or a volume, network or service that is "
        "used and not declared.",
        "Docker Compose (or another reader of YAML) refuses its file: {what}",
        Remediation(
            "Correct the file and let compose check it",
            (
                "docker compose config --quiet",
                "volumes: {data: {}}  # each named volume is declared at the top level",
            ),
        ),
        (
            Signature(
                (
                    "invalid compose project",
                    "yaml: line ",
                    "Additional property",
                    "undefined volume",
                    "undefined network",
                    "undefined service",
                ),
                'service "trainer" refers to undefined volume data: invalid compose project',
                "yaml: loaded",
                r"(?P<what>[^\n]*(?:refers to undefined (?:volume|network)[^\n]*|depends on undefined service[^\n]*|invalid compose project|"
                r"Additional property [^\n]*is not allowed)|^(?:[^\n:]{1,80}: )?yaml: line \d+: [^\n]+)",
                source="Docker Compose 1.27 to 2.40",
            ),
        ),
    ),
    Cause(
        "SES295",
        "limit-not-permitted",
        "The engine may not set a limit that was asked for.",
        "--ulimit above the hard limit of the daemon: a rootless engine, or a daemon that systemd limits.",
        "the container engine may not set the limit that was asked for (--ulimit): it is above the daemon's own hard limit",
        Remediation(
            "Leave the option out, or raise the daemon's limit",
            (
                "sudo systemctl edit docker  # [Service] LimitMEMLOCK=infinity LimitNOFILE=1048576",
                "ulimit -H -l; ulimit -H -n",
            ),
        ),
        (
            Signature(
                ("error setting rlimit", "setting rlimits for ready process"),
                "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown.",
                "setting rlimit done",
                r"error setting rlimits? [^\n]*operation not permitted",
                source="runc 1.0 to 1.3",
            ),
        ),
        explains=("SES2",),
    ),
    Cause(
        "SES290",
        "docker-option-refused",
        "docker refused an option of the command line.",
        "A value that the host or the daemon does not allow, a unit that it does not know, or an option that its version "
        "does not have (--gpus came with 19.03).",
        "docker refused an option: {what}",
        Remediation(
            "Correct the value (sizes are 8g or 512m), or update Docker",
            (
                "docker version; docker run --help | less",
                "nproc; free -g",
                "docker run --shm-size=8g --memory=64g --cpus=8 ...",
            ),
        ),
        (
            Signature(
                (
                    "Range of CPUs is from",
                    "inimum memory",
                    "unknown flag: --",
                    "unknown shorthand flag",
                    "conflicting options:",
                ),
                "docker: Error response from daemon: Range of CPUs is from 0.01 to 8.00, as there are only 8 CPUs available.",
                "the range of CPUs",
                r"(?P<what>Range of CPUs is from[^\n]*|[Mm]inimum memory (?:limit|reservation)[^\n]*|^(?:docker: )?unknown (?:flag: --|shorthand flag)[^\n]*|"
                r"conflicting options:[^\n]*)",
                source="Docker 17 to 29",
            ),
            Signature(
                'invalid argument "',
                'docker: invalid argument "8gigs" for "--shm-size" flag: invalid size: \'8gigs\'',
                "invalid argument to the function",
                r"(?P<what>invalid argument \"[^\"]*\" for \"[^\"]*--[^\"]+\" flag[^\n]*)",
                source="Docker 17 to 29",
            ),
        ),
    ),
    Cause(
        "SES235",
        "docker-network-unusable",
        "The network that the container is to join is missing or cannot be used.",
        "It was removed, belongs to another context, is an overlay of a swarm that is not attachable, or the pools of "
        "addresses are used up by old networks.",
        "the container's network cannot be used: {what}",
        Remediation(
            "List the networks, make the one that is missing, and remove old ones",
            (
                "docker network ls; docker network create mlnet",
                "docker network create --driver overlay --attachable NAME",
                "docker network prune",
            ),
        ),
        (
            Signature(
                ("network ", "Could not attach to network"),
                "docker: Error response from daemon: network mlnet not found.",
                "the network was not found by ping",
                r"(?P<what>(?<=daemon: )network \S+ not found|Could not attach to network \S+|network \S+ declared as external, but could not be found)",
                source="Docker 17 to 29",
            ),
            Signature(
                ("non-overlapping IPv4 address pool", "Pool overlaps with other one"),
                "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
                "an overlapping pool",
                r"(?P<what>could not find an available, non-overlapping IPv4 address pool|Pool overlaps with other one)",
                source="Docker 17 to 29",
            ),
        ),
    ),
    Cause(
        "SES286",
        "image-name-malformed",
        "The image's name, or what stands in its place on the command line, is malformed.",
        "Capitals in a name, an empty variable, or a path with a space that is not quoted: docker takes the next word for "
        "the image.",
        "docker cannot read the image's name: capitals, an empty variable, or an unquoted path with a space before it",
        Remediation(
            "Quote paths and variables, and see what docker gets",
            ('docker run -v "$PWD":/workspace -w /workspace IMAGE ...', "set -x  # before the command, in a script"),
        ),
        (
            Signature(
                ("invalid reference format", "repository name must be lowercase"),
                "docker: invalid reference format.",
                "invalid reference to the format",
                source="Docker 1.13 to 29",
            ),
        ),
    ),
)

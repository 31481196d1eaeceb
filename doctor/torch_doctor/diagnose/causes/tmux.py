"""Servers, sockets and sessions of tmux and screen."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import FATAL, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def at_once(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A container that ended with 0 and printed nothing of a training."""
    others = [line.text for line in seen.log.lines if line.text.strip()]
    if seen.has(r"tmux new(?:-session)? [^\n]*-d|tmux new -d|screen -dmS|nohup[^\n]*&\s*$"):
        return verdict
    rest = re.sub(r"\S+ exited with code 0\b", "", "\n".join(others))
    if re.search(r"(?i)\b(?:train|epoch|step|loss|acc|finish|complet|sav)", rest):
        return None
    return verdict if len(others) <= 2 else None


register(
    Cause(
        "SES208",
        "tmux-socket-folder-unsafe",
        "tmux's socket folder exists with another owner or a wide mode.",
        "A persisted or shared /tmp, or a changed uid, leaves /tmp/tmux-UID with another owner or mode.",
        "tmux refuses its socket folder {path}: it has another owner, or a mode wider than 700 (a volume on /tmp, "
        "or a changed uid)",
        Remediation(
            "Give tmux a folder of its own with mode 700",
            ("export TMUX_TMPDIR=$(mktemp -d)", "mkdir -m 700 ~/.tmux-socket && export TMUX_TMPDIR=~/.tmux-socket"),
        ),
        (
            Signature(
                "has unsafe permissions",
                "directory /tmp/tmux-0 has unsafe permissions",
                "file has permissions",
                r"directory (?P<path>\S+) has unsafe permissions",
                source="tmux 2.0 to 3.6",
            ),
            Signature(
                ("is not owned by you", "must have mode"),
                "/tmp/uscreens/S-root is not owned by you",
                "x is owned by you",
                r"(?P<path>/\S+) (?:is not owned by you|must have mode \d+)",
                source="screen 4 and 5",
            ),
            Signature(
                "Cannot make directory",
                "Cannot make directory '/run/screen': Permission denied",
                "cannot make",
                r"Cannot make directory '(?P<path>[^']*screen[^']*)'",
                source="screen 4 and 5",
            ),
            Signature(
                "must have mode",
                "Directory '/run/screen' must have mode 777.",
                "must have a mode",
                r"Directory '?(?P<path>[^' ]+)'? must have mode \d+",
                source="screen 4 and 5",
            ),
            Signature(
                "Permission denied",
                "error connecting to /tmp/tmux-1000/default (Permission denied)",
                "error connecting to /tmp/tmux-1000/default (No such file or directory)",
                r"error (?:connecting to|creating) (?P<path>/\S*tmux\S*) \(Permission denied\)",
                source="tmux 2 to 3.6",
            ),
        ),
    ),
    Cause(
        "SES209",
        "tmux-socket-on-read-only-fs",
        "tmux cannot replace its socket: the file system is read-only.",
        "The stale socket of an earlier server cannot be removed on a file system that went, or was mounted, "
        "read-only.",
        "tmux cannot create its socket {path}: the file system is read-only, so the stale socket there cannot be "
        "replaced",
        Remediation(
            "Repair or remount the file system, or put the socket on a tmpfs",
            (
                "findmnt -T /tmp -o OPTIONS",
                "export TMUX_TMPDIR=/dev/shm",
                "docker run --read-only --tmpfs /tmp:exec ...",
            ),
        ),
        (
            Signature(
                "error creating",
                "error creating /tmp/tmux-0/default (Address already in use)",
                "error creating the model",
                r"error creating (?P<path>/\S+) \((?:Address already in use|Read-only file system)\)",
                source="tmux 2.0 to 3.6",
            ),
            Signature(
                "couldn't create directory",
                "couldn't create directory /tmp/tmux-0 (Read-only file system)",
                "couldn't create",
                r"couldn't create directory (?P<path>/\S+) \(Read-only",
                source="tmux 3.x",
            ),
        ),
        decide="findmnt -T /tmp -o TARGET,OPTIONS; touch /tmp/x",
    ),
    Cause(
        "SES210",
        "tmux-as-main-process",
        "A container's main process ended at once with status 0: tmux went into the background.",
        "tmux new -d, like nohup with &, returns at once; PID 1 ends, the container stops, and takes the training "
        "along.",
        "the container's main process ended with 0 and no training in its log: tmux new -d (or nohup with &) goes "
        "into the background, PID 1 ends and the container stops with the training in it",
        Remediation(
            "Keep a process in the foreground as PID 1 and start tmux inside, or let torch-doctor run hold the "
            "session",
            (
                "docker run -d --init IMAGE sleep infinity; docker exec -it CONTAINER tmux new -s run",
                "docker run -d IMAGE torch-doctor run --name exp1 -- python train.py",
            ),
        ),
        (
            Signature(
                "exited with code 0",
                "trainer exited with code 0",
                "trainer exited with code 1",
                r"exited with code 0\b",
                source="Docker, compose",
            ),
        ),
        kind=FATAL,
        judge=at_once,
        decide="docker inspect -f '{{.Config.Cmd}} {{.State.StartedAt}} {{.State.FinishedAt}}' CONTAINER",
    ),
    Cause(
        "SES214",
        "tmux-server-gone",
        "The tmux or screen server is not there any more, or not where the client looks.",
        "It ended with its container or its last session, was killed (OOM killer, systemd's KillUserProcesses at "
        "logout), or listens in another TMUX_TMPDIR or for another uid.",
        "no tmux server answers at {path}: it ended with its container or was killed, or it runs for another uid "
        "or TMUX_TMPDIR",
        Remediation(
            "Look with the uid and TMUX_TMPDIR that started it; keep PID 1 of the container alive; on the host, "
            "let processes live after logout",
            (
                "tmux -S PATH ls; echo $TMUX_TMPDIR; id -u",
                "docker exec -u 0 CONTAINER ps aux | grep tmux",
                "sudo loginctl enable-linger $USER; systemd-run --user --scope tmux new -s NAME",
            ),
        ),
        (
            Signature(
                "(Dead ???)",
                "There is a screen on:\n\t4242.exp1\t(Dead ???)\nRemove dead screens with 'screen -wipe'.",
                "(Dead)",
                source="screen 4 and 5",
            ),
            Signature(
                "no server running on",
                "no server running on /tmp/tmux-1000/default",
                "server running on port 80",
                r"no server running on (?P<path>/\S+)",
                source="tmux 2 to 3.6",
            ),
            Signature(
                "error connecting to",
                "error connecting to /tmp/tmux-1000/default (No such file or directory)",
                "error connecting to the tracker",
                r"error connecting to (?P<path>/\S*tmux\S*) \((?:No such file or directory|Connection refused)\)",
                source="tmux 2 to 3.6",
            ),
            Signature(
                ("lost server", "server exited unexpectedly"),
                "[server exited unexpectedly]",
                "server exited",
                r"^\[?(?:lost server|server exited unexpectedly)\]?$(?P<path>)",
                source="tmux 2 to 3.6",
            ),
            Signature(
                "There is no screen to be resumed",
                "There is no screen to be resumed matching exp1.",
                "no screen",
                source="screen 4 and 5",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace(" at ?", "").replace(" at :", ":")),
    ),
    Cause(
        "SES292",
        "no-such-session",
        "No session of that name can be attached.",
        "It has ended, has another name, belongs to another user or socket, or (screen) is attached elsewhere.",
        "the session[[ {name}]] is not there: it has ended, has another name, or belongs to another user or socket",
        Remediation(
            "List the sessions with the user that started it; a session of screen that is attached elsewhere is taken "
            "over with -d -r",
            ("tmux ls; echo $TMUX_TMPDIR; id -un", "screen -ls; screen -d -r NAME"),
        ),
        (
            Signature(
                "(Attached)",
                "There is a screen on:\n\t12123.train\t(Attached)\nThere is no screen to be resumed matching train.",
                "There is a screen on:\n\t12123.train\t(Detached)\nThere is no screen to be resumed matching x.",
                r"(?P<attached>\(Attached\))(?:[^\n]*\n){1,12}?There is no screen to be resumed",
                source="screen 4 and 5",
            ),
            Signature(
                ("can't find session", "no current session", "session not found"),
                "can't find session: train",
                "find session",
                r"^(?:tmux: )?(?:can't find session:? ?(?P<name>\S*)|no current session|session not found: \S*)",
                source="tmux 1.8 to 3.6",
            ),
        ),
        kind=VAGUE,
        judge=lambda seen, verdict: (
            with_message(
                verdict, "the session is attached on another terminal (Attached), so that screen -r does not take it"
            )
            if "attached" in seen.groups
            else verdict
        ),
        explains=("SES214",),
    ),
    Cause(
        "SES244",
        "tmux-session-exists-or-nested",
        "tmux was asked for a session that exists, or from inside of another one.",
        "A session name is unique; a session inside a session needs its own reason.",
        "tmux refused: {what}",
        Remediation(
            "Attach to the session that exists, or take another name; inside tmux switch in place of attaching",
            (
                "tmux new -A -s NAME",
                "tmux switch-client -t NAME",
                "env -u TMUX tmux attach -t NAME",
            ),
        ),
        (
            Signature(
                "duplicate session: ",
                "duplicate session: train",
                "duplicate sessions",
                r"(?P<what>duplicate session: \S+)",
                source="tmux 1.8 to 3.6",
            ),
            Signature(
                "sessions should be nested with care",
                "sessions should be nested with care, unset $TMUX to force",
                "nested sessions",
                r"(?P<what>sessions should be nested with care)",
                source="tmux 1.8 to 3.6",
            ),
        ),
    ),
    Cause(
        "SES245",
        "tmux-versions-differ",
        "The tmux client and the running server are of different versions.",
        "tmux was upgraded while its server runs; the protocol changed.",
        "the tmux client cannot talk to the running server: they are of different versions ({what})",
        Remediation(
            "Attach with the binary that the server runs from, or end the server when the work is done",
            (
                "/proc/$(pgrep -o tmux)/exe attach",
                "tmux kill-server  # ends all sessions",
            ),
        ),
        (
            Signature(
                "protocol version mismatch",
                "protocol version mismatch (client 8, server 7)",
                "version mismatch",
                r"protocol version mismatch \((?P<what>client \d+, server \d+)\)",
                source="tmux 1.6 to 3.6",
            ),
        ),
    ),
)

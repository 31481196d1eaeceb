"""Terminals: absent, unknown, of another user, or gone."""

from __future__ import annotations

from torch_doctor.diagnose.cause import HINT, Cause, Signature, register, with_message
from torch_doctor.model import Remediation

register(
    Cause(
        "SES205",
        "no-terminal-for-tmux",
        "tmux was started without a terminal.",
        "docker exec without -t, cron and CI give no terminal. A detached session needs none.",
        "tmux was started without a terminal (docker exec without -t, or a job)",
        Remediation(
            "Allocate one with -it, or start the session detached",
            ("docker exec -it CONTAINER tmux attach -t run", "tmux new-session -d -s run 'python train.py'"),
        ),
        (
            Signature(
                "open terminal failed: not a terminal",
                "open terminal failed: not a terminal",
                "not a terminal: stdout",
                source="tmux 2 to 3.6",
            ),
            Signature(
                "the input device is not a TTY",
                "the input device is not a TTY",
                "input device",
                source="Docker 1.10 to 29",
            ),
            Signature(
                "Must be connected to a terminal",
                "Must be connected to a terminal.",
                "connected to a terminal server",
                source="screen 4 and 5",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(
                verdict,
                "docker was told to use a terminal (-t), and its own input is none (a job, CI, a pipe)",
                Remediation(
                    "Leave -t out there: -i alone takes a pipe",
                    ("docker run -i ...  # in place of -it", "docker exec CONTAINER ..."),
                ),
            )
            if "the input device" in seen.log.lines[seen.index].text
            else verdict
        ),
    ),
    Cause(
        "SES206",
        "unknown-terminal-type",
        "The image's terminfo has no entry for this TERM.",
        "xterm-kitty, xterm-ghostty, alacritty and tmux-256color are not in minimal images.",
        "the terminal type {term} has no terminfo entry in this image",
        Remediation(
            "Use a TERM that it has, or install ncurses-term",
            ("TERM=xterm-256color tmux attach", "apt-get install -y ncurses-term"),
        ),
        (
            Signature(
                "missing or unsuitable terminal",
                "open terminal failed: missing or unsuitable terminal: xterm-kitty",
                "unsuitable terminal",
                r"missing or unsuitable terminal: (?P<term>\S+)",
                source="tmux 1.8 to 3.6",
            ),
            Signature(
                "find terminfo database",
                "open terminal failed: can't find terminfo database",
                "terminfo database updated",
                r"can't find (?P<term>terminfo database)",
                source="tmux 1.8 to 3.6",
            ),
            Signature(
                "unknown terminal type",
                "'xterm-ghostty': unknown terminal type.",
                "unknown type",
                r"'?(?P<term>[\w.+-]+)'?: unknown terminal type",
                source="ncurses 6",
            ),
            Signature(
                "Cannot find terminfo entry for",
                "Cannot find terminfo entry for 'xterm-kitty'.",
                "terminfo",
                r"Cannot find terminfo entry for '(?P<term>[^']+)'",
                source="screen 4 and 5",
            ),
        ),
        judge=lambda seen, verdict: (
            with_message(verdict, "this image has no terminfo database, so that no terminal type is known")
            if seen.groups["term"] == "terminfo database"
            else verdict
        ),
    ),
    Cause(
        "SES258",
        "reader-of-output-gone",
        "The program printed into a pipe whose reader had ended.",
        "head, less or a tee that was killed closes the pipe; the next print fails. No other process of the run is at fault.",
        "a print failed: the program that reads its output (head, less, tee, a viewer) ended first",
        Remediation(
            "Write to a file and look at that, or let the reader read to the end",
            (
                "python train.py > train.log 2>&1; head -20 train.log",
                "torch-doctor run --name exp1 -- python train.py",
            ),
        ),
        (
            Signature(
                "BrokenPipeError: [Errno 32] Broken pipe",
                '  File "train.py", line 30, in <module>\n    print(loss)\nBrokenPipeError: [Errno 32] Broken pipe',
                '  File "multiprocessing/connection.py", line 368, in _send\n    n = write(self._handle, buf)\nBrokenPipeError: [Errno '
                "32] Broken pipe",
                r"(?:print\(|sys\.stdout|sys\.stderr|console\.print)[^\n]*\n(?:[^\n]*\n){0,2}?BrokenPipeError: \[Errno 32\] Broken pipe",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("WRK222",),
    ),
    Cause(
        "SES259",
        "terminal-of-session-lost",
        "The terminal of a tmux client is gone; the session is not.",
        "The SSH connection or the window closed. What runs in the session goes on.",
        "tmux lost the terminal of its client: the connection or window was closed, and the session itself goes on",
        Remediation("Attach to it again", ("tmux ls; tmux attach -t NAME",)),
        (
            Signature(
                "[lost tty]",
                "[lost tty]",
                "lost tty",
                r"^\[lost tty\]",
                source="tmux 1.8 to 3.6",
            ),
        ),
        kind=HINT,
    ),
    Cause(
        "SES207",
        "no-utf8-locale-for-tmux",
        "tmux found no UTF-8 locale.",
        "A minimal image has LANG unset, or a locale that is not installed.",
        "tmux needs a UTF-8 locale[[, and the environment says {have}]]",
        Remediation("Set LANG=C.UTF-8", ("docker run -e LANG=C.UTF-8 ...", "ENV LANG=C.UTF-8")),
        (
            Signature(
                "need UTF-8 locale",
                "tmux: need UTF-8 locale (LC_CTYPE) but have ANSI_X3.4-1968",
                "UTF-8 locale set",
                r"need UTF-8 locale \(LC_CTYPE\) but have (?P<have>\S+)",
                source="tmux 2.2 to 3.6",
            ),
            Signature(
                "invalid LC_ALL, LC_CTYPE or LANG",
                "tmux: invalid LC_ALL, LC_CTYPE or LANG",
                "LC_ALL set",
                r"invalid LC_ALL, LC_CTYPE or LANG(?P<have>)",
                source="tmux 2.2 to 3.6",
            ),
        ),
    ),
    Cause(
        "SES216",
        "terminal-gone-while-printing",
        "The program printed to a terminal that was gone.",
        "After the SSH connection or the terminal closed, a write to it fails with errno 5 or a broken pipe; the "
        "storage has nothing to do with it.",
        "a print failed ({what}): the terminal or SSH connection that the program wrote to was closed",
        Remediation(
            "Run it in a session that outlives the connection and write to a log: torch-doctor run, tmux, or nohup "
            "with a file",
            (
                "torch-doctor run --name exp1 -- python train.py",
                "tmux new -s exp1",
                "nohup python train.py > train.log 2>&1 &",
            ),
        ),
        (
            Signature(
                "[Errno 5] Input/output error",
                '  File "train.py", line 31, in main\n    print(f"step {i}")\nOSError: [Errno 5] Input/output error',
                "OSError: [Errno 5] Input/output error: '/mnt/data/1.bin'",
                r"(?:print\(|sys\.std|stream\.(?:write|flush)|fp\.(?:write|flush)|tqdm|logging/__init__"
                r"|console\.)[^\n]*\n(?:.*\n){0,6}?"
                r"OSError: (?P<what>\[Errno 5\] Input/output error)$",
                source="python 3.8 to 3.14",
            ),
        ),
        explains=("FS209", "SES2"),
    ),
    Cause(
        "SES215",
        "terminal-belongs-to-another-user",
        "screen cannot open the terminal after su or in docker exec.",
        "The terminal device belongs to the user who logged in.",
        "screen cannot open its terminal {path}: the device belongs to another user (after su), or there is none",
        Remediation(
            "Log in as that user, or start the terminal through script",
            ("script /dev/null -c 'screen -r'", "docker exec -it -u trainer CONTAINER screen -r"),
        ),
        (
            Signature(
                "Cannot open your terminal",
                "Cannot open your terminal '/dev/pts/0' - please check.",
                "Cannot open the file",
                r"Cannot open your terminal '(?P<path>[^']*)'",
                source="screen 4 and 5",
            ),
        ),
    ),
)

"""Programs without their standard input, terminal or encoding."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def asked(seen: Seen, verdict: Verdict) -> Verdict | None:
    """sudo and a terminal's settings need a terminal for other reasons than an answer."""
    line = seen.log.lines[seen.index].text
    if line.startswith("sudo"):
        return with_message(
            verdict,
            "sudo needs a password, and cannot ask for one without a terminal",
            Remediation(
                "Leave sudo out of scripts, give it a terminal, or allow the one command without a password",
                ("ssh -t HOST sudo ...", "sudo -n true; sudo -l"),
            ),
        )
    if "Inappropriate ioctl" in line:
        return with_message(
            verdict,
            "the program asks its terminal something (size, echo), and standard input or output is none here",
            Remediation(
                "Ask only where there is a terminal, or give the program one",
                ("if sys.stdout.isatty(): ...", "docker run -it ...", "script -qec 'python train.py' /dev/null"),
            ),
        )
    return verdict


def encoding(seen: Seen, verdict: Verdict) -> Verdict | None:
    """ASCII is the C locale; another encoding is that of a Windows or old Unix system."""
    codec = seen.groups["codec"]
    if codec == "unsupported locale setting":
        return with_message(
            verdict,
            "the locale that LANG or LC_ALL names is not installed in this image",
            Remediation(
                "Use C.UTF-8, which is always there, or generate the locale",
                ("export LC_ALL=C.UTF-8 LANG=C.UTF-8", "apt-get install -y locales && locale-gen en_US.UTF-8"),
            ),
        )
    how = "decoded" if seen.groups.get("kind") == "De" else "encoded"
    if codec.lower() == "ascii":
        return with_message(verdict, verdict.message.replace("?", how, 1))
    return with_message(
        verdict,
        f"a character cannot be {how} in {codec}, the encoding of this system's locale: the text is UTF-8",
    )


register(
    Cause(
        "SES264",
        "no-standard-input",
        "The program asked a question, and there is nobody to answer.",
        "input() reads the end of the file at once where standard input is closed: nohup, a batch job, docker run "
        "without -i, a launcher's child.",
        "the program waits for an answer at standard input, which is closed here (nohup, a batch job, docker run "
        "without -i, or a rank of a launcher)",
        Remediation(
            "Give the answer by an option or a variable, or start it with a terminal",
            (
                "docker run -it ...",
                "python train.py < answers.txt  # one answer a line",
                "if sys.stdin.isatty(): answer = input(...)",
            ),
        ),
        (
            Signature(
                "EOF when reading a line",
                "EOFError: EOF when reading a line",
                "EOFError: Ran out of input",
                source="python 3.8 to 3.14",
            ),
            Signature(
                ("a terminal is required to read the password", "a password is required", "no tty present"),
                "sudo: a terminal is required to read the password; either use the -S option to read from standard input",
                "sudo: 3 incorrect password attempts",
                r"^sudo: (?:a terminal is required to read the password|a password is required|no tty present and no askpass)",
                source="sudo 1.8 and 1.9",
            ),
            Signature(
                "Inappropriate ioctl for device",
                "termios.error: (25, 'Inappropriate ioctl for device')",
                "stty: standard input: Inappropriate ioctl for device",
                r"^(?:termios\.error|OSError)[^\n]*Inappropriate ioctl for device",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=asked,
    ),
    Cause(
        "SES270",
        "no-display",
        "A window was to be opened where there is no display.",
        "matplotlib's and OpenCV's windows need an X server; a container, ssh or a batch job has none. Qt aborts, which looks "
        "like a native crash.",
        "a window was to be opened, and there is no display here (a container, ssh, a batch job)",
        Remediation(
            "Draw into files, and use the build of OpenCV without windows",
            ("export MPLBACKEND=Agg", "pip install opencv-python-headless", "export QT_QPA_PLATFORM=offscreen"),
        ),
        (
            Signature(
                (
                    "no $DISPLAY environment variable",
                    "could not connect to display",
                    "couldn't connect to display",
                    "no Qt platform plugin could be initialized",
                    "cannot open display",
                    "Can't open display",
                ),
                "_tkinter.TclError: no display name and no $DISPLAY environment variable",
                "display name of the run",
                source="Tk 8.6, Qt 5 and 6, X11",
            ),
        ),
        kind=VAGUE,
        explains=("SES211", "SES22"),
    ),
    Cause(
        "SES297",
        "limit-cannot-be-raised",
        "The program cannot raise one of its limits.",
        "setrlimit stops at the hard limit, which only root or the engine can raise.",
        "the program cannot raise its limit: the hard limit of this shell or container is lower",
        Remediation(
            "Ask for no more than the hard limit, or start with a higher one",
            (
                "ulimit -Hn; ulimit -Hl; ulimit -Hs",
                "docker run --ulimit nofile=1048576:1048576 ...",
                "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # hard = resource.getrlimit(...)[1]",
            ),
        ),
        (
            Signature(
                (
                    "current limit exceeds maximum limit",
                    "not allowed to raise maximum limit",
                    "cannot modify limit: Operation not permitted",
                ),
                "ValueError: current limit exceeds maximum limit",
                "the limit exceeds 10",
                source="python 3.8 to 3.14, bash",
            ),
        ),
        kind=VAGUE,
    ),
    Cause(
        "SES265",
        "output-not-utf8",
        "Python writes or reads text in ASCII, since the locale is C or POSIX.",
        "A minimal image, cron or ssh sets no LANG. A progress bar, a check mark or a name then cannot be encoded.",
        "a character cannot be {how} as {codec}: the locale is C or POSIX (LANG is not set), and Python does not use UTF-8",
        Remediation(
            "Switch Python to UTF-8, or set a UTF-8 locale; name the encoding where files are opened",
            (
                "export PYTHONUTF8=1",
                "export LANG=C.UTF-8 LC_ALL=C.UTF-8",
                "docker run -e LANG=C.UTF-8 -e PYTHONUTF8=1 ...",
                "open(path, encoding='utf-8')",
            ),
        ),
        (
            Signature(
                ("UnicodeEncodeError", "UnicodeDecodeError"),
                "UnicodeEncodeError: 'ascii' codec can't encode character '\\u2588' in position 6: ordinal not in range(128)",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte",
                r"Unicode(?P<kind>En|De)codeError: '(?P<codec>ascii|latin-1|charmap|cp125\d|gbk)' codec",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "was configured to use ASCII as encoding",
                "RuntimeError: Click will abort further execution because Python was configured to use ASCII as "
                "encoding for the environment.",
                "configured to use UTF-8",
                r"was configured to use (?P<codec>ASCII) as encoding",
                source="click 6 to 8.0",
            ),
            Signature(
                "unsupported locale setting",
                "locale.Error: unsupported locale setting",
                "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)",
                r"^locale\.Error: (?P<codec>unsupported locale setting)",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=encoding,
    ),
    Cause(
        "SES266",
        "background-job-stopped-by-terminal",
        "A job in the background was stopped by its terminal.",
        "A background process that reads from its terminal gets SIGTTIN (or SIGTTOU when it writes under stty tostop) "
        "and stops; it looks like a hang.",
        "the job was stopped in the background: it wanted to read from its terminal (SIGTTIN), or Ctrl-Z was pressed",
        Remediation(
            "Let it go on, and give it another standard input",
            ("bg  # or fg", "nohup python train.py > train.log 2>&1 < /dev/null &", "tmux new -s exp1"),
        ),
        (
            Signature(
                ("Stopped", "suspended"),
                "[1]+  Stopped                 python train.py",
                "[1]+  Stopped                 vim train.py",
                r"^\[\d+\][+-]?\s+(?:\d+\s+)?(?:Stopped|suspended)(?:\s*\((?:tty input|tty output|SIGTTIN|SIGTTOU|signal)\))?\s+"
                r"(?!(?:sudo )?(?:n?vim?|nano|emacs|less|more|man|top|htop|watch|tail)\b)\S",
                source="bash 4 and 5, zsh",
            ),
            Signature(
                "There are stopped jobs",
                "There are stopped jobs.",
                "stopped jobs",
                source="bash 4 and 5",
            ),
        ),
        kind=VAGUE,
    ),
)

"""Programs on a terminal of the test's own, which reads and types as a user's would, or does not."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

LONGEST_S = 100
USUAL = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGTSTP)
PROMPT = "ready$ "


class Terminal:
    """A terminal with a process in its foreground that leads the terminal's session.

    Args:
        start: starts it, given the descriptor of its terminal; it has as much of `Popen` as is used here.
    """

    def __init__(
        self, start: Callable[[int], Any], rows: int = 24, columns: int = 80, typed_ahead: bytes = b""
    ) -> None:
        self.master, self.slave = pty.openpty()
        self._columns = columns
        self.resize(rows)
        self.before = termios.tcgetattr(self.slave)
        self.raw = b""
        """All that was shown."""
        self.type(typed_ahead)
        self.process = start(self.slave)

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, self._columns, 0, 0))

    def type(self, keys: bytes) -> int:
        """How much had been shown before."""
        if keys:
            os.write(self.master, keys)
        return len(self.raw)

    def until(self, told: bytes | str | Callable[[], object], after: int = 0) -> None:
        """Read until something was shown after so many bytes, or is true."""
        said = told.encode() if isinstance(told, str) else told
        end = time.monotonic() + LONGEST_S
        while not (said in self.raw[after:] if isinstance(said, bytes) else said()):
            assert time.monotonic() < end, self.raw[-2000:]
            self.read(0.05)

    def end(self) -> int:
        """Read until the process has ended; its exit code."""
        self.until(lambda: self.process.poll() is not None)
        while self.read(0.1):
            pass
        return int(self.process.returncode)

    def read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.raw += os.read(self.master, 65536)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def leading(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, stdout: int | None = None
) -> Callable[[int], subprocess.Popen[bytes]]:
    """For `Terminal`: starts the command as the leader of the terminal's session."""

    def take_over() -> None:
        usual_signals()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def start(slave: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            preexec_fn=take_over,
            env=dict(os.environ, TERM="xterm", **(environment or {})),
        )

    return start


def usual_signals() -> None:
    """Give signals their usual effect: where the tests run some may be ignored, as in the background of a shell."""
    for number in USUAL:
        signal.signal(number, signal.SIG_DFL)


def shell() -> Terminal:
    """A shell with job control, which has said `PROMPT`."""
    quiet = {"PS1": PROMPT, "PS2": "", "HISTFILE": os.devnull}
    terminal = Terminal(leading(["bash", "--norc", "--noprofile", "--noediting", "-i"], quiet))
    terminal.until(PROMPT)
    return terminal


def printed(terminal: Terminal, words: str) -> list[str]:
    """What a command printed by when the shell, which waits at its prompt, is there again."""
    before = terminal.type(f"{words}; echo 'that'$((6 * 7))\r".encode())
    terminal.until("that42", before)
    terminal.until(PROMPT, terminal.raw.index(b"that42", before))
    return terminal.raw[before:].decode().split("\r\n")[1:-2]


def state(pid: int) -> str:
    """The state of a process: `T` where it is stopped, empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process is there and not merely unburied."""
    return state(pid) not in ("", "Z", "X")

"""A terminal shared by a program and one line of ours below it, which never mix.

The program writes to a terminal of its own, one row shorter; what it writes is passed on to the real one, where the
rows above the last are set to scroll by themselves. The line is drawn only between whole characters and control
sequences of the program, and not at all while the program has the whole screen, as an editor does.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self

from .child import PASSED_ON, Signals, end_as

TICK_SECONDS = 0.05
DRAIN_SECONDS = 0.2
"""How long to wait for the last output of a program that has ended: something it started may hold its terminal."""
MOST_DRAIN_SECONDS = 2.0
CHUNK = 65536
LEAST_ROWS = 4
TAIL = 256
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)?$")
_WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")


def usable() -> bool:
    """Whether input and both outputs are a terminal that can be divided, and this process may use it.

    With an input from elsewhere the terminal stays the command's: it may ask for a password there.
    """
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        if not all(os.isatty(stream.fileno()) for stream in (sys.stdin, sys.stdout, sys.stderr)):
            return False
        terminal = sys.stderr.fileno()
        # In the background, taking hold of the terminal would stop us.
        return os.tcgetpgrp(terminal) == os.getpgrp() and os.get_terminal_size(terminal).lines >= LEAST_ROWS
    except (AttributeError, OSError, ValueError):
        return False  # closed, or there is no terminal


def between(tail: bytes) -> bool:
    """Whether what was written last ends with a whole character and no unfinished control sequence."""
    if _UNFINISHED.search(tail):
        return False
    for back in range(1, min(4, len(tail)) + 1):
        byte = tail[-back]
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            return back == (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return True


class StatusLine:
    """Use as a context manager around the program's life; `streams` and `prepare` are for `child.start`."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stderr.fileno()
        self._typed = b""
        """What the program has not taken yet; no more is read until it has."""
        self._deserted = False
        """The terminal is gone. The program goes on, if it does not mind the SIGHUP that comes with it."""
        self._rows, self._columns = 0, 0
        self._tail = b""
        self._whole_screen = False
        self._text = ""
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._cooked = termios.tcgetattr(self._in)
        # The program's terminal begins as ours is, but for Ctrl-Z: nobody could continue what it stopped.
        theirs = termios.tcgetattr(self._in)
        theirs[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._slave, termios.TCSANOW, theirs)
        self._measure()
        self.streams = (self._slave, self._slave, self._slave)

    def prepare(self) -> None:
        """In the child: fork once more, and return in the grandchild, on its own terminal.

        A terminal's session has a leader, and its end hangs up on all that is in the foreground. Were the command the
        leader, what it leaves running in the background would be killed when it ends.
        """
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
        command = os.fork()
        if command:
            _lead(command)
        os.setpgid(0, 0)
        _to_foreground(self._slave)

    def __enter__(self) -> Self:
        # Room for the line, should the cursor stand in the last row.
        self._write(b"\n\x1b[A")
        tty.setraw(self._in)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(b"\x1b7\x1b[r\x1b[%d;1H\x1b[2K\x1b8" % self._rows)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._cooked)
        if self._tail and not self._tail.endswith(b"\n"):
            self._write(b"\r\n")
        os.close(self._master)
        if self._slave >= 0:
            os.close(self._slave)

    def draw(self, text: str) -> None:
        """Show this line from now on; `text` holds no control characters."""
        self._text = text[: max(0, self._columns - 1)]
        self._redraw()

    def wait(
        self, child: subprocess.Popen[bytes], signals: Signals, on_tick: Callable[[], object], tick_seconds: float
    ) -> int:
        """As `child.wait`, passing input and output on."""
        # The program holds its end now; only then does reading tell when it has let go.
        os.close(self._slave)
        self._slave = -1
        left = tick_seconds
        while (code := child.poll()) is None:
            self._pass_on(TICK_SECONDS)
            while (caught := signals.next(0)) is not None:
                if caught.si_signo == signal.SIGWINCH:
                    self._resize()
                elif caught.si_signo in PASSED_ON:
                    # In a session of its own nobody else has told it.
                    with suppress(OSError):
                        os.killpg(os.tcgetpgrp(self._master), caught.si_signo)
            left -= TICK_SECONDS
            if left <= 0:
                left = tick_seconds
                on_tick()
        until = time.monotonic() + MOST_DRAIN_SECONDS
        while self._pass_on(DRAIN_SECONDS) and time.monotonic() < until:
            pass
        return code

    def _pass_on(self, seconds: float) -> bool:
        """Whether the program wrote anything within so many seconds."""
        sources = [self._master] if self._typed or self._deserted else [self._master, self._in]
        ready, free, _ = select.select(sources, [self._master] if self._typed else [], [], seconds)
        if self._in in ready:
            with suppress(OSError):
                self._typed = os.read(self._in, CHUNK)
            self._deserted = not self._typed
        if self._typed and (free or self._in in ready):
            with suppress(OSError):
                self._typed = self._typed[os.write(self._master, self._typed) :]
        if self._master not in ready:
            return False
        try:
            written = os.read(self._master, CHUNK)
        except OSError:
            return False  # the program has closed its terminal
        self._write(written)
        for switch in _WHOLE_SCREEN.finditer(self._tail + written):
            self._whole_screen = switch[1] == b"h"
        self._tail = (self._tail + written)[-TAIL:]
        return bool(written)

    def _redraw(self) -> None:
        if self._whole_screen or self._rows < LEAST_ROWS or not between(self._tail):
            return
        # The scrolling rows are set anew each time: a program that resets the terminal takes them away.
        line = self._text.encode("utf-8", "replace")
        self._write(b"\x1b7\x1b[1;%dr\x1b[%d;1H\x1b[2K\x1b[7m%s\x1b[0m\x1b8" % (self._rows - 1, self._rows, line))

    def _resize(self) -> None:
        rows = self._rows
        self._measure()
        if rows != self._rows:
            self._write(b"\x1b7\x1b[r\x1b[%d;1H\x1b[2K\x1b8" % rows)
        self.draw(self._text)

    def _measure(self) -> None:
        """Take the terminal's size, and give the program's terminal its own."""
        size = os.get_terminal_size(self._out)
        self._rows, self._columns = max(2, size.lines), size.columns
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", self._rows - 1, self._columns, 0, 0))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            while data:
                data = data[os.write(self._out, data) :]


def _lead(command: int) -> NoReturn:
    """As the session's leader: end as the command does, and let what it leaves behind go on."""
    # Whoever started the command sees by the end of a pipe that it runs; this copy of it must not keep it open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    # The hang-up that comes with a leader's end goes to the foreground: from here on, this process alone.
    with suppress(OSError):
        _to_foreground(0)
    os._exit(end_as(code))


def _to_foreground(terminal: int) -> None:
    """Put this process's group into the terminal's foreground, which one in the background may do only like this."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    os.tcsetpgrp(terminal, os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

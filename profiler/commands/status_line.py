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
import tty
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .child import PASSED_ON, Signals

TICK_SECONDS = 0.05
DRAIN_SECONDS = 0.2
"""How long to wait for the last output of a program that has ended: something it started may hold its terminal."""
CHUNK = 65536
TAIL = 256
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)?$")
_WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)([hl])")


def usable() -> bool:
    """Whether stdout and stderr are a terminal that can be divided, and this process may use it."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        terminal = sys.stderr.fileno()
        if not (os.isatty(terminal) and os.isatty(sys.stdout.fileno())):
            return False
        # In the background, taking hold of the terminal would stop us.
        return os.tcgetpgrp(terminal) == os.getpgrp() and os.get_terminal_size(terminal).lines >= 4
    except (OSError, ValueError):
        return False


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
        self._out = sys.stderr.fileno()
        self._in = sys.stdin.fileno() if sys.stdin is not None and os.isatty(sys.stdin.fileno()) else None
        self._rows, self._columns = 0, 0
        self._tail = b""
        self._whole_screen = False
        self._text = ""
        self._cooked: list[Any] | None = None
        self._master, self._slave = pty.openpty()
        self.streams: tuple[int | None, int, int] = (
            None if self._in is None else self._slave,
            self._slave,
            self._slave,
        )

    def prepare(self) -> None:
        """In the child: a session of its own on its own terminal."""
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)

    def __enter__(self) -> Self:
        # Room for the line, should the cursor stand in the last row.
        self._write(b"\n\x1b[A")
        if self._in is not None:
            self._cooked = termios.tcgetattr(self._in)
            # The program's terminal begins as ours is.
            termios.tcsetattr(self._slave, termios.TCSANOW, self._cooked)
            tty.setraw(self._in)
        self._resize()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(b"\x1b7\x1b[r\x1b[%d;1H\x1b[2K\x1b8" % self._rows)
        if self._cooked is not None and self._in is not None:
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
                    # The child is in a session of its own: nobody else has told it.
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, caught.si_signo)
            left -= TICK_SECONDS
            if left <= 0:
                left = tick_seconds
                on_tick()
        while self._pass_on(DRAIN_SECONDS):
            pass
        return code

    def _pass_on(self, seconds: float) -> bool:
        """Whether the program wrote anything within so many seconds."""
        sources = [self._master] + ([] if self._in is None else [self._in])
        ready = select.select(sources, [], [], seconds)[0]
        if self._in in ready and self._in is not None:
            typed = os.read(self._in, CHUNK)
            if typed:
                self._write_all(self._master, typed)
            else:
                self._in = None
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
        if self._whole_screen or not between(self._tail):
            return
        # The scrolling rows are set anew each time: a program that resets the terminal takes them away.
        line = self._text.encode("utf-8", "replace")
        self._write(b"\x1b7\x1b[1;%dr\x1b[%d;1H\x1b[2K\x1b[7m%s\x1b[0m\x1b8" % (self._rows - 1, self._rows, line))

    def _resize(self) -> None:
        size = os.get_terminal_size(self._out)
        if self._rows and size.lines != self._rows:
            self._write(b"\x1b7\x1b[r\x1b[%d;1H\x1b[2K\x1b8" % self._rows)
        self._rows, self._columns = max(2, size.lines), size.columns
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", self._rows - 1, self._columns, 0, 0))
        self.draw(self._text)

    def _write(self, data: bytes) -> None:
        self._write_all(self._out, data)

    @staticmethod
    def _write_all(descriptor: int, data: bytes) -> None:
        with suppress(OSError):
            while data:
                data = data[os.write(descriptor, data) :]

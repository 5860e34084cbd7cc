"""A terminal shared by a program and a few rows of ours below it, which never mix.

The program writes to a terminal of its own, by our rows shorter; what it writes is passed on to the real one, where the
rows above ours are set to scroll by themselves. Ours are drawn only between whole characters and control
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
_WHOLE_SCREEN = re.compile(rb"\x1b\[\?(?:[0-9]+;)*(?:1049|1047|47)(?:;[0-9]+)*([hl])")
_SAVED = re.compile(rb"\x1b(?:(7|\[s)|8|\[u)")
SAVED_SECONDS = 30.0
"""A program that has saved the cursor's place wants it back, and terminals keep only one: nothing is drawn until then,
or for so long, should it never ask."""
_STRING = re.compile(rb"\x1b[\]P_^X][^\x07\x1b]*\x1b?$")
"""Unfinished: a title, a picture. It may be of any length."""


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


def ending(written: bytes) -> bytes:
    """As much of the end as tells whether it is `between`: of a long string its begin, and its end."""
    string = _STRING.search(written)
    begin = b"" if string is None or string.start() >= len(written) - TAIL else written[string.start() :][:2]
    return begin + written[-TAIL:]


Paint = Callable[[int, int], list[str]]
"""Exactly so many rows for so many columns, which come first; each may hold colours, and no other control sequence."""


class StatusLine:
    """Use as a context manager around the program's life; `streams` and `prepare` are for `child.start`.

    Args:
        rows_for: how many rows are ours, of a terminal of so many.
    """

    def __init__(self, rows_for: Callable[[int], int]) -> None:
        self._rows_for = rows_for
        self._in, self._out = sys.stdin.fileno(), sys.stderr.fileno()
        self._typed = b""
        """What the program has not taken yet; no more is read until it has."""
        self._deserted = False
        """The terminal is gone. The program goes on, if it does not mind the SIGHUP that comes with it."""
        self._rows, self._columns, self._ours = 0, 0, 1
        self._moved = False
        """The terminal has another size: what was drawn lies anywhere below the cursor."""
        self._tail = b""
        self._whole_screen = False
        self._saved_at: float | None = None
        """When the program saved the cursor's place, until it asks for it."""
        self._postponed = False
        """Ours were to be drawn in the midst of what the program writes."""
        self._paint: Paint | None = None
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
        # Room for our rows, should the cursor stand in the last one.
        self._write(b"\n" * self._ours + b"\x1b[%dA" % self._ours)
        tty.setraw(self._in)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._whole_screen:
            # The program was killed and could not give it back.
            self._write(b"\x1b[?1049l")
        if self._moved:
            self._settle()
        rows = range(self._rows - self._ours + 1, self._rows + 1)
        self._write(b"\x1b7\x1b[0m\x1b[r" + b"".join(b"\x1b[%d;1H\x1b[2K" % row for row in rows) + b"\x1b8")
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._cooked)
        if self._tail and not self._tail.endswith(b"\n"):
            self._write(b"\r\n")
        os.close(self._master)
        if self._slave >= 0:
            os.close(self._slave)

    def draw(self, paint: Paint) -> None:
        """Show from now on what `paint` returns; it is asked again when the terminal has another size."""
        self._paint = paint
        self._redraw()

    def wait(
        self, child: subprocess.Popen[bytes], signals: Signals, on_tick: Callable[[], object], tick_seconds: float
    ) -> int:
        """As `child.wait`, passing input and output on."""
        # The program holds its end now; only then does reading tell when it has let go.
        os.close(self._slave)
        self._slave = -1
        due = time.monotonic() + tick_seconds
        while (code := child.poll()) is None:
            self._pass_on(TICK_SECONDS)
            if self._postponed:
                self._redraw()
            while (caught := signals.next(0)) is not None:
                if caught.si_signo == signal.SIGWINCH:
                    self._resize()
                elif caught.si_signo in PASSED_ON:
                    # In a session of its own nobody else has told it.
                    with suppress(OSError):
                        os.killpg(os.tcgetpgrp(self._master), caught.si_signo)
            if time.monotonic() >= due:
                on_tick()
                due = time.monotonic() + tick_seconds
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
        for place in _SAVED.finditer(self._tail[-2:] + written):
            self._saved_at = None if place[1] is None else time.monotonic()
        self._tail = ending(self._tail + written)
        return bool(written)

    def _redraw(self) -> None:
        saved = self._saved_at is not None and time.monotonic() < self._saved_at + SAVED_SECONDS
        self._postponed = saved or not between(self._tail)
        if self._whole_screen or self._rows < LEAST_ROWS or self._paint is None or self._postponed:
            return
        if self._moved:
            self._settle()
        # The scrolling rows are set anew each time: a program that resets the terminal takes them away.
        top = self._rows - self._ours
        drawn = b"\x1b7\x1b[1;%dr" % top
        for number, row in enumerate(self._paint(max(1, self._columns - 1), self._ours), top + 1):
            # The program's colours are not ours, and clearing would spread its background.
            drawn += b"\x1b[%d;1H\x1b[0m\x1b[2K%s" % (number, row.encode("utf-8", "replace"))
        self._write(drawn + b"\x1b[0m\x1b8")

    def _resize(self) -> None:
        before = self._rows, self._columns
        with suppress(OSError):  # the terminal is gone
            self._measure()
        self._moved |= before != (self._rows, self._columns)
        self._redraw()

    def _settle(self) -> None:
        """Take away what was drawn for another size, and make room anew.

        Terminals differ in what they do with their rows when their size changes: cut them below, move them up, pull
        them down, fold the long ones. Whatever they do, ours stay below the cursor.
        """
        self._moved = False
        room = b"\x1bD" * self._ours + b"\x1b[%dA" % self._ours
        self._write(b"\x1b7\x1b[r\x1b8" + b"\x1bD\x1b[A" + b"\x1b7\x1b[B\r\x1b[0m\x1b[J\x1b8" + room)

    def _measure(self) -> None:
        """Take the terminal's size, and give the program's terminal its own."""
        size = os.get_terminal_size(self._out)
        self._rows, self._columns = max(2, size.lines), size.columns
        self._ours = min(self._rows_for(self._rows), self._rows - 1)
        theirs = self._rows - self._ours
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", theirs, self._columns, 0, 0))

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

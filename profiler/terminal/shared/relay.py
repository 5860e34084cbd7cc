"""A terminal shared by a program and a few rows of ours below it, which never mix.

The program writes to a terminal of its own, by our rows shorter; what it writes is passed on to the real one, where the
rows above ours are set to scroll by themselves. Ours are drawn only between whole characters and control
sequences of the program, and not at all while the program has the whole screen, as an editor does. Nothing here waits
for the terminal, for whoever makes our rows, or for a file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..child import PASSED_ON, Signals
from ..child import start as start_child
from .own_terminal import CHUNK, LEAST_ROWS, OwnTerminal, ready
from .program_output import ProgramOutput, goes_on_in_the_row
from .session_leader import STOPPED, begin_session

TICK_SECONDS = 0.05
MOST_UNWRITTEN = 65536
"""Bytes. A program waits for a terminal that takes nothing once its own terminal is full, and it waits no sooner for
what we have drawn: so much more of its output is taken meanwhile."""
DRAIN_SECONDS = 0.2
"""How long to wait for the last output of a program that has ended: something it started may hold its terminal."""
MOST_BYTES = 1 << 18
"""More than a terminal holds of what a program wrote before it ended or stopped; what it started may write for ever."""
LAST_SECONDS = 2.0
"""For a terminal to take what is left, where that is not waited for."""
TO_END = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

Paint = Callable[[int, int], list[str]]
"""Exactly so many rows for so many columns, which come first; each may hold colours, and no other control sequence."""

_PLAIN = b"\x1b[?6l\x0f\x1b(B"
"""Rows count from the screen's first, and letters are letters. The program's own choice comes back with its cursor."""


class SharedTerminal:
    """Start the program, then use this as a context manager around `wait`.

    Args:
        rows_for: how many rows are ours, of a terminal of so many.

    Raises:
        OSError: the system has no further terminal for the program.
        termios.error: likewise.
    """

    def __init__(self, rows_for: Callable[[int], int]) -> None:
        self._rows_for = rows_for
        self._terminal = OwnTerminal()
        self._output = ProgramOutput()
        self._typed = b""
        """What the program has not taken yet; no more is read until it has."""
        self._rows, self._columns, self._ours = 0, 0, 1
        self._painted: tuple[int, list[str]] = (0, [])
        """Our rows, and for how many columns they are."""
        self.outdated = threading.Event()
        """Set when rows of another size are wanted."""
        self._due = False
        """Ours are to be drawn, as soon as what the program writes allows it."""
        self._moved = False
        """The terminal has another size: what was drawn lies anywhere below the cursor."""
        self._row_was_full = False
        """When ours were drawn; and nothing was written since."""
        self._stopped = False
        """The program has, and waits for us to continue it."""
        self._ended = False
        """All copies of the program's end of its terminal are closed."""
        self._leader, self._leaders_end = socket.socketpair()
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        # The program's terminal begins as ours is.
        termios.tcsetattr(self._slave, termios.TCSANOW, self._terminal.modes)
        self._measure()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], signals: Signals
    ) -> tuple[subprocess.Popen[bytes], int]:
        """As `child.start`: a child that ends as the command does, and the process id of the command itself."""

        def prepare() -> None:
            begin_session(self._slave, self._leaders_end, signals)

        child = start_child(command, environment, signals, (self._slave, self._slave, self._slave), prepare)
        # The program holds its end now; only then does reading tell when it has let go.
        os.close(self._slave)
        self._leaders_end.close()
        told: list[bytes] = []
        with suppress(OSError):
            told = self._leader.recv(CHUNK).split()
        self._leader.setblocking(False)
        self._stopped = STOPPED in told
        # One that is started in a second way, after the first did not work, is told of twice; and none, where it was
        # killed before it could tell.
        commands = [int(word) for word in told if word.isdigit()]
        return child, commands[-1] if commands else child.pid

    def __enter__(self) -> Self:
        # Room for our rows, should the cursor stand in the last one.
        self._terminal.write(b"\n" * self._ours + b"\x1b[%dA" % self._ours)
        self._terminal.hold()
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._output.whole_screen:
            # The program was killed and could not give it back.
            self._terminal.write(b"\x1b[?1049l")
        self._clear()
        if self._output.tail and not self._output.tail.endswith(b"\n"):
            self._terminal.write(b"\r\n")
        self._terminal.push_for(LAST_SECONDS)
        self._terminal.let_go()
        os.close(self._terminal.output)
        os.close(self._master)
        self._leader.close()

    def paint(self, paint: Paint) -> None:
        """Show what `paint` returns, from any thread: what it waits for, the program does not."""
        columns = max(1, self._columns - 1)
        painted = paint(columns, self._ours)
        self._painted = columns, painted
        self._due = True

    def wait(
        self, child: subprocess.Popen[bytes], signals: Signals, on_end: Callable[[int], object] = lambda _: None
    ) -> int:
        """As `child.wait`, passing input and output on.

        Args:
            on_end: called with the child's end before a terminal is waited for that does not take the last output,
                which may be for ever.
        """
        while (code := child.poll()) is None:
            self._pass_on(TICK_SECONDS)
            if self._stopped:
                self._stop(signals)
            if self._due:
                self._draw()
            # One at a time: with the child's end there is nobody left to tell.
            if (caught := signals.next(0)) is not None:
                self._act_on(caught.si_signo)
        self._take_rest(DRAIN_SECONDS)
        on_end(code)
        wanted = True
        while self._terminal.unwritten and wanted:
            self._terminal.push_for(DRAIN_SECONDS)
            caught = signals.next(0)
            wanted = caught is None or caught.si_signo not in TO_END
        return code

    def _act_on(self, signum: int) -> None:
        if signum == signal.SIGWINCH:
            self._resize()
        elif signum == signal.SIGCONT:
            # Whoever had the terminal meanwhile has set it up for himself.
            self._terminal.held = False
        elif signum in PASSED_ON:
            # In a session of its own nobody else has told it.
            with suppress(OSError):
                group = os.tcgetpgrp(self._master)
                # 0 where its leader has just ended, which would be our own.
                if group > 0:
                    os.killpg(group, signum)

    def _take_rest(self, quiet_seconds: float) -> None:
        """Take what a program that has ended or stopped wrote before; until nothing comes for so long."""
        left = MOST_BYTES
        until = time.monotonic() + quiet_seconds
        while left > 0 and not self._ended and (seconds := until - time.monotonic()) > 0:
            if came := self._pass_on(seconds, MOST_BYTES):
                left -= came
                until = time.monotonic() + quiet_seconds

    def _pass_on(self, seconds: float, most_unwritten: int = MOST_UNWRITTEN) -> int:
        """How many bytes the program wrote; it may do so within so many seconds."""
        terminal = self._terminal
        if terminal.hold():
            self._come_back()
        sources = [self._master] if len(terminal.unwritten) < most_unwritten else []
        if self._leader.fileno() >= 0:
            sources.append(self._leader.fileno())
        if terminal.has_keys and not self._typed:
            sources.append(terminal.input)
        sinks = ([terminal.output] if terminal.unwritten else []) + ([self._master] if self._typed else [])
        there = ready(sources, sinks, seconds)
        if terminal.output in there:
            terminal.push()
        if terminal.input in there:
            self._typed = terminal.typed()
        if self._typed:
            with suppress(OSError):
                self._typed = self._typed[os.write(self._master, self._typed) :]
        if self._leader.fileno() in there:
            self._hear()
        if self._master not in there or self._master not in sources:
            return 0
        try:
            written = os.read(self._master, CHUNK)
        except OSError as error:
            self._ended = error.errno == errno.EIO
            return 0
        if self._row_was_full:
            goes_on = goes_on_in_the_row(written)
            if goes_on:
                terminal.write(b"\r\n")
            self._row_was_full = goes_on is None
        terminal.write(written)
        self._output.follow(written)
        return len(written)

    def _hear(self) -> None:
        """What the leader says."""
        said = b""
        with suppress(OSError):
            said = self._leader.recv(CHUNK)
        self._stopped = STOPPED in said
        if not said:
            self._leader.close()

    def _stop(self, signals: Signals) -> None:
        """Stop with the program, as by a Ctrl-Z of the real terminal, until a shell continues us; then it goes on."""
        self._stopped = False
        self._take_rest(TICK_SECONDS)
        self._clear()
        self._terminal.push_for(LAST_SECONDS)
        self._terminal.let_go()
        signals.stop(whole_group=True)
        if self._terminal.hold():
            self._come_back()
            self._draw()
        with suppress(OSError):
            self._leader.send(b"c")

    def _draw(self) -> None:
        if self._output.whole_screen or self._rows < LEAST_ROWS or not self._terminal.held:
            self._due = False
            return
        if self._terminal.unwritten or not self._output.lets_draw():
            return
        self._due = False
        columns, painted = self._painted
        if columns != max(1, self._columns - 1) or len(painted) != self._ours:
            painted = [""] * self._ours
        if self._moved:
            self._settle()
        # The scrolling rows are set anew each time: a program that resets the terminal takes them away.
        top = self._rows - self._ours
        drawn = b"\x1b7" + _PLAIN + b"\x1b[1;%dr" % top
        for number, row in enumerate(painted, top + 1):
            # The program's colours are not ours, and clearing would spread its background.
            drawn += b"\x1b[%d;1H\x1b[0m\x1b[2K%s" % (number, row.encode("utf-8", "replace"))
        self._row_was_full = self._output.fills_its_row(self._columns)
        self._terminal.write(drawn + b"\x1b[0m\x1b8")

    def _clear(self) -> None:
        """Leave the terminal without our rows, for whoever has it next."""
        if self._moved:
            self._settle()
        # What stands in the last rows while a shell has the terminal is the shell's.
        rows = range(self._rows - self._ours + 1, self._rows + 1) if self._terminal.held else ()
        cleared = b"".join(b"\x1b[%d;1H\x1b[2K" % row for row in rows)
        self._terminal.write(b"\x1b7" + _PLAIN + b"\x1b[0m\x1b[r" + cleared + b"\x1b8")

    def _resize(self) -> None:
        before = self._rows, self._columns
        with suppress(OSError):  # the terminal is gone
            self._measure()
        if before != (self._rows, self._columns):
            self._moved = True
            self._output.forget_row()
            self.outdated.set()
        self._due = True

    def _come_back(self) -> None:
        """Draw anew after a shell had the terminal."""
        self._moved = True
        self._output.forget_row()
        self._resize()

    def _settle(self) -> None:
        """Take away what was drawn for another size, and make room anew.

        Terminals differ in what they do with their rows when their size changes: cut them below, move them up, pull
        them down, fold the long ones. Whatever they do, ours stay below the cursor.
        """
        self._moved = False
        room = b"\x1bD" * self._ours + b"\x1b[%dA" % self._ours
        self._terminal.write(b"\x1b7\x1b[r\x1b8" + b"\x1bD\x1b[A" + b"\x1b7\x1b[B\r\x1b[0m\x1b[J\x1b8" + room)

    def _measure(self) -> None:
        """Take the terminal's size, and give the program's terminal its own."""
        size = self._terminal.size()
        self._rows, self._columns = max(2, size.lines), size.columns
        self._ours = min(self._rows_for(self._rows), self._rows - 1)
        theirs = self._rows - self._ours
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", theirs, self._columns, 0, 0))

"""A terminal shared by a program and a few rows of ours below it, which never mix.

The program writes to a terminal of its own, by our rows shorter; what it writes is passed on to the real one, where the
rows above ours are set to scroll by themselves. Ours are drawn only between whole characters and control
sequences of the program, and not at all while the program has the whole screen, as an editor does.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from .child import PASSED_ON, Signals
from .own_terminal import CHUNK, LEAST_ROWS, OwnTerminal
from .program_output import ProgramOutput, goes_on_in_the_row
from .session_leader import begin_session

TICK_SECONDS = 0.05
DRAIN_SECONDS = 0.2
"""How long to wait for the last output of a program that has ended: something it started may hold its terminal."""
MOST_DRAIN_SECONDS = 2.0
HURRY_SECONDS = 5.0
"""A program that lives on for longer after it was told to end may have something to say that matters."""
MOST_SELECTED = 1024
"""`select` takes no descriptor from this on. There are so many where whoever started us left a thousand open."""
TO_END = PASSED_ON - {signal.SIGUSR1, signal.SIGUSR2}

Paint = Callable[[int, int], list[str]]
"""Exactly so many rows for so many columns, which come first; each may hold colours, and no other control sequence."""

_PLAIN = b"\x1b[?6l\x0f\x1b(B"
"""Rows count from the screen's first, and letters are letters. The program's own choice comes back with its cursor."""


class StatusLine:
    """Use as a context manager around the program's life; `streams` and `prepare` are for `child.start`.

    Args:
        rows_for: how many rows are ours, of a terminal of so many.
    """

    def __init__(self, rows_for: Callable[[int], int]) -> None:
        self._rows_for = rows_for
        self._terminal = OwnTerminal()
        self._output = ProgramOutput()
        self._typed = b""
        """What the program has not taken yet; no more is read until it has."""
        self._rows, self._columns, self._ours = 0, 0, 1
        self._moved = False
        """The terminal has another size: what was drawn lies anywhere below the cursor."""
        self._postponed = False
        """Ours were to be drawn in the midst of what the program writes."""
        self._row_was_full = False
        """When ours were drawn; and nothing was written since."""
        self._paint: Paint | None = None
        self._asked_at = -math.inf
        """When somebody wanted it to end."""
        self._hurried = False
        """Somebody wants an end now: no last output is waited for that the terminal does not take."""
        self.deaf = False
        """Known once left: somebody wants an end, and the terminal takes nothing."""
        self._told, self._tell = os.pipe()
        os.set_blocking(self._told, False)
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        opened = (self._terminal.output, self._told, self._tell, self._master, self._slave)
        if max(opened) >= MOST_SELECTED:
            for descriptor in opened:
                os.close(descriptor)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        # The program's terminal begins as ours is, but for Ctrl-Z: nobody could continue what it stopped.
        theirs = termios.tcgetattr(self._terminal.input)
        theirs[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._slave, termios.TCSANOW, theirs)
        self._measure()
        self.streams = (self._slave, self._slave, self._slave)

    def prepare(self) -> None:
        """In the child: fork once more, and return in the grandchild, on its own terminal."""
        begin_session(self._slave, self._tell)

    def command(self, child: subprocess.Popen[bytes]) -> int:
        """The process id of the command itself, which the child only waits for."""
        try:
            # A command that is started in a second way, after the first did not work, is told of twice.
            return int(os.read(self._told, CHUNK).split()[-1])
        except (OSError, ValueError, IndexError):
            return child.pid  # it was killed before it could tell

    def __enter__(self) -> Self:
        # Room for our rows, should the cursor stand in the last one.
        self._terminal.write(b"\n" * self._ours + b"\x1b[%dA" % self._ours)
        self._terminal.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        write = self._terminal.write
        if self._output.whole_screen:
            # The program was killed and could not give it back.
            write(b"\x1b[?1049l")
        if self._moved:
            self._settle()
        # What stands in the last rows while a shell has the terminal is the shell's.
        rows = range(self._rows - self._ours + 1, self._rows + 1) if self._terminal.held else ()
        cleared = b"".join(b"\x1b[%d;1H\x1b[2K" % row for row in rows)
        write(b"\x1b7" + _PLAIN + b"\x1b[0m\x1b[r" + cleared + b"\x1b8")
        if self._output.tail and not self._output.tail.endswith(b"\n"):
            write(b"\r\n")
        self._terminal.push_for(MOST_DRAIN_SECONDS)
        self.deaf = self._hurried and bool(self._terminal.unwritten)
        self._terminal.let_go()
        for descriptor in (self._master, self._slave, self._told, self._tell):
            if descriptor >= 0:
                os.close(descriptor)

    def draw(self, paint: Paint) -> None:
        """Show from now on what `paint` returns; it is asked again when the terminal has another size."""
        self._paint = paint
        self._redraw()

    def wait(
        self,
        child: subprocess.Popen[bytes],
        signals: Signals,
        on_tick: Callable[[], object],
        tick_seconds: float,
        on_end: Callable[[int], object] = lambda _: None,
    ) -> int:
        """As `child.wait`, passing input and output on.

        Args:
            on_end: called with the child's end before a terminal is waited for that does not take the last output,
                which may be for ever. Its errors are nothing to the child.
        """
        # The program holds its end now; only then does reading tell when it has let go.
        os.close(self._slave)
        self._slave = -1
        due = time.monotonic() + tick_seconds
        while (code := child.poll()) is None:
            self._pass_on(TICK_SECONDS)
            if self._postponed:
                self._redraw()
            # One at a time: with the child's end there is nobody left to tell.
            if (caught := signals.next(0)) is not None:
                self._act_on(caught.si_signo)
            if time.monotonic() >= due:
                # Nothing that is shown may end the training.
                with suppress(Exception):
                    on_tick()
                due = time.monotonic() + tick_seconds
        self._hurried = time.monotonic() - self._asked_at <= HURRY_SECONDS
        self._drain(signals, lambda: on_end(code))
        return code

    def _act_on(self, signum: int) -> None:
        if signum in TO_END:
            self._asked_at = time.monotonic()
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

    def _pass_on(self, seconds: float) -> bool:
        """Whether the program wrote anything within so many seconds."""
        terminal = self._terminal
        if terminal.hold():
            self._come_back()
        sources = [] if terminal.unwritten else [self._master]
        if terminal.has_keys and not self._typed:
            sources.append(terminal.input)
        sinks = ([terminal.output] if terminal.unwritten else []) + ([self._master] if self._typed else [])
        ready, free, _ = select.select(sources, sinks, [], seconds)
        if terminal.output in free:
            terminal.push()
        if terminal.input in ready:
            self._typed = terminal.typed()
        if self._typed and (self._master in free or terminal.input in ready):
            with suppress(OSError):
                self._typed = self._typed[os.write(self._master, self._typed) :]
        if self._master not in ready:
            return False
        try:
            written = os.read(self._master, CHUNK)
        except OSError:
            return False  # the program has closed its terminal
        if self._row_was_full:
            goes_on = goes_on_in_the_row(written)
            if goes_on:
                terminal.write(b"\r\n")
            self._row_was_full = goes_on is None
        terminal.write(written)
        self._output.follow(written)
        return bool(written)

    def _drain(self, signals: Signals, on_stuck: Callable[[], object]) -> None:
        """Pass on what the program wrote last. The terminal is waited for, unless somebody wants an end."""
        until = time.monotonic() + MOST_DRAIN_SECONDS
        stuck = False
        while time.monotonic() < until:
            begun, before = time.monotonic(), len(self._terminal.unwritten)
            came = self._pass_on(DRAIN_SECONDS)
            if not came and not before:
                break
            self._notice(signals)
            if len(self._terminal.unwritten) == before and before and not self._hurried:
                if not stuck:
                    stuck = True
                    with suppress(Exception):
                        on_stuck()
                # Not the program's time but the terminal's.
                until += time.monotonic() - begun
        while self._terminal.unwritten and not self._hurried:
            self._terminal.push_for(DRAIN_SECONDS)
            self._notice(signals)

    def _notice(self, signals: Signals) -> None:
        caught = signals.next(0)
        self._hurried |= caught is not None and caught.si_signo in TO_END

    def _redraw(self) -> None:
        self._postponed = bool(self._terminal.unwritten) or not self._output.lets_draw()
        hidden = self._output.whole_screen or self._rows < LEAST_ROWS or not self._terminal.held
        if hidden or self._paint is None or self._postponed:
            return
        try:
            painted = self._paint(max(1, self._columns - 1), self._ours)
        except Exception:
            return  # nothing that is shown may end the training
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

    def _resize(self) -> None:
        before = self._rows, self._columns
        with suppress(OSError):  # the terminal is gone
            self._measure()
        if before != (self._rows, self._columns):
            self._moved = True
            self._output.forget_row()
        self._redraw()

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

"""The terminal that a command was given and that we pass on: raw while it is ours, and never waited for."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterable
from contextlib import suppress

from ..child import TERMINAL

CHUNK = 65536
LEAST_ROWS = 4


def divisible() -> bool:
    """Whether input and both outputs are one terminal that can be divided, and this process may use it.

    With an input from elsewhere the terminal stays the command's: it may ask for a password there.
    """
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
        if not all(map(os.isatty, streams)) or len({os.fstat(stream).st_rdev for stream in streams}) > 1:
            return False
        terminal = sys.stderr.fileno()
        os.close(_open())
        # In the background, taking hold of the terminal would stop us.
        return os.tcgetpgrp(terminal) == os.getpgrp() and os.get_terminal_size(terminal).lines >= LEAST_ROWS
    except (AttributeError, OSError, ValueError):
        return False  # closed, or there is no terminal


def ready(readable: Iterable[int], writable: Iterable[int], seconds: float) -> set[int]:
    """Those that can be read from or written to within so many seconds, or are at an end."""
    events: dict[int, int] = dict.fromkeys(readable, select.POLLIN)
    for each in writable:
        events[each] = events.get(each, 0) | select.POLLOUT
    looked = select.poll()
    for each, wanted in events.items():
        looked.register(each, wanted)
    return {each for each, _ in looked.poll(1000 * seconds)}


def _open() -> int:
    """Opened anew it can be written to without waiting, which the descriptors that others share cannot."""
    return os.open(TERMINAL, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)


class OwnTerminal:
    """Only where it is `divisible`."""

    def __init__(self) -> None:
        self.input = sys.stdin.fileno()
        self.modes = termios.tcgetattr(self.input)
        """As they were found, and are left."""
        self.output = _open()
        self.unwritten = b""
        """What the terminal has not taken yet. It may take nothing for long, as one whose window is suspended."""
        self.held = False
        """It is raw, and its keys and last rows are ours. It is not while a shell has it, which we are stopped or in
        the background of."""
        self._deserted = False
        """The terminal is gone. The program goes on, if it does not mind the SIGHUP that comes with it."""

    def hold(self) -> bool:
        """Take it, if it is to be had; whether it was taken just now."""
        front = self._in_foreground()
        taken = front and not self.held
        if taken:
            self._deserted = False
            # Not TCSAFLUSH: what was typed ahead is the program's.
            with suppress(termios.error):
                tty.setraw(self.input, termios.TCSANOW)
        self.held = front
        return taken

    def let_go(self) -> None:
        if self._in_foreground():
            with suppress(termios.error):
                termios.tcsetattr(self.input, termios.TCSANOW, self.modes)
        self.held = False

    @property
    def has_keys(self) -> bool:
        """Whether what is typed may be read: in the background that would stop us."""
        return self.held and not self._deserted

    def typed(self) -> bytes:
        keys = b""
        with suppress(OSError):
            keys = os.read(self.input, CHUNK)
        self._deserted = not keys
        return keys

    def write(self, data: bytes) -> None:
        self.unwritten += data
        self.push()

    def push(self) -> None:
        """Write as much as the terminal takes."""
        while self.unwritten:
            try:
                self.unwritten = self.unwritten[os.write(self.output, self.unwritten[:CHUNK]) :]
            except BlockingIOError:
                return
            except OSError:
                self.unwritten = b""  # it is gone

    def push_for(self, seconds: float) -> None:
        """Write all, if the terminal takes it within so many seconds."""
        until = time.monotonic() + seconds
        while self.unwritten and (left := until - time.monotonic()) > 0:
            ready((), (self.output,), left)
            self.push()

    def size(self) -> os.terminal_size:
        return os.get_terminal_size(self.output)

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.input) == os.getpgrp()
        except OSError:
            return self.held  # it is gone

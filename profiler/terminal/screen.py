"""A terminal's whole screen, given back as it was, however we end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Self

from ..report.live import Row

_NAMED = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[Z": "back tab",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\t": "tab",
    " ": "space",
    "\x1b": "escape",
}
# In application mode a terminal says O for [.
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b[\[O][0-9;]*$")
LONGEST = 16
"""Bytes; what is longer and unfinished is no key."""


class Keys:
    """Takes what was read, in pieces that may be torn anywhere; gives names of keys, or the signs themselves."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + data.decode("utf-8", "replace")
        torn = _UNFINISHED.search(text)
        self._rest = torn[0] if torn and len(torn[0]) <= LONGEST else ""
        whole = text[: torn.start()] if torn else text
        pressed = []
        for sequence in _SEQUENCE.findall(whole):
            normal = sequence.replace("\x1bO", "\x1b[", 1)
            name = _NAMED.get(normal, sequence if len(sequence) == 1 and sequence.isprintable() else "")
            if name:
                pressed.append(name)
        return pressed


ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
CHUNK = 1024


class Ended(BaseException):
    """A signal asks us to end; raised wherever we are, so that everything is put back on the way out."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within it these raise `Ended`, unless they are ignored. The first: later ones are not for us."""

    def end(signum: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Ended(signum)

    watched = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {s: signal.getsignal(s) for s in watched if signal.getsignal(s) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Screen:
    """Use as a context manager, in the main thread. Writes only rows that changed."""

    def __init__(self, colour: bool, encoding: str) -> None:
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._colour, self._encoding = colour, encoding
        self._cooked = termios.tcgetattr(self._in) if self.has_keys else None
        self._shown: list[str] = []
        self._size = (0, 0)
        self._stale = True
        self._keys = Keys()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._before: dict[int, object] = {}
        self._wakes_before = -1

    @property
    def has_keys(self) -> bool:
        return self._in >= 0

    def __enter__(self) -> Self:
        self._wakes_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for signum, handler in (
            (signal.SIGWINCH, self._resized),
            (signal.SIGTSTP, self._suspended),
            (signal.SIGCONT, self._resumed),
        ):
            self._before[signum] = signal.signal(signum, handler)
        try:
            self._enter()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakes_before)
        self._leave()
        os.close(self._woken)
        os.close(self._wake)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        with suppress(OSError):
            size = os.get_terminal_size(self._out)
            # A terminal that does not know its size says 0.
            return size.columns or 80, size.lines or 24
        return 80, 24

    def show(self, lines: list[Row], size: tuple[int, int]) -> int:
        """Draw the rows for a screen of that size; how many bytes that took."""
        columns, rows = size
        written = []
        if self._stale or size != self._size:
            self._stale, self._size, self._shown = False, size, []
            written.append("\x1b[0m\x1b[2J")
        fresh = [line.ansi(self._colour) for line in lines[:rows]]
        fresh += [""] * (rows - len(fresh))
        before = self._shown or [""] * rows
        for number, (row, old) in enumerate(zip(fresh, before, strict=True)):
            if row != old:
                # After a full row there is nothing left to clear, and clearing would take its last sign.
                full = number < len(lines) and lines[number].cells >= columns
                written.append(f"\x1b[{number + 1};1H{row}{'' if full else chr(27) + '[K'}")
        self._shown = fresh
        return self._write("".join(written)) if written else 0

    def pressed(self, seconds: float) -> list[str]:
        """Wait so long for keys; comes back at once where the screen is to be drawn anew."""
        sources = [self._woken, *([self._in] if self.has_keys else [])]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._woken in ready:
            with suppress(OSError):
                os.read(self._woken, CHUNK)
        if self._in not in ready:
            return []
        try:
            data = os.read(self._in, CHUNK)
        except OSError:
            data = b""
        if not data:
            self._in = -1  # closed: there are no more keys
        return self._keys.feed(data)

    def _enter(self) -> None:
        if self.has_keys:
            # Not raw: Ctrl-C and Ctrl-Z stay what they are.
            tty.setcbreak(self._in, termios.TCSADRAIN)
        self._write(ENTER)
        self._stale = True

    def _leave(self) -> None:
        self._write(LEAVE)
        if self._cooked is not None:
            with suppress(termios.error, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._cooked)

    def _resized(self, *_: object) -> None:
        self._stale = True

    def _suspended(self, *_: object) -> None:
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _resumed(self, *_: object) -> None:
        signal.signal(signal.SIGTSTP, self._suspended)
        with suppress(termios.error):
            self._enter()

    def _write(self, text: str) -> int:
        data = text.encode(self._encoding, "replace")
        left = data
        try:
            while left:
                left = left[os.write(self._out, left) :]
        except OSError:
            pass  # the terminal is gone; a SIGHUP says so
        return len(data)

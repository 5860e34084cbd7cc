"""The live view on a terminal: the whole screen, which is given back however the command ends, and keys."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Self

from rich.console import Console, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.text import Text

from ..analyse.recent import UNDER_WAY, RecentReader, Snapshot
from ..errors import RecordError
from ..interrupts import held
from ..record.latest import latest
from ..report.live import Options, screen, views

NEXT_RUN_SECONDS = 15.0
"""How long to wait for another run after one has ended, without a terminal."""


class Following:
    """A recording, and if `next_ones` those that begin after it."""

    def __init__(self, folder: Path, next_ones: bool = False) -> None:
        self.next_ones = next_ones
        self._reader = RecentReader(folder)
        self._ended_at: float | None = None
        """When the run was first seen to have ended; `None`: it is under way."""

    @property
    def over(self) -> bool:
        """Whether nothing new will come."""
        if self._ended_at is None:
            return False
        return not self.next_ones or time.monotonic() - self._ended_at > NEXT_RUN_SECONDS

    def look(self) -> Snapshot:
        """The run as it stands, or the next one where that has begun."""
        view = self._reader.snapshot()
        if view.state in UNDER_WAY:
            self._ended_at = None
            return view
        newest = latest() if self.next_ones and self._ended_at is not None else None
        if newest is not None and newest.resolve() != self._reader.folder.resolve():
            with suppress(RecordError):  # it is being made
                self._reader, self._ended_at = RecentReader(newest), None
                return self._reader.snapshot()
        self._ended_at = self._ended_at or time.monotonic()
        return view


class Ended(BaseException):
    """A signal asked the command to end, whose number is the argument; everything is undone on the way out."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within it the first of these signals raises `Ended`, unless it is ignored; later ones do nothing."""

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
    """A terminal's whole screen, and its keys. Use as a context manager, in the main thread."""

    def __init__(self, target: Console) -> None:
        self._live = Live(console=target, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        self._cooked = termios.tcgetattr(self._in) if self.has_keys else None
        self.size = target.size
        """Columns and rows at the last picture."""

    @property
    def has_keys(self) -> bool:
        """Whether keys can be read."""
        return self._in >= 0

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTSTP, self._suspend)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        self._give_back()

    def show(self, what: RenderableType) -> None:
        """Draw it."""
        self._live.update(what, refresh=True)

    def pressed(self, seconds: float) -> str:
        """Wait so long for keys, and return them."""
        ready, _, _ = select.select([self._in] if self.has_keys else [], [], [], seconds)
        data = b""
        if ready:
            with suppress(OSError):
                data = os.read(self._in, 1024)
            if not data:
                self._in = -1  # closed: there are no more keys
        return data.decode(errors="replace")

    def _take(self) -> None:
        if self.has_keys:
            # Not raw: Ctrl-C and Ctrl-Z stay what they are.
            tty.setcbreak(self._in, termios.TCSADRAIN)
        # What rich has half begun it does not undo.
        with held():
            self._live.start(refresh=True)

    def _give_back(self) -> None:
        with suppress(OSError):  # the terminal is gone; a SIGHUP says so
            self._live.stop()
        if self._cooked is not None:
            with suppress(termios.error, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._cooked)

    def _suspend(self, *_: object) -> None:
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here we stop, and go on when the shell says so.
        signal.signal(signal.SIGTSTP, self._suspend)
        with suppress(termios.error):
            self._take()


class Program:
    """What is shown of a recording, and how. `press` acts on a key; `run` draws until one quits."""

    def __init__(self, source: Following, options: Options) -> None:
        self.source, self.options = source, options
        self.view: Snapshot | None = None
        self.quit = False

    def run(self, target: Console, interval: float) -> None:
        """Draw what has changed, again and again."""
        shown: tuple[object, ...] = ()
        with Screen(target) as to:
            while not self.quit:
                if self.view is None or not self.options.paused:
                    self.view = self.source.look()
                now = id(self.view), self.options, target.size
                if now != shown:
                    to.show(self.picture(self.view, target.size.width, to.has_keys))
                shown = now
                for key in to.pressed(interval):
                    self.press(key)

    def picture(self, view: Snapshot, width: int, has_keys: bool) -> RenderableType:
        """The whole screen of a moment, with a last row that names the keys."""
        ended = view.state not in UNDER_WAY
        note = "waiting for the next run" if ended and self.source.next_ones else ""
        body = screen(view, width, replace(self.options, note=note))
        if not has_keys:
            return body
        whole, foot = Layout(), f" q quit  p {'go on' if self.options.paused else 'pause'}"
        foot += f"  Tab {self._next()}" if len(views(view)) > 1 else ""
        whole.split_column(Layout(body), Layout(Text(foot, "dim", no_wrap=True), size=1))
        return whole

    def press(self, key: str) -> None:
        """Act on a key; on one that means nothing, not at all."""
        if key == "q":
            self.quit = True
        elif key in ("p", " "):
            self.options = replace(self.options, paused=not self.options.paused)
        elif key == "\t":
            following = self._next()
            self.options = replace(self.options, view="" if following == "overview" else following)

    def _next(self) -> str:
        """The view that Tab leads to."""
        known = views(self.view) if self.view is not None else ("",)
        here = known.index(self.options.view) if self.options.view in known else 0
        return known[(here + 1) % len(known)] or "overview"

"""`whyidle live [RUN]`: shows a recording while it is made: on the whole screen of a terminal, which is given back
however the command ends, or as lines."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.text import Text

from ..analyse.recent.reader import RecentReader, of_whole_run
from ..analyse.recent.snapshot import UNDER_WAY, Snapshot
from ..capture.sampler.start import start_sampler
from ..errors import RecordError, WhyidleError
from ..interrupts import held
from ..record.files import no_commands
from ..record.latest import latest
from ..record.run import create_run, sampled_devices
from ..record.schema import BATCH, STEP
from ..report import bars, live
from ..report.live import screen, views
from ..results.opening import newest_run
from ..terminal import child
from ..terminal.console import console, json_text, show
from .options import nothing_newest, number

PLAIN_SECONDS = 2.0
"""Between lines where the output is not a terminal."""
WATCH_RATE = 4.0
"""Samples per second of our own sampler."""
INTERVAL = number("is not a number of seconds from 0.05 to 60", 0.05, 60)
FIRST_FIGURES_SECONDS = 5.0
"""How long one view of the accelerators alone waits for its sampler."""
NEXT_RUN_SECONDS = 15.0
"""How long to wait for another run after one has ended, without a terminal."""
LARGE_BYTES = 80_000_000
"""Size of a run's steps and batches from which analysing all of it takes too long for a look: three
hours at ten steps a second."""
MANY_PROCESSES = 64
"""Training processes from which it does as well."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, nargs="?", help="folder of a run, or of several runs")
    parser.add_argument("--gpus", action="store_true", help="show accelerators and the machine, without a recording")
    parser.add_argument("--interval", type=INTERVAL, default=0.5, metavar="S", help="seconds between updates (0.5)")
    parser.add_argument("--once", action="store_true", help="print one view, then end")
    parser.add_argument("--json", action="store_true", help="print the view as JSON (with --once)")
    parser.add_argument("--ascii", action="store_true", help="use only ASCII characters")
    parser.add_argument(
        "--no-colour", "--no-color", action="store_true", dest="no_colour", help="bold and dim instead of colours"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.json and not arguments.once:
        raise WhyidleError("--json prints one view: add --once. For a whole run use `whyidle report --json`.")
    if arguments.gpus and arguments.run_folder is not None:
        raise WhyidleError("--gpus shows no recording: leave out RUN.")
    folder = latest() if arguments.run_folder is None else newest_run(arguments.run_folder)
    try:
        with ended_by_signals():
            if arguments.gpus or (folder is None and _is_screen()):
                with watched() as own:
                    _show(arguments, Following(own), _first_figures(own) if arguments.once else None)
            elif folder is None:
                raise nothing_newest(", or see the accelerators alone with `whyidle live --gpus`")
            else:
                _show(arguments, Following(folder, next_ones=arguments.run_folder is None), None)
    except Ended as ended:
        return child.end_as(-ended.signum)
    return 0


@contextmanager
def watched() -> Iterator[Path]:
    """A recording of accelerators and machine alone, by our own sampler; removed in the end.

    Raises:
        WhyidleError: the sampler could not be started.
    """
    folder = Path(tempfile.mkdtemp(prefix="whyidle-watch-"))
    try:
        create_run(folder, {"command": ["accelerators and machine"], "watching": True})
        with start_sampler(folder, os.getpid(), WATCH_RATE) as sampler:
            if sampler.error:
                raise WhyidleError(sampler.error)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _first_figures(folder: Path) -> Snapshot:
    """The first view that has the machine and all accelerators that the sampler has found."""
    until = time.monotonic() + FIRST_FIGURES_SECONDS
    while True:
        view, found = Following(folder).look(), sampled_devices(folder)
        busy = {device.number for device in view.devices if device.busy_pct}
        complete = view.host.machine_busy_pct is not None and found is not None
        if (complete and busy >= {device.number for device in found or ()}) or time.monotonic() > until:
            return view
        time.sleep(0.1)


def _show(arguments: argparse.Namespace, source: Following, first: Snapshot | None) -> None:
    """On the screen, as one view, or as lines. `first`: the one view, where it is known already."""
    if not arguments.once and _is_screen():
        # A terminal says how large it is: what its shell exported may be another one's size, or an earlier one.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    target = console()
    target.no_color |= arguments.no_colour
    options = live.Options(ascii_only=arguments.ascii or bars.is_ascii(target))
    if arguments.once:
        view = first or source.look()
        if arguments.json:
            print(json_text(live.as_json(view)))
            return
        # Scripts that take pictures ask for a width as of any program.
        columns = os.environ.get("COLUMNS", "")
        target.width = int(columns) if columns.isdecimal() and int(columns) > 0 else target.width
        show(lambda to: to.print(live.screen(view, to.width, options)), target)
    elif _is_screen():
        program = Program(source, options)
        with suppress(KeyboardInterrupt, BrokenPipeError):  # Ctrl-C ends the look, as q does
            program.run(target, arguments.interval)
        if program.view is not None:
            # The screen is gone; what stays says how far one has come since it was drawn.
            print(no_commands(live.line(program.view)))
    else:
        _lines(source, max(arguments.interval, PLAIN_SECONDS))


def _is_screen() -> bool:
    """Whether the output is a terminal that can be drawn on."""
    try:
        return os.isatty(sys.stdout.fileno()) and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except (AttributeError, OSError, ValueError):
        return False  # closed, or not a file


def _lines(source: Following, interval: float) -> None:
    said = ""
    while True:
        before, said = said, no_commands(live.line(source.look()))
        if said != before:
            print(said, flush=True)
        if source.over:
            return
        time.sleep(interval)


class Following:
    """A recording, and if `next_ones` those that begin after it."""

    def __init__(self, folder: Path, next_ones: bool = False) -> None:
        self.next_ones = next_ones
        self._reader = RecentReader(folder)
        self._whole: Snapshot | None = None
        """Of a run that has ended: what stays."""
        self._ended_at = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing new will come."""
        waits = self.next_ones and time.monotonic() - self._ended_at <= NEXT_RUN_SECONDS
        return self._whole is not None and not waits

    def look(self) -> Snapshot:
        """The run as it stands; once it has ended, with its report's figures if it is not too large."""
        view, folder = self._reader.snapshot(), self._reader.folder
        if view.state in UNDER_WAY:
            self._whole = None
            return view
        newest = latest() if self.next_ones and self._whole is not None else None
        if newest is not None and newest.resolve() != folder.resolve():
            with suppress(RecordError):  # it is being made
                self._reader, self._whole = RecentReader(newest), None
                return self._reader.snapshot()
        if self._whole is None or self._whole.state != view.state:
            self._ended_at = time.monotonic()
            self._whole = view if is_large(folder) else of_whole_run(view, folder)
        return self._whole


def is_large(folder: Path) -> bool:
    """Whether analysing the whole run takes longer than a look at it may."""
    sizes = [[path.lstat().st_size for path in folder.glob(f"{kind.name}-*")] for kind in (STEP, BATCH)]
    return len(sizes[0]) > MANY_PROCESSES or sum(map(sum, sizes)) >= LARGE_BYTES


class Ended(BaseException):
    """A signal asked the command to end; raised anywhere, so that everything is undone on the way out."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


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
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def __init__(self, source: Following, options: live.Options) -> None:
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

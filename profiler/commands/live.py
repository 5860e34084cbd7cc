"""`whyidle live [RUN]`: shows a recording while it is made."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from ..analyse.recent.reader import RecentReader
from ..analyse.recent.snapshot import Snapshot
from ..analyse.recent.sources import Following, SnapshotSource
from ..capture.sampler.start import start_sampler
from ..errors import WhyidleError
from ..record.files import no_commands
from ..record.latest import latest
from ..record.run import create_run, sampled_devices
from ..report import live
from ..report.live import as_json
from ..report.render import bars
from ..results.opening import newest_run
from ..terminal import child
from ..terminal.console import console, json_text
from ..terminal.live_program import LastWord, Program, is_large
from ..terminal.screen import Ended, Screen, ended_by_signals
from .options import nothing_newest

PLAIN_SECONDS = 2.0
"""Between lines where the output is not a terminal."""
ONCE_ROWS = 48
"""Of one view, where the output is not a terminal."""
WATCH_RATE = 4.0
"""Samples per second of our own sampler."""
FIRST_FIGURES_SECONDS = 5.0
"""How long one view of the accelerators alone waits for its sampler."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, nargs="?", help="folder of a run, or of several runs")
    parser.add_argument("--gpus", action="store_true", help="show accelerators and the machine, without a recording")
    parser.add_argument("--interval", type=_seconds, default=0.25, metavar="S", help="seconds between updates (0.25)")
    parser.add_argument("--once", action="store_true", help="print one view, then end")
    parser.add_argument("--json", action="store_true", help="print the view as JSON (with --once)")
    parser.add_argument("--ascii", action="store_true", help="use only ASCII characters")
    parser.add_argument(
        "--no-colour", "--no-color", action="store_true", dest="no_colour", help="bold and dim instead of colours"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.json and not arguments.once:
        raise WhyidleError("--json prints one view: add --once. For a whole run use `whyidle report --json`.")
    try:
        with ended_by_signals(), _source(arguments) as source:
            if arguments.once:
                _once(arguments, source)
            elif _is_screen():
                _draw(arguments, source)
            else:
                _lines(source, max(arguments.interval, PLAIN_SECONDS))
    except Ended as ended:
        return child.end_as(-ended.signum)
    return 0


@contextmanager
def _source(arguments: argparse.Namespace) -> Iterator[SnapshotSource]:
    if arguments.gpus and arguments.run_folder is not None:
        raise WhyidleError("--gpus shows no recording: leave out RUN.")
    folder = latest() if arguments.run_folder is None else newest_run(arguments.run_folder)
    if arguments.gpus or (folder is None and _is_screen()):
        with watching() as accelerators:
            yield accelerators
    elif folder is None:
        raise nothing_newest(", or see the accelerators alone with `whyidle live --gpus`")
    else:
        yield Following(folder, next_ones=arguments.run_folder is None)


class Watching:
    """The accelerators and the machine, by a sampler of our own."""

    over = False
    folder = None

    def __init__(self, folder: Path) -> None:
        self._reader = RecentReader(folder)

    def look(self) -> Snapshot:
        return self._reader.snapshot()

    def is_complete(self, view: Snapshot) -> bool:
        """Whether the sampler has recorded the machine and all accelerators that it found."""
        found = sampled_devices(self._reader.folder)
        told = {device.number for device in view.devices if device.busy_pct}
        return view.host.machine_busy_pct is not None and found is not None and told >= {d.number for d in found}


@contextmanager
def watching() -> Iterator[Watching]:
    """A sampler that writes into a folder of its own, which is removed in the end.

    Raises:
        WhyidleError: the sampler could not be started.
    """
    folder = Path(tempfile.mkdtemp(prefix="whyidle-watch-"))
    try:
        create_run(folder, {"command": ["accelerators and machine"], "watching": True})
        with start_sampler(folder, os.getpid(), WATCH_RATE) as sampler:
            if sampler.error:
                raise WhyidleError(sampler.error)
            yield Watching(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_screen() -> bool:
    """Whether the output is a terminal that can be drawn on."""
    try:
        return os.isatty(sys.stdout.fileno()) and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except (AttributeError, OSError, ValueError):
        return False  # closed, or not a file


def _has_colour(arguments: argparse.Namespace, target: Console) -> bool:
    return target.color_system is not None and not target.no_color and not arguments.no_colour


def _draw(arguments: argparse.Namespace, source: SnapshotSource) -> None:
    target = console()
    options = live.Options(ascii_only=arguments.ascii or bars.is_ascii(target))
    program = Program(source, options)
    try:
        with Screen(_has_colour(arguments, target), target.encoding) as to:
            program.run(to, arguments.interval)
    except KeyboardInterrupt:
        pass  # ends the look, as q does
    if program.view is not None:
        # The screen is gone; what stays says how far one has come since it was drawn.
        print(no_commands(live.line(program.view)))


def _once(arguments: argparse.Namespace, source: SnapshotSource) -> None:
    view = source.look()
    until = time.monotonic() + FIRST_FIGURES_SECONDS
    while isinstance(source, Watching) and not source.is_complete(view) and time.monotonic() < until:
        time.sleep(0.1)
        view = source.look()
    if source.folder is not None and not is_large(source.folder):
        view = LastWord().told(source.folder, view)
    if arguments.json:
        print(json_text(as_json(view)))
        return
    target = console()
    # Whoever asks for a size without a terminal, as scripts that take pictures do, says so as for any program.
    width, rows = (_environ(name) for name in ("COLUMNS", "LINES"))
    options = live.Options(ascii_only=arguments.ascii or bars.is_ascii(target))
    height = rows or (target.height - 1 if target.is_terminal else ONCE_ROWS)
    shown = live.screen(view, width or target.width, height, options)
    colour = _has_colour(arguments, target)
    for row in shown:
        print(no_commands(row.ansi(colour) if target.is_terminal else row.plain.rstrip()))


def _lines(source: SnapshotSource, interval: float) -> None:
    said = ""
    while True:
        before, said = said, no_commands(live.line(source.look()))
        if said != before:
            print(said, flush=True)
        if source.over:
            return
        time.sleep(interval)


def _environ(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() and int(value) > 0 else None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.05 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 60")
    return value

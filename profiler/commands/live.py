"""`whyidle live [RUN]`: shows a recording while it is made."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..analyse.recent import Snapshot
from ..capture.sampler.start import start_sampler
from ..errors import WhyidleError
from ..record.files import no_commands
from ..record.latest import latest
from ..record.run import create_run, sampled_devices
from ..report import bars, live
from ..results.opening import newest_run
from ..terminal import child
from ..terminal.console import console, json_text, show
from ..terminal.live_program import Ended, Following, Program, ended_by_signals
from .options import nothing_newest, number

PLAIN_SECONDS = 2.0
"""Between lines where the output is not a terminal."""
WATCH_RATE = 4.0
"""Samples per second of our own sampler."""
INTERVAL = number("is not a number of seconds from 0.05 to 60", 0.05, 60)
FIRST_FIGURES_SECONDS = 5.0
"""How long one view of the accelerators alone waits for its sampler."""


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
        return child.end_as(-ended.args[0])
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
        said = ""
        while True:
            before, said = said, no_commands(live.line(source.look()))
            if said != before:
                print(said, flush=True)
            if source.over:
                return
            time.sleep(max(arguments.interval, PLAIN_SECONDS))


def _is_screen() -> bool:
    """Whether the output is a terminal that can be drawn on."""
    try:
        return os.isatty(sys.stdout.fileno()) and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except (AttributeError, OSError, ValueError):
        return False  # closed, or not a file

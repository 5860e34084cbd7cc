"""`stallscope live [RUN]`: looks at a recording while it is made."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ..analyse.recent import RecentReader, Snapshot
from ..errors import RecordError, StallscopeError
from ..record.comparison import is_comparison
from ..record.latest import latest
from ..record.run import RUN_JSON, is_run
from ..report import bars, live
from .console import console

NAME = "live"
HELP = "Shows a recording in progress (no RUN: the newest on this machine, and the next ones after it)."
EXAMPLE = "stallscope live"

PLAIN_SECONDS = 2.0
"""Between lines where the output is not a terminal."""
NEXT_RUN_SECONDS = 15.0
"""How long to wait for another run after one has ended, when following the newest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folder", metavar="RUN", type=Path, nargs="?", help="folder of a run, or one around several runs"
    )
    parser.add_argument("--interval", type=_seconds, default=0.25, metavar="S", help="seconds between looks")
    parser.add_argument("--once", action="store_true", help="one look, then end")


def run(arguments: argparse.Namespace) -> int:
    folder = latest() if arguments.run_folder is None else _newest_within(arguments.run_folder)
    if folder is None:
        raise StallscopeError(
            "no recording was made on this machine yet. Start one with `stallscope run -- python train.py`, or name "
            "its folder."
        )
    target = console()
    reader = RecentReader(folder)
    if arguments.once:
        target.print(live.render(reader.snapshot(), target.width, bars.is_ascii(target)))
        return 0
    follow = arguments.run_folder is None
    if target.is_terminal:
        _draw(target, reader, arguments.interval, follow)
    else:
        _lines(reader, max(arguments.interval, PLAIN_SECONDS), follow)
    return 0


def _newest_within(folder: Path) -> Path:
    """The folder itself, or of a comparison and of a folder with many runs the one that began last."""
    if is_run(folder):
        return folder
    runs = sorted(folder.glob(f"*/{RUN_JSON}"), key=lambda path: path.stat().st_ctime_ns)
    if not runs and is_comparison(folder):
        raise StallscopeError(f"{folder} is a comparison of which no run has begun yet.")
    return runs[-1].parent if runs else folder


def _draw(target: Console, reader: RecentReader, interval: float, follow: bool) -> None:
    with Live(console=target, auto_refresh=False) as screen:
        while True:
            view = reader.snapshot()
            screen.update(live.render(view, target.width, bars.is_ascii(target)), refresh=True)
            following = _after(reader, view, follow)
            if following is None:
                return
            reader = following
            time.sleep(interval)


def _lines(reader: RecentReader, interval: float, follow: bool) -> None:
    while True:
        view = reader.snapshot()
        print(live.line(view), flush=True)
        following = _after(reader, view, follow)
        if following is None:
            return
        reader = following
        time.sleep(interval)


def _after(reader: RecentReader, view: Snapshot, follow: bool) -> RecentReader | None:
    """What to look at next: the same run, a newer one, or nothing more."""
    if view.state in ("running", "starting"):
        return reader
    if not follow:
        return None
    until = time.monotonic() + NEXT_RUN_SECONDS
    while time.monotonic() < until:
        newest = latest()
        if newest is not None and newest.resolve() != reader.folder.resolve():
            try:
                return RecentReader(newest)
            except RecordError:
                pass  # it is being made
        time.sleep(0.5)
    return None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 60")
    return value
